//! The API as a client meets it: problems with hints, bounds, the control socket.
#![allow(missing_docs)]

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tower::ServiceExt;
use weir_console::api::router;
use weir_console::gates::Gates;
use weir_console::socket::{self, ControlSocket};
use weir_foundation::administration::Administration;
use weir_foundation::passwords::Passwords;
use weir_foundation::supervision::GateStates;
use weir_foundation::{Actor, Foundation, StoreSettings};
use weir_mail::gate::{Settings, operations_at_rest};
use weir_store::folder::DataFolder;

async fn api() -> (tempfile::TempDir, Router) {
    let home = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(home.path().join("data")).unwrap();
    let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
    let passwords = Passwords::new(1, [7; 32]).unwrap();
    let mail = operations_at_rest(&foundation, passwords.clone(), &Settings::default());
    let store = StoreSettings { backup_due: Duration::ZERO, ..StoreSettings::default() };
    let administration = Administration::new(&foundation, passwords, Some(mail.backup.clone()), &store);
    (
        home,
        router(&Gates {
            administration,
            mail,
            web: None,
            lab: None,
            states: GateStates::default(),
            sessions: Arc::default(),
            certificates: Arc::default(),
            demo: false,
        }),
    )
}

async fn ask(router: &Router, method: Method, path: &str, body: impl Into<Body>) -> (StatusCode, String, Value) {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api/v1{path}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap();
    request.extensions_mut().insert(Actor::new("test"));
    let answer = router.clone().oneshot(request).await.unwrap();
    let kind = answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, kind, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn a_user_is_made_looked_at_and_changed() {
    let (_home, api) = api().await;
    let ann = json!({ "name": "ann/x@example.org", "password": "correct horse" }).to_string();
    let (status, _, page) = ask(&api, Method::POST, "/users", ann.clone()).await;
    assert_eq!((status, &page["addresses"][0]), (StatusCode::CREATED, &json!("ann/x@example.org")));
    let (status, ..) = ask(&api, Method::POST, "/users", ann).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _, page) = ask(&api, Method::GET, "/users/ann%2Fx%40example.org", "").await;
    assert_eq!((status, &page["throttle"]["state"]), (StatusCode::OK, &json!("open")));
    let change = json!({ "throttle": { "stop_at": 50 } }).to_string();
    let (_, _, page) = ask(&api, Method::PATCH, "/users/ann%2Fx%40example.org", change).await;
    assert_eq!(page["throttle"]["params"]["stop_at"], 50);
    let (_, _, done) = ask(&api, Method::POST, "/users/ann%2Fx%40example.org/lock", "{\"reason\":\"x\"}").await;
    assert_eq!(done["sessions_ended"], 0);
    let (_, _, trail) = ask(&api, Method::GET, "/audit", "").await;
    assert_eq!((trail.as_array().unwrap().len(), &trail[0]["actor"]), (3, &json!("test")));
    let (_, _, status) = ask(&api, Method::GET, "/status", "").await;
    assert_eq!((&status["running"], &status["totals"]["locked"]), (&json!(false), &json!(1)));
}

#[tokio::test]
async fn what_is_wrong_is_a_problem_with_a_hint() {
    let (_home, api) = api().await;
    let big = format!("{{\"messages\":[\"{}\"]}}", "x".repeat(300 * 1024));
    for (method, path, body, expected) in [
        (Method::GET, "/nowhere", String::new(), StatusCode::NOT_FOUND),
        (Method::DELETE, "/status", String::new(), StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/users", "{".into(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/users", "{\"name\":\"ann\",\"admin\":true}".into(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::PATCH, "/users/ann", "{\"throttle\":{\"stop_at\":-1}}".into(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::GET, "/users/nobody", String::new(), StatusCode::NOT_FOUND),
        (Method::GET, "/users/%FF%FE", String::new(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::GET, "/held?colour=red", String::new(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::GET, "/audit?lines=many", String::new(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/held/release", "{}".into(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/queue/delete", "{}".into(), StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/queue/delete", big, StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/backup", "{\"folder\":\"relative\"}".into(), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let (status, kind, problem) = ask(&api, method, path, body).await;
        assert_eq!((status, kind.as_str()), (expected, "application/problem+json"), "{path}: {problem}");
        for field in ["title", "detail", "hint"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{path}: {field} in {problem}");
        }
        assert_eq!(problem["status"], expected.as_u16());
    }
}

#[tokio::test]
async fn nobody_acts_without_a_name() {
    let (_home, api) = api().await;
    let request = Request::get("/api/v1/status").body(Body::empty()).unwrap();
    assert_eq!(api.oneshot(request).await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_socket_is_private_answers_and_goes_with_its_owner() {
    let (home, api) = api().await;
    let path = home.path().join("control.sock");
    std::fs::write(&path, "what a killed process left").unwrap();
    let socket = ControlSocket::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let serving = tokio::spawn(socket.serve(api));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /api/v1/alive HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"pid\""), "{answer}");
    serving.abort();
    let _ = serving.await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_path_that_no_socket_can_have_is_explained() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("x".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let refused = ControlSocket::bind(&deep.join("control.sock")).unwrap_err().to_string();
    assert!(refused.contains("shorter data folder"), "{refused}");
}

#[test]
fn users_of_this_machine_have_names() {
    assert_eq!(socket::actor(0).as_str(), "cli:root");
    assert_eq!(socket::actor(4_000_000_000).as_str(), "cli:uid4000000000");
}

#[tokio::test]
async fn operations_of_a_gate_that_is_off_say_so_and_others_are_not_there() {
    let (_home, api) = api().await;
    let (status, _, problem) = ask(&api, Method::GET, "/web", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(problem["detail"].as_str().unwrap().starts_with("the web gate is off on this Weir ([web]"), "{problem}");
    let (_, _, problem) = ask(&api, Method::GET, "/lab", "").await;
    assert!(problem["detail"].as_str().unwrap().starts_with("the lab is off on this Weir ([lab]"), "{problem}");
    let (_, _, problem) = ask(&api, Method::GET, "/webs", "").await;
    assert_eq!(problem["detail"], "there is nothing at this address");
}

#[tokio::test]
async fn the_audit_is_asked_for_a_part_and_a_user_for_past_stops() {
    let (_home, api) = api().await;
    ask(&api, Method::POST, "/users", json!({ "name": "ann@example.org" }).to_string()).await;
    ask(&api, Method::POST, "/users/ann%40example.org/lock", "{\"reason\":\"x\"}").await;
    let lines = async |query: &str| ask(&api, Method::GET, &format!("/audit?{query}"), "").await.2;
    assert_eq!(lines("what=user.lock").await.as_array().unwrap().len(), 1);
    assert_eq!(lines("who=test&since=1h").await.as_array().unwrap().len(), 2);
    assert_eq!(lines("until=1h").await, json!([]));
    assert_eq!(lines("since=soon").await["status"], 422);
    let (status, _, stops) = ask(&api, Method::GET, "/users/ann%40example.org/stops", "").await;
    assert_eq!((status, stops), (StatusCode::OK, json!([])));
    let contact = json!({ "contact": "ann@example.org" }).to_string();
    let (status, _, problem) = ask(&api, Method::PATCH, "/users/ann%40example.org", contact).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}
