//! Tests of two front-ends for one server, with a relay and with NATS: a visitor who is known at one is known at the other, and one who
//! waited at one has the same place at the other.

use super::floods::{Site, run};
use super::recipes::{free_address, key, peers, start, until};
use super::waiting::{Browser, flood};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use weir_peers::Gunicorn;

const APP: &str = r#"
import time
def app(environ, start):
    time.sleep(int(environ.get("QUERY_STRING", "") or 20) / 1000)
    fields = [("Content-Length", "4")]
    if environ["PATH_INFO"] == "/login":
        fields.append(("Set-Cookie", "sessionid=it-is-me; HttpOnly"))
    start("200 OK", fields)
    return [b"page"]
"#;

fn two_front_ends(key: &Path, carrier: &str, server: &Gunicorn) -> [Arc<Site>; 2] {
    ["one", "two"].map(|name| {
        let more = format!(
            "queue = 40\nwaiting_page_after = \"1s\"\nsign_in_cookie = \"sessionid\"\n[web.identity]\nsecret_file = {:?}\n[web.exchange]\nname = \
             \"{name}\"\n{carrier}\n",
            key.display().to_string()
        );
        Arc::new(Site::with_servers(server.place(), &more))
    })
}

async fn play([one, two]: [Arc<Site>; 2]) {
    until("both to meet", || peers(&one.up) == 1 && peers(&two.up) == 1);
    let said = one.ask([127, 1, 1, 1], "/login?1").await;
    let cookie = said.split("set-cookie: weir=").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    let mut known = Browser::at([127, 1, 1, 1]);
    known.cookie = Some(format!("weir={cookie}"));
    // Both are flooded from new networks.
    let floods = [flood(&one, 80, false, "text/html"), flood(&two, 80, false, "text/html")];
    for flood in &floods {
        flood.begun().await;
    }
    let mut newcomer = Browser::at([127, 5, 5, 1]);
    while newcomer.cookie.is_none() {
        newcomer.ask(&one).await;
    }
    newcomer.get_in(&two).await;
    let status = super::json(two.up.weir(&["web", "status", "--json"]));
    assert!(status["backends"][0]["queue"]["room"]["let_in"].as_u64().unwrap() >= 1, "{status}");
    let said = known.ask(&two).await;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "who signed in at one is known at the other: {said}");
}

#[test]
fn standing_and_places_are_shared_over_a_relay() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (key, relay) = (key(folder.path()), free_address());
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["hitserver", "--listen", &relay.to_string(), "--key-file"]).arg(&key);
        let _hitserver = start("weir hitserver", &mut command);
        let server = Gunicorn::start(APP, 4);
        play(two_front_ends(&key, &format!("relays = [\"{relay}\"]"), &server)).await;
    });
}

#[test]
fn standing_and_places_are_shared_over_nats() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (key, nats) = (key(folder.path()), weir_peers::Nats::start());
        let server = Gunicorn::start(APP, 4);
        play(two_front_ends(&key, &format!("nats = [\"nats://{}\"]", nats.address()), &server)).await;
    });
}
