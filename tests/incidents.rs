//! Tests of incidents: what went wrong is told as a story in the terminal, on the page, over the API and to the webhook, and a restart
//! changes nothing of it.

use crate::console::visitor::Visitor;
use crate::console::{Flood, INBOUND};
use crate::control::gate::{Client, Site, Up, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use weir_peers::Clamd;

/// What a worm might write as its subject.
const TRICK: &str = "<script>window.ran=1</script>\u{1b}[2J";

/// A webhook that keeps what it receives.
struct Hook {
    address: String,
    heard: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    fn start() -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                let event = loop {
                    let read = stream.read(&mut piece).unwrap_or(0);
                    request.extend_from_slice(&piece[..read]);
                    let text = String::from_utf8_lossy(&request);
                    let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                    if body.is_some() || read == 0 {
                        break body;
                    }
                };
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                kept.lock().expect("the list").extend(event);
            }
        });
        Hook { address, heard }
    }

    /// The calls about incidents that were opened, each only once.
    fn opened(&self) -> Vec<String> {
        let heard = self.heard.lock().expect("the list");
        let opened = heard.iter().filter(|event| event["event"] == "incident.opened");
        opened.map(|event| event["detail"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Waits for an incident of this kind and returns its story.
fn story(site: &Site, kind: &str) -> Value {
    wait_for(&format!("the story of kind {kind}"), || {
        let list = site.json(&["incidents"]);
        list.as_array()?.iter().find(|incident| incident["kind"] == kind).cloned()
    })
}

fn said(story: &Value) -> String {
    let lines = story["seen"].as_array().into_iter().flatten();
    lines.filter_map(|line| line["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Lets a worm send from the account `demo`.
fn outbreak(up: &Up) {
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("the demo user");
    for number in 0..40 {
        let to = format!("stranger{number}@localhost");
        if !client.mail("demo@localhost", &[to.as_str()], TRICK).starts_with("250") {
            return;
        }
    }
}

/// The parts of a story that a restart must not change.
fn lasting(story: &Value) -> Value {
    serde_json::json!([
        story["id"],
        story["kind"],
        story["title"],
        story["subject"],
        story["began"],
        story["seen"][0],
        story["people_did"]
    ])
}

#[test]
fn an_account_a_flood_and_a_scanner_become_stories_that_a_restart_does_not_change() {
    let mut clamd = Clamd::start();
    let hook = Hook::start();
    let scanner = format!("[scan.clamav]\naddresses = [\"unix:{}\"]\n", clamd.socket().display());
    let site = Site::new(&format!("{INBOUND}{scanner}[notices]\nwebhook = \"http://{}/\"\n", hook.address));
    let up = site.up_with(&["--demo"]);
    assert!(site.weir(&["incidents"]).ok().contains("No incidents."));
    assert!(site.weir(&["status"]).stdout.contains("none open"));

    outbreak(&up);
    let worm = story(&site, "stopped");
    assert_eq!((&worm["subject"], &worm["title"]), (&"demo".into(), &"Account stopped".into()), "{worm}");
    let told = said(&worm);
    assert!(told.contains("demo is stopped since") && told.contains("have the same subject"), "{told}");

    let flood = Flood::of(&up.listener("web"), 80);
    let flooded = story(&site, "flood");
    flood.stop();
    assert!(said(&flooded).contains("Under attack from"), "{flooded}");

    clamd.kill();
    let down = story(&site, "scanner");
    assert!(said(&down).contains("The scanner clamav does not answer"), "{down}");

    site.weir(&["user", "lock", "demo", "--reason", "a worm"]).ok();
    let worm_id = worm["id"].to_string();
    let acts = wait_for("what people did", || {
        let story = site.json(&["incidents", &worm_id]);
        story["people_did"].as_array().filter(|acts| !acts.is_empty()).cloned()
    });
    assert_eq!((&acts[0]["action"], acts.len()), (&"user.lock".into(), 1), "{acts:?}");

    let printed = site.weir(&["incidents", &worm_id]).ok();
    for part in [
        "Account stopped: demo",
        "What happened",
        "What Weir did",
        "What people did",
        "user.lock demo",
        "What it cost others",
    ] {
        assert!(printed.contains(part), "{part:?} in\n{printed}");
    }
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    site.weir(&["incidents", "999"]).refused(&["there is no incident \"999\"", "weir incidents"]);
    assert!(site.weir(&["status"]).stdout.contains("open incidents: Account stopped: demo"));

    wait_for("the webhook", || (hook.opened().len() >= 3).then_some(()));
    let opened = hook.opened();
    for headline in ["Account stopped: demo", "Flood on a web backend", "Scanner down"] {
        assert_eq!(opened.iter().filter(|detail| detail.contains(headline)).count(), 1, "{headline}: {opened:?}");
    }

    let base = format!("http://{}", up.listener("console"));
    let admin = Visitor::log_in(&base, &[], ("admin", &up.admin_password()));
    let page = admin.get("/incidents");
    for headline in ["Account stopped: demo", "Flood on a web backend: ", "Scanner down"] {
        assert!(page.contains(headline), "{headline}: {page}");
    }
    let page = admin.get(&format!("/incidents/{worm_id}"));
    assert!(page.contains("&lt;script&gt;window.ran=1") && !page.contains("<script>window"), "{page}");
    assert!(page.contains("<b>cli:") && page.contains("href=\"/throttle/users/demo\""), "{page}");
    assert!(admin.get("/").contains("open incidents</a>"));
    let answer: Value = serde_json::from_str(&admin.get(&format!("/api/v1/incidents/{worm_id}"))).expect("JSON");
    assert_eq!(lasting(&answer), lasting(&site.json(&["incidents", &worm_id])));
    assert!(admin.get("/incidents/x").contains("here is no incident"));

    let ids: Vec<String> = [&worm, &flooded, &down].iter().map(|story| story["id"].to_string()).collect();
    let all = || ids.iter().map(|id| lasting(&site.json(&["incidents", id]))).collect::<Vec<_>>();
    let before = all();
    up.signal("TERM");
    up.ended();
    assert_eq!(all(), before, "at rest");
    let up = site.up_with(&["--demo"]);
    assert_eq!(all(), before, "and when it runs again");
    // The account is still stopped. That is the same incident, so nobody is told again.
    let admin = Visitor::log_in(&format!("http://{}", up.listener("console")), &[], ("admin", &up.admin_password()));
    wait_for("a look", || admin.get("/").contains("open incident").then_some(()));
    assert_eq!(site.json(&["incidents"]).as_array().map(Vec::len), Some(3));
    up.signal("TERM");
    up.ended();

    // A day later the stories are the same, and the page shows them.
    let mut tomorrow = site.command(&["up", "--demo-user", "--demo"]);
    tomorrow.env("LD_PRELOAD", faketime()).env("FAKETIME", "+86400").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let up = Site::start(tomorrow);
    assert_eq!(all(), before, "a day later");
    let admin = Visitor::log_in(&format!("http://{}", up.listener("console")), &[], ("admin", &up.admin_password()));
    wait_for("a look", || admin.get("/").contains("open incident").then_some(()));
    let page = admin.get("/incidents");
    for headline in ["Account stopped: demo", "Flood on a web backend: ", "Scanner down"] {
        assert!(page.contains(headline), "{headline}: {page}");
    }
    let began = worm["began"].as_str().expect("a time");
    assert!(admin.get(&format!("/incidents/{worm_id}")).contains(began), "{began}");
    site.weir(&["user", "unlock", "demo"]).ok();
    let audit = site.json(&["audit"]);
    let unlocked = audit[0]["at"].as_str().expect("a time");
    assert_ne!(unlocked[..10], began[..10], "the clock is a day later: {audit}");
}

/// The library that gives a program another time.
fn faketime() -> std::path::PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("a folder").filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).filter(|file| file.exists());
    found.next().expect("libfaketime is installed")
}
