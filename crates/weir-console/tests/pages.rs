//! The pages as a browser meets them, and as somebody meets them who is not a browser: who gets in, what they may, what a
//! stranger's page can make a browser do.
#![allow(missing_docs)]

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use tower::ServiceExt;
use weir_console::api;
use weir_console::site::{Gates, SettingView, Site};
use weir_mail::desk::{Actor, Desk, NewAccount, NewUser, Role};
use weir_mail::gate::{Foundation, Settings, desk_at_rest};
use weir_mail::own_link;
use weir_store::folder::DataFolder;
use weir_store::records::{Changes, Fate, HeldFilter, HeldRow, QuarantineFilter, QuarantineRow, Records};

const HOST: &str = "127.0.0.1:8025";
const NAME: &str = "console.example.org";
const PASSWORD: &str = "correct horse battery";

struct House {
    _home: tempfile::TempDir,
    desk: Desk,
    records: Records,
    router: Router,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    /// The value of a cookie that was set.
    fn cookie(&self, name: &str) -> Option<String> {
        let lines = self.headers.get_all(header::SET_COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.filter_map(|line| line.split(';').next()?.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    }

    /// The token in the page's forms.
    fn token(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"").expect("a form");
        rest.split('"').next().expect("a value").to_owned()
    }

    fn location(&self) -> &str {
        self.headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default()
    }
}

async fn house() -> House {
    let home = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(home.path().join("data")).unwrap();
    let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
    let desk = desk_at_rest(&foundation, &Settings::default()).unwrap();
    let actor = Actor::new("test");
    for (name, role) in [("root", Role::Admin), ("olga", Role::Operator)] {
        let new = NewAccount { name: name.into(), role, password: PASSWORD.into() };
        desk.account_add(new, &actor).await.unwrap();
    }
    for name in ["ann@example.org", "<b>bob</b>"] {
        let addresses = vec!["x@example.org".to_owned()];
        let new = NewUser { name: name.into(), password: Some(PASSWORD.into()), addresses, ..NewUser::default() };
        desk.user_add(new, &actor).await.unwrap();
    }
    let setting = SettingView {
        section: "store".into(),
        key: "records".into(),
        value: "\"postgres://weir:hunter2@db/weir\"".into(),
        default: "\"\"".into(),
        bounds: "a URL".into(),
        about: "Where records are".into(),
        line: Some(3),
    };
    let gates = Gates {
        desk: desk.clone(),
        web: None,
        lab: None,
        settings: vec![setting],
        settings_file: Some("/etc/weir/weir.toml".into()),
        hosts: vec!["console.example.org".into()],
    };
    let site = Site::new(gates, HOST.parse().unwrap());
    let router = weir_console::router(site, api::router(desk.clone(), None, None));
    House { _home: home, desk, records: foundation.records.clone(), router }
}

impl House {
    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.send(Method::GET, path, &[("cookie", cookie)], "").await
    }

    async fn post(&self, path: &str, cookie: &str, body: &str) -> Answer {
        self.send(Method::POST, path, &[("cookie", cookie)], body).await
    }

    /// Logs in; the answer, and the cookie to go on with.
    async fn log_in(&self, name: &str, password: &str, cookie: &str) -> (Answer, String) {
        let page = self.get("/login", cookie).await;
        let bound = page.cookie("weir-8025-login").expect("a form is bound to its browser");
        let body = format!("token={}&name={}&password={}", page.token(), encoded(name), encoded(password));
        let cookies = format!("weir-8025-login={bound}; {cookie}");
        let answer = self.post("/login", &cookies, &body).await;
        let session = answer.cookie("weir-8025").map(|id| format!("weir-8025={id}")).unwrap_or_default();
        (answer, session)
    }

