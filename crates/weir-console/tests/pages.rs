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
use weir_store::folder::DataFolder;

const HOST: &str = "127.0.0.1:8025";
const PASSWORD: &str = "correct horse battery";

struct House {
    _home: tempfile::TempDir,
    desk: Desk,
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
    let router = weir_console::router(site, api::router(desk.clone()));
    House { _home: home, desk, router }
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
