//! What each role, each token and each link may.

use super::house::{NAME, PASSWORD, encoded, house};
use axum::http::{Method, StatusCode};
use weir_foundation::Actor;
use weir_foundation::console_accounts::{NewAccount, Role};
use weir_mail::own_link::{self, Owner};

#[tokio::test]
async fn each_role_sees_and_does_what_it_may() {
    let house = house().await;
    let [admin, operator, user] =
        [house.as_role("root").await, house.as_role("olga").await, house.as_role("ann@example.org").await];
    for (path, expected) in [
        ("/", [200, 200, 303]),
        ("/throttle", [200, 200, 403]),
        ("/throttle/users/ann%40example.org", [200, 200, 403]),
        ("/quarantine", [200, 200, 403]),
        ("/queue", [200, 200, 403]),
        ("/senders", [200, 200, 403]),
        ("/api/v1/senders", [200, 200, 403]),
        ("/feeds", [200, 200, 403]),
        ("/web", [200, 200, 403]),
        ("/lab", [200, 200, 403]),
        ("/search?q=ann%40example.org", [200, 200, 403]),
        ("/incidents", [200, 200, 403]),
        ("/incidents/1", [404, 404, 403]),
        ("/api/v1/incidents", [200, 200, 403]),
        ("/audit", [200, 200, 403]),
        ("/settings", [200, 403, 403]),
        ("/me", [200, 200, 200]),
        ("/nowhere", [404, 403, 403]),
        ("/api/v1/users", [200, 200, 403]),
        ("/api/v1/users/ann%40example.org", [200, 200, 403]),
        ("/api/v1/users/nobody", [404, 404, 403]),
        ("/api/v1/console/accounts", [200, 403, 403]),
        ("/api/v1/console/sessions", [200, 403, 403]),
        ("/api/v1/health", [200, 200, 403]),
        ("/api/v1/console/tokens", [200, 403, 403]),
        ("/account", [200, 200, 403]),
        // Nobody has set up an identity provider.
        ("/login/oidc", [404, 404, 404]),
        ("/login/oidc/callback?state=x&code=y", [404, 404, 404]),
    ] {
        for (session, expected) in [&admin, &operator, &user].into_iter().zip(expected) {
            assert_eq!(house.get(path, session).await.status.as_u16(), expected, "{path}");
        }
    }
    assert!(house.get("/me", &user).await.text.contains("None of your mail is held"));
    let settings = house.get("/settings", &admin).await.text;
    assert!(!settings.contains("hunter2") && settings.contains("weir.toml, line 3"), "{settings}");
    // Over the API an operator looks, and an administrator with the token changes; nobody makes the process write anywhere.
    let new = "{\"name\":\"carl\",\"password\":\"a long password\",\"addresses\":[\"carl@example.org\"]}";
    let json = ("content-type", "application/json");
    for (session, status) in [(&operator, 403), (&user, 403), (&admin, 403)] {
        let answer = house.send(Method::POST, "/api/v1/users", &[("cookie", session.as_str()), json], new).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    }
    let token = house.get("/", &admin).await.token();
    let with_token = [("cookie", admin.as_str()), json, ("x-weir-token", token.as_str())];
    assert_eq!(house.send(Method::POST, "/api/v1/users", &with_token, new).await.status, StatusCode::CREATED);
    let backup = house.send(Method::POST, "/api/v1/backup", &with_token, "{\"folder\":\"/tmp/x\"}").await;
    assert_eq!(backup.status, StatusCode::FORBIDDEN);
    // An administrator's act with an operator's session.
    let token = house.get("/", &operator).await.token();
    assert_eq!(house.post("/feeds/tune", &operator, &format!("token={token}")).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn tokens_reach_as_far_as_their_scope_and_until_they_are_revoked() {
    let house = house().await;
    let session = house.as_role("root").await;
    let form = house.get("/settings", &session).await.token();
    let mut tokens = Vec::new();
    for scope in ["read", "operate", "admin", "metrics"] {
        let body = format!("token={form}&name=for-{scope}&scope={scope}&days=1&back=/settings");
        assert_eq!(house.post("/settings/tokens", &session, &body).await.status, StatusCode::SEE_OTHER);
        let said = house.get("/settings", &session).await.text;
        let (_, rest) = said.split_once("weir_").expect("it is shown once");
        tokens.push(format!("Bearer weir_{}", &rest[..64]));
        assert!(!house.get("/settings", &session).await.text.contains("weir_"), "and only once");
    }
    let kept = house.records.values().get("", "console.tokens").await.unwrap().unwrap();
    assert!(tokens.iter().all(|token| !kept.contains(&token[12..])), "only digests are kept: {kept}");
    let new = "{\"name\":\"carl\",\"addresses\":[\"carl@example.org\"]}";
    for (method, path, body, expected) in [
        (Method::GET, "/api/v1/users/ann%40example.org", "", [200, 200, 200, 403]),
        (Method::GET, "/api/v1/openapi.json", "", [200, 200, 200, 403]),
        (Method::GET, "/api/v1/health", "", [200, 200, 200, 200]),
        (Method::GET, "/api/v1/alive", "", [200, 200, 200, 200]),
        (Method::GET, "/api/v1/messages", "", [200, 200, 200, 403]),
        (Method::GET, "/api/v1/quarantine", "", [200, 200, 200, 403]),
        (Method::GET, "/api/v1/nowhere", "", [404, 404, 404, 403]),
        (
            Method::POST,
            "/api/v1/users/ann%40example.org/secure",
            "{\"password\":\"a new password\"}",
            [403, 403, 200, 403],
        ),
        (Method::POST, "/api/v1/users/ann%40example.org/secure", "{}", [403, 200, 200, 403]),
        (Method::POST, "/api/v1/users/ann%40example.org/lock", "{\"reason\":\"a leak\"}", [403, 200, 200, 403]),
        (Method::POST, "/api/v1/users", new, [403, 403, 201, 403]),
        (Method::GET, "/api/v1/console/tokens", "", [403, 403, 200, 403]),
        (Method::POST, "/api/v1/backup", "{\"folder\":\"/tmp/x\"}", [403, 403, 403, 403]),
        (Method::GET, "/settings", "", [303, 303, 303, 303]),
        (Method::POST, "/throttle/decide", "", [303, 303, 303, 303]),
    ] {
        for (token, expected) in tokens.iter().zip(expected) {
            let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
            let answer = house.send(method.clone(), path, &headers, body).await;
            assert_eq!(answer.status.as_u16(), expected, "{method} {path}: {}", answer.text);
        }
    }
    for token in [&tokens[0], &tokens[3]] {
        let public = [("host", NAME), ("x-forwarded-for", "192.0.2.9"), ("authorization", token.as_str())];
        assert_eq!(
            house.send(Method::GET, "/metrics", &public, "").await.status,
            StatusCode::OK,
            "for Prometheus elsewhere"
        );
    }
    let trail = house.administration.audit.newest("ann@example.org", 1).await.unwrap();
    assert_eq!((trail[0].actor.as_str(), trail[0].action.as_str()), ("token:for-admin", "user.lock"));
    house.post("/settings/tokens/revoke", &session, &format!("token={form}&name=for-admin")).await;
    for token in [tokens[2].as_str(), "Bearer weir_0", "Bearer ", "bearer"] {
        let answer = house.send(Method::GET, "/api/v1/status", &[("authorization", token)], "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{token}");
    }
    let trail = house.administration.audit.newest("for-admin", 9).await.unwrap();
    assert_eq!(trail.iter().map(|line| line.action.as_str()).collect::<Vec<_>>(), ["token.revoke", "token.add"]);
}

#[tokio::test]
async fn the_link_of_a_notice_leads_to_ones_own_page_and_no_further() {
    let house = house().await;
    let actor = Actor::new("test");
    let contact = |to: &str| weir_mail::operations::Change { contact: Some(to.into()), ..Default::default() };
    house.mail.users.set("ann@example.org", &contact("ann@elsewhere.example"), &actor).await.unwrap();
    let secret = house.records.secrets().find_or_set(own_link::SECRET, "a secret of the site").await.unwrap();
    let key =
        |name: &str, contact: &str| own_link::key(&secret, Owner { identity: name, contact, situation: 0 }, u64::MAX);
    let good = key("ann@example.org", "ann@elsewhere.example");
    for bad in ["x", &key("ann@example.org", "eve@example.net"), &key("root", ""), &key("nobody", "")] {
        assert_eq!(house.get(&format!("/link/{bad}"), "").await.status, StatusCode::NOT_FOUND, "{bad}");
    }
    let page = house.get(&format!("/link/{good}"), "").await;
    assert_eq!(
        (page.status, page.cookie("weir-8025")),
        (StatusCode::OK, None),
        "a program that follows links gets nothing"
    );
    let bound = format!("weir-8025-login={}", page.cookie("weir-8025-login").unwrap());
    assert_eq!(house.post("/link", &bound, &format!("token=x&key={good}")).await.status, StatusCode::FORBIDDEN);
    let entered = house.post("/link", &bound, &format!("token={}&key={good}", page.token())).await;
    assert_eq!((entered.status, entered.location()), (StatusCode::SEE_OTHER, "/me"));
    let session = format!("weir-8025={}", entered.cookie("weir-8025").unwrap());
    assert!(house.get("/me", &session).await.text.contains("release it"));
    assert_eq!(house.get("/throttle", &session).await.status, StatusCode::FORBIDDEN);
    let trail = house.administration.audit.newest("console", 1).await.unwrap();
    assert!(trail[0].detail.contains("by the link of a notice"), "{trail:?}");
    // An account that is made under the same name is not theirs.
    let new = NewAccount { name: "ann@example.org".into(), role: Role::Admin, password: PASSWORD.into() };
    house.administration.accounts.add(new, &actor).await.unwrap();
    assert_eq!(house.get("/me", &session).await.status, StatusCode::SEE_OTHER);
    assert_eq!(house.get(&format!("/link/{good}"), "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn rules_are_made_by_operators_and_those_of_yara_by_administrators() {
    let house = house().await;
    let (root, olga) = (house.as_role("root").await, house.as_role("olga").await);
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let said = async |session: &str, path: &str, fields: &str| {
        let token = house.get("/rules", session).await.token();
        let answer = house.post(path, session, &format!("token={token}&back=/rules&{fields}")).await;
        assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "/rules"), "{}", answer.text);
        house.get("/rules", session).await.text
    };
    let made = said(&olga, "/rules/add", &format!("what=hash&sha256={hash}&about=%3Cb%3Ea+joke")).await;
    assert!(made.contains("Rule 1 is in force") && made.contains("&lt;b&gt;a joke") && !made.contains("<b>a joke"));
    assert!(said(&olga, "/rules/add", &format!("what=hash&sha256={hash}&about=x")).await.contains("blocked already"));
    assert!(said(&olga, "/rules/add", "what=hash&sha256=zz&about=x").await.contains("no SHA-256"));
    assert!(said(&olga, "/rules/add", "about=x").await.contains("Not done."));
    let rule = encoded("rule x { strings: $a = \"</pre><script>\" condition: $a }");
    assert!(said(&olga, "/rules/add", &format!("what=yara&about=x&yara={rule}")).await.contains("Only administrators"));
    assert!(said(&root, "/rules/add", "what=yara&about=x&yara=rule").await.contains("Not done."));
    let made = said(&root, "/rules/add", &format!("what=yara&about=x&yara={rule}")).await;
    assert!(made.contains("is in force: mail in which") && made.contains("&lt;/pre&gt;&lt;script&gt;"), "{made}");
    let yara = house.mail.rules.list().await.unwrap()[1].rule;
    let remove = format!("rule={yara}");
    assert!(said(&olga, "/rules/remove", &remove).await.contains("Only administrators"));
    assert!(said(&olga, "/rules/remove", "rule=1").await.contains("Rule 1 is removed"));
    assert!(said(&root, "/rules/remove", &remove).await.contains("Nobody has made a rule"));
    assert!(said(&root, "/rules/remove", &remove).await.contains("There is no rule"));
    let trail = house.administration.audit.newest("rule-1", 10).await.unwrap();
    let did: Vec<_> = trail.iter().map(|line| (line.action.as_str(), line.actor.as_str())).collect();
    assert_eq!(did, [("rule.remove", "console:olga"), ("rule.add", "console:olga")]);
    let (_, ann) = house.log_in("ann@example.org", PASSWORD, "").await;
    assert_eq!(house.get("/rules", &ann).await.status, StatusCode::FORBIDDEN);
}