    async fn as_role(&self, name: &str) -> String {
        let (answer, session) = self.log_in(name, PASSWORD, "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        session
    }
}

const MESSAGES: [&str; 3] = ["38exjmr5c8wmgwtgr3zn", "38exjmr5c8wmgwtgr3zp", "38exjmr5c8wmgwtgr3zq"];

fn quarantined(message: &str, queue: &str) -> QuarantineRow {
    QuarantineRow {
        message: message.into(),
        place: 0,
        relay: "here".into(),
        queue: queue.into(),
        fate: Fate::Held,
        recipient: "ann@example.org".into(),
        sender: "eve@example.net".into(),
        subject: "win".into(),
        source: "192.0.2.1".into(),
        owner: String::new(),
        origin: "received".into(),
        size: 100,
        at: 5,
        reason: "why".into(),
        decided_by: String::new(),
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

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
    let trail = house.desk.audit_trail("console", 100).await.unwrap();
    for action in ["console.login", "console.login.failed", "console.logout"] {
        assert!(trail.iter().any(|line| line.action == action && line.actor == "console:root"), "{action}");
    }
}

#[tokio::test]
async fn a_new_password_or_a_removed_account_ends_sessions() {
    let house = house().await;
    let (one, actor) = (house.as_role("olga").await, Actor::new("test"));
    house.desk.account_password("olga", "another password", &actor).await.unwrap();
    assert_eq!(house.get("/", &one).await.status, StatusCode::SEE_OTHER);
    let (_, two) = house.log_in("olga", "another password", "").await;
    assert_eq!(house.get("/", &two).await.status, StatusCode::OK);
    house.desk.account_remove("olga", &actor).await.unwrap();
    assert_eq!(house.get("/", &two).await.status, StatusCode::SEE_OTHER);
    assert!(house.desk.account_remove("root", &actor).await.is_err(), "the last administrator stays");
}

#[tokio::test]
async fn logins_cannot_be_tried_out() {
    let house = house().await;
    for _ in 0..5 {
        assert_eq!(house.log_in("root", "a guess at it", "").await.0.status, StatusCode::FORBIDDEN);
    }
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
async fn what_changes_something_must_come_from_a_page_of_ours() {
    let house = house().await;
    let session = house.as_role("root").await;
    let token = house.get("/throttle/users/ann%40example.org", &session).await.token();
    let (lock, right) = ("/throttle/users/ann%40example.org/lock", format!("token={token}&reason=because"));
    let other = house.get("/", &house.as_role("root").await).await.token();
    for (body, headers) in [
        ("reason=because".to_owned(), vec![]),
        ("token=&reason=because".to_owned(), vec![]),
        (format!("token={other}&reason=because"), vec![]),
        (right.clone(), vec![("origin", "http://evil.example")]),
        (right.clone(), vec![("origin", "null")]),
        (right.clone(), vec![("sec-fetch-site", "cross-site")]),
        (right.clone(), vec![("sec-fetch-site", "same-site")]),
    ] {
        let headers = [vec![("cookie", session.as_str())], headers].concat();
        let answer = house.send(Method::POST, lock, &headers, &body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?} {body}");
    }
    assert_eq!(house.desk.user_show("ann@example.org").await.unwrap().user.state, "active");
    let answer = house.post(lock, &session, &right).await;
    assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "/throttle/users/ann%40example.org"));
    assert_eq!(house.desk.user_show("ann@example.org").await.unwrap().user.state, "locked");
    let page = house.get(answer.location(), &session).await;
    assert!(page.text.contains("is locked") && page.text.contains("because"), "{}", page.text);
    assert!(!house.get("/throttle", &session).await.text.contains("class=\"said"), "it is said once");
    let trail = house.desk.audit_trail("ann@example.org", 1).await.unwrap();
    assert_eq!((trail[0].actor.as_str(), trail[0].action.as_str()), ("console:root", "user.lock"));
    // A login form, too, belongs to the browser that asked for it.
    let planted = format!("token=x&name=root&password={}", encoded(PASSWORD));
    assert_eq!(house.post("/login", "weir-8025-login=y", &planted).await.status, StatusCode::FORBIDDEN);
    assert_eq!(house.post("/login", "", &planted).await.status, StatusCode::FORBIDDEN);
    // GET changes nothing.
    assert_ne!(house.get(lock, &session).await.status, StatusCode::OK);
}

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
        ("/feeds", [200, 200, 403]),
        ("/web", [200, 200, 403]),
        ("/lab", [200, 200, 403]),
        ("/search?q=ann%40example.org", [200, 200, 403]),
        ("/audit", [200, 200, 403]),
        ("/settings", [200, 403, 403]),
        ("/me", [200, 200, 200]),
        ("/nowhere", [404, 403, 403]),
        ("/api/v1/users", [200, 200, 403]),
        ("/api/v1/users/ann%40example.org", [200, 200, 403]),
        ("/api/v1/users/nobody", [404, 404, 403]),
        ("/api/v1/console/accounts", [200, 403, 403]),
        ("/api/v1/console/tokens", [200, 403, 403]),
        ("/account", [200, 200, 403]),
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
async fn a_name_that_is_not_ours_is_refused() {
    let house = house().await;
    let session = house.as_role("root").await;
    for (host, expected) in [
        (HOST, 200),
        ("localhost:8025", 200),
        ("LOCALHOST:8025", 200),
        ("console.example.org", 200),
        ("console.example.org:443", 200),
        ("evil.example", 421),
        ("evil.example:8025", 421),
        ("127.0.0.1.evil.example:8025", 421),
        ("localhost", 421),
        ("", 421),
    ] {
        let answer = house.send(Method::GET, "/", &[("host", host), ("cookie", session.as_str())], "").await;
        assert_eq!(answer.status.as_u16(), expected, "{host}");
    }
    let page = house.send(Method::GET, "/login", &[("host", "console.example.org")], "").await;
    assert!(page.headers[header::SET_COOKIE].to_str().unwrap().contains("; Secure"));
    // Whoever comes through a proxy and calls us by our own address is not on this machine.
    for path in ["/metrics", "/login", "/"] {
        let headers = [("host", HOST), ("x-forwarded-for", "192.0.2.9"), ("cookie", session.as_str())];
        assert_eq!(house.send(Method::GET, path, &headers, "").await.status, StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
    let figures = house.send(Method::GET, "/metrics", &[("host", "console.example.org")], "").await;
    assert_eq!(figures.status, StatusCode::SEE_OTHER);
    let text = house.send(Method::GET, "/metrics", &[("host", HOST)], "").await.text;
    assert!(text.contains("\nweir_throttle_users 2\n") && !text.contains("ann@"), "{text}");
}

#[tokio::test]
async fn every_answer_forbids_what_is_not_ours_and_names_are_text() {
    let house = house().await;
    let session = house.as_role("root").await;
    for path in [
        "/",
        "/throttle",
        "/throttle/users/%3Cb%3Ebob%3C%2Fb%3E",
        "/nowhere",
        "/style.css",
        "/api/v1/status",
        "/search?q=%3Cscript%3E",
    ] {
        let answer = house.get(path, &session).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        if answer.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/html") {
            for inline in ["<b>bob", "<script>", " style=", " onclick=", "<style"] {
                assert!(!answer.text.contains(inline), "{path} has {inline}");
            }
            assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store", "{path}");
        }
    }
    assert!(house.get("/throttle", &session).await.text.contains("&lt;b&gt;bob&lt;/b&gt;"));
    let quiet = house.get("/", &session).await.text;
    assert!(quiet.contains("Everything is all right. Nothing needs you."), "{quiet}");
}

#[tokio::test]
async fn an_operator_releases_no_infected_mail_in_any_way() {
    let house = house().await;
    let rows = [quarantined(MESSAGES[0], "virus"), quarantined(MESSAGES[1], "spam"), quarantined(MESSAGES[2], "spam")];
    house.records.quarantine_add(&rows).await.unwrap();
    let session = house.as_role("olga").await;
    let page = house.get(&format!("/quarantine/{}", MESSAGES[0]), &session).await;
    assert!(page.text.contains("released by administrators only"), "{}", page.text);
    let token = page.token();
    let reason = format!("token={token}&action=release&reason=because+I+can");
    for chosen in [format!("&message={}", MESSAGES[0]), format!("&message={}&message={}", MESSAGES[1], MESSAGES[0])] {
        house.post("/quarantine/decide", &session, &format!("{reason}{chosen}")).await;
        assert!(house.get("/quarantine", &session).await.text.contains("Not done."), "{chosen}");
    }
    let json = ("content-type", "application/json");
    let with_token = [("cookie", session.as_str()), json, ("x-weir-token", token.as_str())];
    for selection in [format!("{{\"messages\":[\"{}\"]}}", MESSAGES[0]), "{\"queue\":\"virus\"}".into()] {
        let body = format!("{{\"selection\":{selection}}}");
        let answer = house.send(Method::POST, "/api/v1/quarantine/release", &with_token, &body).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text);
    }
    // Over the API an operator may release the rest.
    let body = "{\"selection\":{\"all\":true}}";
    let answer = house.send(Method::POST, "/api/v1/quarantine/release", &with_token, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let left = house.records.quarantine(&QuarantineFilter::default(), 9).await.unwrap().rows;
    assert_eq!(left.iter().map(|row| row.queue.as_str()).collect::<Vec<_>>(), ["virus"], "and that one stays");
}

#[tokio::test]
async fn nobody_deletes_the_mail_of_another() {
    let house = house().await;
    let bob = ["<b>bob</b>".to_owned()];
    let row = HeldRow {
        identity: bob[0].clone(),
        entry: 0,
        fate: Fate::Held,
        message: MESSAGES[0].into(),
        relay: "here".into(),
        recipient: "eve@example.net".into(),
        place: 0,
        sender: "x@example.org".into(),
        subject: "secret".into(),
        source: "192.0.2.1".into(),
        size: 10,
        held_at: 5,
    };
    let hold = Changes { hold: vec![row], ..Changes::default() };
    house.records.decide(&bob, |_| (hold, ())).await.unwrap();
    let session = house.as_role("ann@example.org").await;
    let page = house.get("/me", &session).await;
    assert!(page.text.contains("None of your mail is held") && !page.text.contains("secret"), "{}", page.text);
    let body = format!("token={}&message={}&user={}", page.token(), MESSAGES[0], encoded(&bob[0]));
    let answer = house.post("/me/delete", &session, &body).await;
    assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "/me"));
    assert!(house.get("/me", &session).await.text.contains("Not done."));
    assert_eq!(
        house.post("/me/release", &session, &body).await.status,
        StatusCode::FORBIDDEN,
        "a password is not enough"
    );
    let filter = HeldFilter { identity: bob[0].clone(), ..HeldFilter::default() };
    assert_eq!(house.records.held(&filter, 9).await.unwrap().len(), 1, "it is still there");
}

