//! Who gets in: passwords, codes, and how long a session lasts.

use super::house::{HOST, NAME, PASSWORD, encoded, house};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use tower::ServiceExt;
use weir_foundation::Actor;
use weir_mail::own_link::{self, Owner};

#[tokio::test]
async fn nobody_sees_anything_before_a_login() {
    let house = house().await;
    for path in ["/", "/throttle", "/quarantine", "/audit", "/settings", "/nowhere", "/me"] {
        let answer = house.get(path, "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
        assert!(answer.location().starts_with("/login"), "{path}");
    }
    for path in ["/api/v1/status", "/live"] {
        assert_eq!(house.get(path, "weir-8025=planted").await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    for path in ["/style.css", "/console.js", "/icon.svg", "/healthz", "/metrics", "/login"] {
        assert_eq!(house.get(path, "").await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_login_gives_a_new_session_and_ends_the_old_one() {
    let house = house().await;
    let (wrong, none) = house.log_in("root", "wrong password", "").await;
    assert_eq!((wrong.status, none.as_str()), (StatusCode::FORBIDDEN, ""));
    assert!(wrong.text.contains("The name or the password is wrong"));
    let (first, one) = house.log_in("root", PASSWORD, "weir-8025=planted").await;
    assert_eq!((first.status, first.location()), (StatusCode::SEE_OTHER, "/"));
    assert!(!one.contains("planted"), "the browser's own id is not taken");
    let line = first.headers.get(header::SET_COOKIE).unwrap().to_str().unwrap();
    assert!(line.contains("HttpOnly") && line.contains("SameSite=Strict"), "{line}");
    assert_eq!(house.get("/", &one).await.status, StatusCode::OK);
    let (_, two) = house.log_in("root", PASSWORD, &one).await;
    assert_ne!(one, two);
    assert_eq!(house.get("/", &one).await.status, StatusCode::SEE_OTHER, "the old session is over");
    assert_eq!(house.get("/", &two).await.status, StatusCode::OK);
    let page = house.get("/", &two).await;
    house.post("/logout", &two, &format!("token={}", page.token())).await;
    assert_eq!(house.get("/", &two).await.status, StatusCode::SEE_OTHER);
    let trail = house.administration.audit.newest("console", 100).await.unwrap();
    for action in ["console.login", "console.login.failed", "console.logout"] {
        assert!(trail.iter().any(|line| line.action == action && line.actor == "console:root"), "{action}");
    }
}

#[tokio::test]
async fn a_new_password_or_a_removed_account_ends_sessions() {
    let house = house().await;
    let (one, actor) = (house.as_role("olga").await, Actor::new("test"));
    house.administration.accounts.set_password("olga", "another password", &actor).await.unwrap();
    assert_eq!(house.get("/", &one).await.status, StatusCode::SEE_OTHER);
    let (_, two) = house.log_in("olga", "another password", "").await;
    assert_eq!(house.get("/", &two).await.status, StatusCode::OK);
    house.administration.accounts.remove("olga", &actor).await.unwrap();
    assert_eq!(house.get("/", &two).await.status, StatusCode::SEE_OTHER);
    assert!(house.administration.accounts.remove("root", &actor).await.is_err(), "the last administrator stays");
}

#[tokio::test]
async fn logins_cannot_be_tried_out() {
    let mut house = house().await;
    for _ in 0..5 {
        assert_eq!(house.log_in("root", "a guess at it", "").await.0.status, StatusCode::FORBIDDEN);
    }
    // The count goes on when a gate is restarted.
    house.gate_restarted();
    let (waits, _) = house.log_in("root", PASSWORD, "").await;
    assert_eq!(waits.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(waits.text.contains("Try again in"));
    assert_eq!(house.log_in("olga", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
    // Through the web gate every connection comes from loopback; who is meant stands in the last element of the header.
    let page = house.send(Method::GET, "/login", &[("host", NAME), ("x-forwarded-for", "192.0.2.9")], "").await;
    let bound = format!("weir-8025-login={}", page.cookie("weir-8025-login").unwrap());
    let right = format!("token={}&name=root&password={}", page.token(), encoded(PASSWORD));
    for (forwarded, expected) in [("192.0.2.9, 127.0.0.1", 429), ("127.0.0.1, 192.0.2.9", 303)] {
        let headers = [("host", NAME), ("x-forwarded-for", forwarded), ("cookie", bound.as_str())];
        assert_eq!(house.send(Method::POST, "/login", &headers, &right).await.status.as_u16(), expected, "{forwarded}");
    }
}

#[tokio::test]
async fn right_logins_without_end_are_refused_and_send_nobody_else_away() {
    let house = house().await;
    let olga = house.as_role("olga").await;
    let mut sessions = Vec::new();
    loop {
        let (answer, session) = house.log_in("ann@example.org", PASSWORD, "").await;
        if answer.status != StatusCode::SEE_OTHER {
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.text);
            assert!(answer.text.contains("Try again in"), "{}", answer.text);
            break;
        }
        sessions.push(session);
        assert!(sessions.len() < 100);
    }
    assert_eq!(house.get("/", &olga).await.status, StatusCode::OK);
    assert_eq!(house.get("/me", &sessions[0]).await.status, StatusCode::SEE_OTHER, "the quietest of her own");
    assert_eq!(house.get("/me", sessions.last().unwrap()).await.status, StatusCode::OK);
    let lines = house.administration.audit.newest("console", 1_000).await.unwrap();
    let hers = lines.iter().filter(|line| line.actor == "console:ann@example.org").count();
    assert_eq!(hers, sessions.len());
    // The link of a notice is counted apart, and ends as well.
    let secret = house.records.secrets().find_or_set(own_link::SECRET, "a secret of the site").await.unwrap();
    let key = own_link::key(&secret, Owner { identity: "ann@example.org", contact: "", situation: 0 }, u64::MAX);
    let page = house.get(&format!("/link/{key}"), "").await;
    let bound = format!("weir-8025-login={}", page.cookie("weir-8025-login").unwrap());
    let enter = format!("token={}&key={key}", page.token());
    let mut entered = 0;
    while house.post("/link", &bound, &enter).await.status == StatusCode::SEE_OTHER {
        entered += 1;
        assert!(entered < 100);
    }
    assert_eq!(entered, sessions.len());
    assert_eq!(house.get("/me", sessions.last().unwrap()).await.status, StatusCode::OK);
    assert_eq!(house.log_in("root", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
}

/// The code that an authenticator with this secret shows now.
fn authenticator(secret: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let bits: String = secret
        .bytes()
        .map(|letter| format!("{:05b}", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|l| *l == letter).unwrap()))
        .collect();
    let key: Vec<u8> =
        (0..bits.len() / 8).map(|at| u8::from_str_radix(&bits[8 * at..8 * at + 8], 2).unwrap()).collect();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = ring::hmac::sign(&key, &(now / 30).to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 15);
    let four = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", four % 1_000_000)
}

#[tokio::test]
async fn where_a_code_is_wanted_a_password_is_not_enough() {
    let mut house = house().await;
    let session = house.as_role("olga").await;
    let token = house.get("/account", &session).await.token();
    let begun = house.post("/account/codes/begin", &session, &format!("token={token}")).await.text;
    let (_, rest) = begun.split_once("<code class=\"secret\">").expect("a secret");
    let secret: String = rest.split('<').next().unwrap().split(' ').collect();
    assert!(begun.contains("otpauth://totp/Weir:olga?secret="), "{begun}");
    // Nothing changes before a first code: a lost secret shuts nobody out.
    assert_eq!(house.log_in("olga", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
    house.post("/account/codes/confirm", &session, &format!("token={token}&code=000000")).await;
    assert!(house.get("/account", &session).await.text.contains("This code is wrong"));
    let code = authenticator(&secret);
    let shown = house.post("/account/codes/confirm", &session, &format!("token={token}&code={code}")).await.text;
    let recovery: Vec<&str> = shown.split("<li><code>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(recovery.len(), 8, "{shown}");
    // The password alone brings the second form, and no session.
    let (asked, none) = house.log_in("olga", PASSWORD, "").await;
    assert_eq!((asked.status, none.as_str()), (StatusCode::OK, ""));
    let (_, rest) = asked.text.split_once("name=\"step\" value=\"").expect("a second form");
    let step = rest.split('"').next().unwrap().to_owned();
    let bound = format!("weir-8025-login={}", asked.cookie("weir-8025-login").unwrap());
    let with = |code: &str| format!("token={}&step={step}&code={code}", asked.token());
    for wrong in ["000000", "", code.as_str()] {
        assert_eq!(house.post("/login/code", &bound, &with(wrong)).await.status, StatusCode::FORBIDDEN, "{wrong}");
    }
    // What somebody has begun goes on when a gate is restarted meanwhile.
    house.gate_restarted();
    let planted = format!("token={}&step=planted&code={}", asked.token(), recovery[1]);
    assert_eq!(house.post("/login/code", &bound, &planted).await.status, StatusCode::FORBIDDEN);
    let entered = house.post("/login/code", &bound, &with(recovery[0])).await;
    assert_eq!((entered.status, entered.location()), (StatusCode::SEE_OTHER, "/"));
    let session = format!("weir-8025={}", entered.cookie("weir-8025").unwrap());
    assert_eq!(house.get("/", &session).await.status, StatusCode::OK);
    assert_eq!(house.post("/login/code", &bound, &with(recovery[1])).await.status, StatusCode::FORBIDDEN, "once");
    // Somebody on the machine helps whoever has lost all of it.
    house.administration.second_factor.end("olga", &Actor::new("cli:root")).await.unwrap();
    assert_eq!(house.log_in("olga", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_stream_ends_with_its_account() {
    let house = house().await;
    let session = house.as_role("olga").await;
    let request = Request::get("/live").header(header::HOST, HOST).header(header::COOKIE, &session);
    let answer = house.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.into_body();
    assert!(body.frame().await.is_some(), "it says how things are");
    house.administration.accounts.set_password("olga", "another password", &Actor::new("test")).await.unwrap();
    assert!(body.frame().await.is_none(), "and ends");
}

#[tokio::test]
async fn ones_own_password_is_changed_with_the_old_one_and_the_contact_only_by_the_link() {
    let house = house().await;
    let session = house.as_role("ann@example.org").await;
    let token = house.get("/me", &session).await.token();
    let change = |old: &str| format!("token={token}&old={}&new={}", encoded(old), encoded("a better password"));
    house.post("/me/password", &session, &change("a wrong password")).await;
    assert!(house.get("/me", &session).await.text.contains("is not right"));
    let contact = format!("token={token}&contact=eve%40example.net");
    assert_eq!(house.post("/me/contact", &session, &contact).await.status, StatusCode::FORBIDDEN);
    house.post("/me/password", &session, &change(PASSWORD)).await;
    assert_eq!(house.get("/me", &session).await.status, StatusCode::SEE_OTHER, "sessions end with the old password");
    let (answer, _) = house.log_in("ann@example.org", "a better password", "").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let secret = house.records.secrets().find_or_set(own_link::SECRET, "a secret of the site").await.unwrap();
    let key = own_link::key(&secret, Owner { identity: "ann@example.org", contact: "", situation: 0 }, u64::MAX);
    let page = house.get(&format!("/link/{key}"), "").await;
    let bound = format!("weir-8025-login={}", page.cookie("weir-8025-login").unwrap());
    let entered = house.post("/link", &bound, &format!("token={}&key={key}", page.token())).await;
    let session = format!("weir-8025={}", entered.cookie("weir-8025").unwrap());
    let token = house.get("/me", &session).await.token();
    house.post("/me/contact", &session, &format!("token={token}&contact=ann%40elsewhere.example")).await;
    assert_eq!(house.mail.users.show("ann@example.org").await.unwrap().user.contact, "ann@elsewhere.example");
    house.post("/me/password", &session, &format!("token={token}&new={}", encoded("the best password"))).await;
    let (answer, _) = house.log_in("ann@example.org", "the best password", "").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}
