//! Tests with a real Flask application that signs people in with its own session cookie: visitors who have signed in are not crowded out,
//! and a made-up cookie is worth nothing.

use super::floods::{Site, rest_of, run};
use super::waiting::flood;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use weir_peers::Gunicorn;

const APP: &str = r#"
import time
from flask import Flask, request, session
app = Flask(__name__)
app.secret_key = "the application's own secret"

@app.post("/login")
def login():
    if request.form["password"] != "right":
        return "no", 403
    session["user"] = "ann"
    return "hello"

@app.get("/page")
def page():
    time.sleep(int(request.query_string or 20) / 1000)
    return "page for " + session.get("user", "nobody")
"#;

async fn send(site: &Site, from: [u8; 4], request: &str) -> String {
    let mut stream = site.connect(from).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    rest_of(&mut stream).await
}

fn login(password: &str) -> String {
    let body = format!("password={password}");
    format!(
        "POST /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn page(cookie: &str) -> String {
    format!("GET /page?1 HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n")
}

/// The cookies that the answer sets, as a browser sends them back.
fn cookies(said: &str) -> String {
    let set = said
        .lines()
        .filter_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")));
    set.filter_map(|(_, value)| value.split(';').next()).collect::<Vec<_>>().join("; ")
}

#[test]
fn who_signed_in_to_flask_is_served_at_once_while_strangers_wait() {
    run(async {
        let site = Arc::new(Site::before(Gunicorn::start_flask(APP, 4), "sign_in_cookie = \"session\"\nqueue = 40\n"));
        let refused = send(&site, [127, 1, 1, 1], &login("wrong")).await;
        assert!(refused.starts_with("HTTP/1.1 403 ") && !cookies(&refused).contains("session="), "{refused}");
        let said = send(&site, [127, 1, 1, 1], &login("right")).await;
        let signed_in = cookies(&said);
        assert!(signed_in.contains("session=") && signed_in.contains("weir="), "{said}");
        let flood = flood(&site, 120, false, "*/*");
        flood.begun().await;
        for _ in 0..10 {
            let said = send(&site, [127, 1, 1, 1], &page(&signed_in)).await;
            assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("page for ann"), "{said}");
        }
        // A cookie with that name that the application has not set makes its visitor a stranger.
        let begun = Instant::now();
        loop {
            let said = send(&site, [127, 1, 2, 1], &page("session=made-up")).await;
            if said.starts_with("HTTP/1.1 503 ") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "a made-up cookie is always served");
        }
        drop(flood);
    });
}

/// The application renews its session with every answer, as many do. The session is sold, and used from other networks with and without the
/// gate's own cookie. Each of these is served as a stranger or a newcomer, and none becomes known by it.
#[test]
fn a_sold_session_makes_one_visitor_known_and_not_one_of_every_network() {
    const NETWORKS: u8 = 12;
    run(async {
        let renewing =
            APP.replace("session[\"user\"] = \"ann\"", "session[\"user\"] = \"ann\"\n    session.permanent = True");
        let site = Site::before(Gunicorn::start_flask(&renewing, 4), "sign_in_cookie = \"session\"\n");
        let home = cookies(&send(&site, [127, 1, 1, 1], &login("right")).await);
        let session = home.split("; ").find(|cookie| cookie.starts_with("session=")).unwrap().to_owned();
        // How much the server worked for known visitors, newcomers and strangers.
        let served = || {
            let status = super::json(site.up.weir(&["web", "status", "--json"]));
            let by_standing = &status["backends"][0]["queue"]["counters"]["service_by_standing_s"];
            [0, 1, 2].map(|standing| by_standing[standing].as_f64().unwrap())
        };
        let before = served();
        for brought in [&session, &home] {
            for number in 0..NETWORKS {
                let from = [127, 6, number, 1];
                let said = send(&site, from, &page(brought)).await;
                let given = cookies(&said);
                assert!(said.ends_with("page for ann") && given.contains("session="), "it is renewed: {said}");
                assert!(given.contains("weir="), "{said}");
                let said = send(&site, from, &page(&given)).await;
                assert!(said.ends_with("page for ann"), "{said}");
            }
        }
        let after = served();
        assert!(after[0] <= before[0], "somebody is known by a session of another network: {before:?} {after:?}");
        assert!(after[1] > before[1] && after[2] > before[2], "{before:?} {after:?}");
        assert!(send(&site, [127, 1, 1, 1], &page(&home)).await.ends_with("page for ann"));
        assert!(served()[0] > after[0], "its owner is known");
    });
}