#[tokio::test]
async fn tokens_reach_as_far_as_their_scope_and_until_they_are_revoked() {
    let house = house().await;
    let session = house.as_role("root").await;
    let form = house.get("/settings", &session).await.token();
    let mut tokens = Vec::new();
    for scope in ["read", "operate", "admin"] {
        let body = format!("token={form}&name=for-{scope}&scope={scope}&days=1&back=/settings");
        assert_eq!(house.post("/settings/tokens", &session, &body).await.status, StatusCode::SEE_OTHER);
        let said = house.get("/settings", &session).await.text;
        let (_, rest) = said.split_once("weir_").expect("it is shown once");
        tokens.push(format!("Bearer weir_{}", &rest[..64]));
        assert!(!house.get("/settings", &session).await.text.contains("weir_"), "and only once");
    }
    let kept = house.records.kept("", "console.tokens").await.unwrap().unwrap();
    assert!(tokens.iter().all(|token| !kept.contains(&token[12..])), "only digests are kept: {kept}");
    let new = "{\"name\":\"carl\",\"addresses\":[\"carl@example.org\"]}";
    for (method, path, body, expected) in [
        (Method::GET, "/api/v1/users/ann%40example.org", "", [200, 200, 200]),
        (Method::GET, "/api/v1/openapi.json", "", [200, 200, 200]),
        (Method::POST, "/api/v1/users/ann%40example.org/lock", "{\"reason\":\"a leak\"}", [403, 200, 200]),
        (Method::POST, "/api/v1/users", new, [403, 403, 201]),
        (Method::GET, "/api/v1/console/tokens", "", [403, 403, 200]),
        (Method::POST, "/api/v1/backup", "{\"folder\":\"/tmp/x\"}", [403, 403, 403]),
        (Method::GET, "/settings", "", [303, 303, 303]),
        (Method::POST, "/throttle/decide", "", [303, 303, 303]),
    ] {
        for (token, expected) in tokens.iter().zip(expected) {
            let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
            let answer = house.send(method.clone(), path, &headers, body).await;
            assert_eq!(answer.status.as_u16(), expected, "{method} {path}: {}", answer.text);
        }
    }
    let public = [("host", NAME), ("x-forwarded-for", "192.0.2.9"), ("authorization", tokens[0].as_str())];
    assert_eq!(
        house.send(Method::GET, "/metrics", &public, "").await.status,
        StatusCode::OK,
        "for Prometheus elsewhere"
    );
    let trail = house.desk.audit_trail("ann@example.org", 1).await.unwrap();
    assert_eq!((trail[0].actor.as_str(), trail[0].action.as_str()), ("token:for-admin", "user.lock"));
    house.post("/settings/tokens/revoke", &session, &format!("token={form}&name=for-admin")).await;
    for token in [tokens[2].as_str(), "Bearer weir_0", "Bearer ", "bearer"] {
        let answer = house.send(Method::GET, "/api/v1/status", &[("authorization", token)], "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{token}");
    }
    let trail = house.desk.audit_trail("for-admin", 9).await.unwrap();
    assert_eq!(trail.iter().map(|line| line.action.as_str()).collect::<Vec<_>>(), ["token.revoke", "token.add"]);
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
    let house = house().await;
    let session = house.as_role("olga").await;
    let token = house.get("/account", &session).await.token();
    let begun = house.post("/account/codes/begin", &session, &format!("token={token}")).await.text;
    let (_, rest) = begun.split_once("<code class=\"secret\">").expect("a secret");
    let secret: String = rest.split('<').next().unwrap().split(' ').collect();
    assert!(begun.contains("otpauth://totp/Weir:olga?secret="), "{begun}");
    // Nothing changes before a first code: a lost secret shuts nobody out.
    assert_eq!(house.log_in("olga", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
    house.post("/account/codes/confirm", &session, &format!("token={token}&code=000000")).await;
    assert!(house.get("/account", &session).await.text.contains("This code is not right"));
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
    let planted = format!("token={}&step=planted&code={}", asked.token(), recovery[1]);
    assert_eq!(house.post("/login/code", &bound, &planted).await.status, StatusCode::FORBIDDEN);
    let entered = house.post("/login/code", &bound, &with(recovery[0])).await;
    assert_eq!((entered.status, entered.location()), (StatusCode::SEE_OTHER, "/"));
    let session = format!("weir-8025={}", entered.cookie("weir-8025").unwrap());
    assert_eq!(house.get("/", &session).await.status, StatusCode::OK);
    assert_eq!(house.post("/login/code", &bound, &with(recovery[1])).await.status, StatusCode::FORBIDDEN, "once");
    // Somebody on the machine helps whoever has lost all of it.
    house.desk.second_factor_end("olga", &Actor::new("cli:root")).await.unwrap();
    assert_eq!(house.log_in("olga", PASSWORD, "").await.0.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn the_link_of_a_notice_leads_to_ones_own_page_and_no_further() {
    let house = house().await;
    let actor = Actor::new("test");
    let contact = |to: &str| weir_mail::desk::Change { contact: Some(to.into()), ..Default::default() };
    house.desk.user_set("ann@example.org", &contact("ann@elsewhere.example"), &actor).await.unwrap();
    let secret = house.records.secret(own_link::SECRET, "a secret of the site").await.unwrap();
    let key = |name: &str, contact: &str| own_link::key(&secret, name, contact, u64::MAX);
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
    let trail = house.desk.audit_trail("console", 1).await.unwrap();
    assert!(trail[0].detail.contains("by the link of a notice"), "{trail:?}");
    // An account that is made under the same name is not theirs.
    let new = NewAccount { name: "ann@example.org".into(), role: Role::Admin, password: PASSWORD.into() };
    house.desk.account_add(new, &actor).await.unwrap();
    assert_eq!(house.get("/me", &session).await.status, StatusCode::SEE_OTHER);
    assert_eq!(house.get(&format!("/link/{good}"), "").await.status, StatusCode::NOT_FOUND);
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
    house.desk.account_password("olga", "another password", &Actor::new("test")).await.unwrap();
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
    let secret = house.records.secret(own_link::SECRET, "a secret of the site").await.unwrap();
    let page = house.get(&format!("/link/{}", own_link::key(&secret, "ann@example.org", "", u64::MAX)), "").await;
    let bound = format!("weir-8025-login={}", page.cookie("weir-8025-login").unwrap());
    let key = own_link::key(&secret, "ann@example.org", "", u64::MAX);
    let entered = house.post("/link", &bound, &format!("token={}&key={key}", page.token())).await;
    let session = format!("weir-8025={}", entered.cookie("weir-8025").unwrap());
    let token = house.get("/me", &session).await.token();
    house.post("/me/contact", &session, &format!("token={token}&contact=ann%40elsewhere.example")).await;
    assert_eq!(house.desk.user_show("ann@example.org").await.unwrap().user.contact, "ann@elsewhere.example");
    house.post("/me/password", &session, &format!("token={token}&new={}", encoded("the best password"))).await;
    let (answer, _) = house.log_in("ann@example.org", "the best password", "").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
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
    assert!(said(&olga, "/rules/add", &format!("what=yara&about=x&yara={rule}")).await.contains("by administrators"));
    assert!(said(&root, "/rules/add", "what=yara&about=x&yara=rule").await.contains("Not done."));
    let made = said(&root, "/rules/add", &format!("what=yara&about=x&yara={rule}")).await;
    assert!(made.contains("is in force: mail in which") && made.contains("&lt;/pre&gt;&lt;script&gt;"), "{made}");
    let yara = house.desk.rule_list().await.unwrap()[1].rule;
    let remove = format!("rule={yara}");
    assert!(said(&olga, "/rules/remove", &remove).await.contains("by administrators"));
    assert!(said(&olga, "/rules/remove", "rule=1").await.contains("Rule 1 is removed"));
    assert!(said(&root, "/rules/remove", &remove).await.contains("Nobody has made a rule"));
    assert!(said(&root, "/rules/remove", &remove).await.contains("There is no rule"));
    let trail = house.desk.audit_trail("rule-1", 10).await.unwrap();
    let did: Vec<_> = trail.iter().map(|line| (line.action.as_str(), line.actor.as_str())).collect();
    assert_eq!(did, [("rule.remove", "console:olga"), ("rule.add", "console:olga")]);
    let (_, ann) = house.log_in("ann@example.org", PASSWORD, "").await;
    assert_eq!(house.get("/rules", &ann).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_user_decides_about_spam_to_themselves_and_nothing_else() {
    let house = house().await;
    let mut rows = vec![
        quarantined(MESSAGES[0], "spam"),
        quarantined(MESSAGES[1], "virus"),
        QuarantineRow { recipient: "eve@example.org".into(), ..quarantined(MESSAGES[2], "spam") },
    ];
    for row in &mut rows {
        if row.recipient == "ann@example.org" {
            row.recipient = "x@example.org".into();
        }
    }
    house.records.quarantine_add(&rows).await.unwrap();
    let (_, ann) = house.log_in("ann@example.org", PASSWORD, "").await;
    let list = house.get("/me/quarantine", &ann).await;
    assert!(list.text.contains(MESSAGES[0]), "{}", list.text);
    assert!(!list.text.contains(MESSAGES[1]) && !list.text.contains(MESSAGES[2]), "{}", list.text);
    let page = house.get(&format!("/me/quarantine/{}", MESSAGES[0]), &ann).await;
    assert!(page.status == StatusCode::OK && page.text.contains("Deliver it to me"), "{}", page.text);
    for other in [MESSAGES[1], MESSAGES[2], "nothing"] {
        let page = house.get(&format!("/me/quarantine/{other}"), &ann).await;
        assert!(page.status.is_client_error(), "{other}: {}", page.text);
        let body = format!("token={}&action=release&message={other}", list.token());
        house.post("/me/quarantine", &ann, &body).await;
    }
    let body = format!("token={}&action=delete&message={}", list.token(), MESSAGES[0]);
    let done = house.post("/me/quarantine", &ann, &body).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/me/quarantine"));
    let left = house.records.quarantine(&QuarantineFilter::default(), 10).await.unwrap().rows;
    let left: Vec<&str> = left.iter().map(|row| row.message.as_str()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!left.contains(&MESSAGES[0]));
    // Who is in charge of everything has another page for it.
    let root = house.as_role("root").await;
    assert_eq!(house.get("/me/quarantine", &root).await.status, StatusCode::FORBIDDEN);
}
