//! What a stranger's page can make a browser do, and what an answer allows.

use super::house::{HOST, PASSWORD, encoded, house};
use axum::http::{Method, StatusCode, header};

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
    assert_eq!(house.mail.users.show("ann@example.org").await.unwrap().user.state, "active");
    let answer = house.post(lock, &session, &right).await;
    assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "/throttle/users/ann%40example.org"));
    assert_eq!(house.mail.users.show("ann@example.org").await.unwrap().user.state, "locked");
    let page = house.get(answer.location(), &session).await;
    assert!(page.text.contains("is locked") && page.text.contains("because"), "{}", page.text);
    assert!(!house.get("/throttle", &session).await.text.contains("class=\"said"), "it is said once");
    let trail = house.administration.audit.newest("ann@example.org", 1).await.unwrap();
    assert_eq!((trail[0].actor.as_str(), trail[0].action.as_str()), ("console:root", "user.lock"));
    // A login form, too, belongs to the browser that asked for it.
    let planted = format!("token=x&name=root&password={}", encoded(PASSWORD));
    assert_eq!(house.post("/login", "weir-8025-login=y", &planted).await.status, StatusCode::FORBIDDEN);
    assert_eq!(house.post("/login", "", &planted).await.status, StatusCode::FORBIDDEN);
    // GET changes nothing.
    assert_ne!(house.get(lock, &session).await.status, StatusCode::OK);
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
    assert!(quiet.contains("All is well. Nothing needs you."), "{quiet}");
}
