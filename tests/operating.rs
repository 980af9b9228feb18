//! Tests of operating a running Weir from the terminal: who is kept out, who is a user, which servers and networks are served.

use crate::console::INBOUND;
use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, wait_for};
use crate::harness::weir;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// The first line that a mail server sends.
fn greeting(up: &Up) -> String {
    let stream = TcpStream::connect(&up.plain).expect("it listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    line
}

/// The status line of a page from the web gate.
fn status_of_page(up: &Up) -> String {
    let mut stream = TcpStream::connect(up.listener("web")).expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn who_is_kept_out_is_seen_and_let_in_again() {
    let site = Site::new("[limits]\nfailed_logins_per_address = 3\n");
    let up = site.up();
    assert!(site.weir(&["bans", "list"]).ok().contains("No address is banned"));
    for guess in 0..3 {
        assert!(Client::login(&up.plain, "demo", &format!("wrong {guess}")).is_err());
    }
    let ban = wait_for("a ban", || site.json(&["bans", "list"]).as_array()?.first().cloned());
    assert_eq!(
        (&ban["address"], &ban["server"], &ban["offences"]),
        (&"127.0.0.1".into(), &"submission".into(), &1.into())
    );
    assert!(ban["until"].is_string() && site.weir(&["bans", "list"]).ok().contains("127.0.0.1"), "{ban}");
    assert!(!greeting(&up).starts_with("220"));
    site.weir(&["bans", "lift", "127.0.0.1"]).ok();
    assert!(Client::login(&up.plain, "demo", &up.password()).is_ok());
    site.weir(&["bans", "lift", "127.0.0.1"]).refused(&["127.0.0.1 is not banned", "weir bans list"]);
    site.weir(&["bans", "add", "127.0.0.x"]).refused(&["is no address"]);
    let added = site.weir(&["bans", "add", "127.0.0.1", "--minutes", "5"]).ok();
    assert!(added.contains("127.0.0.1 is banned until") && !greeting(&up).starts_with("220"), "{added}");
    site.weir(&["bans", "lift", "127.0.0.1"]).ok();
    assert!(greeting(&up).starts_with("220"));
    let trail = site.weir(&["audit", "127.0.0.1"]).ok();
    assert!(trail.matches("ban.lift").count() == 2 && trail.contains("ban.add"), "{trail}");
    up.signal("TERM");
    up.ended();
    site.weir(&["bans", "list"]).refused(&["Weir is not running on this data folder"]);
}

#[test]
fn a_wrong_password_on_the_console_counts_as_one_at_the_mail_server_does() {
    let site = Site::new("");
    let up = site.up();
    let counted = || site.json(&["user", "show", "demo"])["wrong_logins"]["count"].clone();
    assert_eq!(counted(), 0);
    let console = format!("http://{}", up.listener("console"));
    Visitor::refused(&console, ("demo", "a guess"));
    assert_eq!(counted(), 1);
    assert!(Client::login(&up.plain, "demo", "another guess").is_err());
    assert_eq!(counted(), 2);
    let shown = site.weir(&["user", "show", "demo"]).ok();
    assert!(shown.contains("2 failed logins (SMTP and console) in 24 h from 1 network"), "{shown}");
    let page = Visitor::log_in(&console, &[], ("admin", &up.admin_password())).get("/throttle/users/demo");
    assert!(page.contains("2 failed logins at the mail server and on the console"), "{page}");
}

#[test]
fn a_contact_of_before_that_only_a_thief_would_read_is_warned_of() {
    let site = Site::new("");
    let admin = site.up().admin_password();
    site.weir(&["user", "add", "ann", "--address", "ann@localhost", "--contact", "ann@home.example", "--generate"])
        .ok();
    // A contact that could be set before such contacts were refused.
    let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(site.data().join("records.db"));
    let set = python.arg("update users set contact = 'Ann@localhost' where name = 'ann'").status();
    assert!(set.expect("python3 is not installed: run `make setup`").success());
    let up = site.up();
    let thief = "is a mailbox of this account, so a thief who has its password would be the only one to hear of a stop";
    let shown = site.weir(&["user", "show", "ann"]).ok();
    assert!(shown.contains(&format!("WARNING: it {thief}; weir user set ann --contact")), "{shown}");
    let doctor = || site.weir(&["doctor"]).stdout;
    assert!(doctor().contains(&format!("the contact of ann {thief}")), "{}", doctor());
    let console = format!("http://{}", up.listener("console"));
    let page = Visitor::log_in(&console, &[], ("admin", &admin)).get("/throttle/users/ann");
    assert!(page.contains(thief), "{page}");
    site.weir(&["user", "set", "ann", "--contact", "ann@home.example"]).ok();
    assert!(!site.weir(&["user", "show", "ann"]).ok().contains("WARNING") && !doctor().contains("the contact of"));
}

#[test]
fn a_user_is_removed_when_nothing_of_theirs_is_held() {
    let site = Site::new("");
    let up = site.up();
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("the demo user");
    for number in 0..8 {
        client.mail("demo@localhost", &[format!("stranger{number}@localhost").as_str()], "hello");
    }
    site.weir(&["user", "remove", "nobody", "--yes"]).refused(&["there is no user nobody"]);
    site.weir(&["user", "remove", "demo", "--yes"]).refused(&["of demo are held", "weir held release --user demo"]);
    site.weir(&["held", "release", "--user", "demo"]).ok();
    wait_for("nothing held", || (site.json(&["user", "show", "demo"])["throttle"]["held"] == 0).then_some(()));
    assert!(site.weir(&["user", "remove", "demo", "--yes"]).ok().contains("The user demo was removed"));
    assert!(Client::login(&up.plain, "demo", &up.password()).is_err());
    site.weir(&["user", "show", "demo"]).refused(&["there is no user demo"]);
    assert!(site.weir(&["audit", "demo"]).ok().contains("user.remove"));
}

#[test]
fn servers_are_drained_and_networks_blocked_with_a_line_in_the_audit() {
    let inbound = "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test\"]\nrecipients = \"any\"\n";
    let site = Site::new(inbound);
    let up = site.up_with(&["--demo"]);
    assert_eq!(status_of_page(&up), "200");
    let blocked = site.json(&["web", "block", "127.0.0.1", "--minutes", "5"]);
    assert_eq!((&blocked[0]["network"], status_of_page(&up).as_str()), (&"127.0.0.1/32".into(), "403"));
    assert!(site.weir(&["web", "blocks"]).ok().contains("127.0.0.1/32"));
    site.weir(&["web", "block", "0.0.0.0/0"]).refused(&["too large to be blocked"]);
    assert_eq!(site.json(&["web", "unblock", "127.0.0.1/32"]), serde_json::json!([]));
    assert_eq!(status_of_page(&up), "200");
    site.weir(&["web", "unblock", "127.0.0.1/32"]).refused(&["is not blocked"]);
    let status = site.json(&["web", "status"]);
    let server = status["backends"][0]["servers"][0]["address"].as_str().expect("a server").to_owned();
    let said = site.weir(&["web", "drain", &server]).ok();
    assert!(said.contains("still gets requests, because builtin has no other server"), "{said}");
    assert_eq!(status_of_page(&up), "200");
    assert_eq!(site.json(&["web", "status"])["backends"][0]["servers"][0]["draining"], true);
    site.weir(&["web", "drain", "192.0.2.1:80"]).refused(&["no backend has the server"]);
    site.weir(&["web", "weight", &server, "3"]).ok();
    assert_eq!(site.json(&["web", "status"])["backends"][0]["servers"][0]["weight"], 3);
    site.weir(&["web", "weight", "192.0.2.1:80", "3"]).refused(&["no backend has the server"]);
    let trail = site.weir(&["audit"]).ok();
    for action in ["web.block", "web.unblock", "web.drain", "web.weight"] {
        assert!(trail.contains(action), "{action} in\n{trail}");
    }
}

#[test]
fn backups_in_one_folder_are_named_by_their_time_and_the_oldest_go() {
    let site = Site::new("");
    drop(site.up());
    let folder = site.home().join("backups");
    let name = folder.to_str().expect("text");
    let again = || {
        // Two backups within the same second would have the same name, and the second one is refused.
        wait_for("the next second", || {
            let made = site.weir(&["backup", "--into", name, "--keep", "2", "--json"]);
            (made.code == Some(0)).then(|| serde_json::from_str::<serde_json::Value>(&made.stdout).expect("JSON"))
        })
    };
    let (first, second, third) = (again(), again(), again());
    assert!(first["since"].is_null() && second["since"] == first["folder"], "{second}");
    assert_eq!((&third["since"], &third["removed"][0]), (&second["folder"], &first["folder"]), "{third}");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 2);
    for backup in [&second, &third] {
        weir(&["backup", "verify", backup["folder"].as_str().expect("a folder")]).ok();
    }
    let up = site.up();
    let status = site.status();
    let age = status["health"]["parts"].as_array().and_then(|parts| parts.iter().find(|line| line["part"] == "backup"));
    assert!(age.is_some_and(|line| line["says"].as_str().is_some_and(|says| says.starts_with("made "))), "{status}");
    drop(up);
}

/// Every operation of the API that changes something, with its command in the terminal and the form on a page that does the same. A form on
/// the page of something that may not exist gets a name that does not exist.
const OPERATIONS: [(&str, &str, &str); 41] = [
    ("/backup", "backup", TERMINAL_ONLY),
    ("/bans", "bans add", "/bans/add"),
    ("/bans/lift", "bans lift", "/bans/lift"),
    ("/console/accounts", "console add", "/settings/accounts/add"),
    ("/console/accounts/{name}/codes-off", "console codes-off", "/settings/accounts/codes-off"),
    ("/console/accounts/{name}/password", "console passwd", "/settings/accounts/password"),
    ("/console/accounts/{name}/remove", "console remove", "/settings/accounts/remove"),
    ("/console/sessions/{number}/end", "console end-session", "/settings/sessions/end"),
    ("/console/tokens", "console token add", "/settings/tokens"),
    ("/console/tokens/{name}/revoke", "console token revoke", "/settings/tokens/revoke"),
    ("/dkim", "dkim add", "/settings/dkim"),
    ("/feeds/tune", "feeds tune", "/feeds/tune"),
    ("/held/analyse", "held analyse", "/throttle/decide"),
    ("/held/delete", "held delete", "/throttle/decide"),
    ("/held/release", "held release", "/throttle/decide"),
    ("/lab/cancel", "lab cancel", "/lab/cancel"),
    ("/lab/drain", "lab drain", "/lab/drain"),
    ("/lab/invite", "lab invite", "/lab/invite"),
    ("/lab/priority", "lab priority", "/lab/priority"),
    ("/lab/remove", "lab remove", "/lab/remove"),
    ("/lab/rerun", "lab rerun", "/lab/rerun"),
    ("/lab/samples", "lab submit", UPLOAD),
    ("/quarantine/delete", "quarantine delete", "/quarantine/decide"),
    ("/quarantine/release", "quarantine release", "/quarantine/decide"),
    ("/queue/delete", "queue delete", "/queue/decide"),
    ("/queue/retry", "queue retry", "/queue/decide"),
    ("/scan/rules", "scan rules add", "/rules/add"),
    ("/scan/rules/{rule}/remove", "scan rules remove", "/rules/remove"),
    ("/senders", "senders block", "/senders/set"),
    ("/senders/remove", "senders remove", "/senders/remove"),
    ("/users", "user add", "/users/add"),
    ("/users/{name}", "user set", "/users/nobody/change"),
    ("/users/{name}/lock", "user lock", "/throttle/users/nobody/lock"),
    ("/users/{name}/password", "user passwd", "/users/nobody/password"),
    ("/users/{name}/remove", "user remove", "/users/nobody/remove"),
    ("/users/{name}/secure", "user secure", "/throttle/users/nobody/secure"),
    ("/users/{name}/unlock", "user unlock", "/throttle/users/nobody/unlock"),
    ("/web/blocks", "web block", "/web/block"),
    ("/web/blocks/lift", "web unblock", "/web/unblock"),
    ("/web/drain", "web drain", "/web/drain"),
    ("/web/weight", "web weight", "/web/weight"),
];
/// This makes Weir write to any folder of the machine, so only somebody who is on that machine may do it.
const TERMINAL_ONLY: &str = "terminal only";
/// The script of this form sends a file to the API as it is.
const UPLOAD: &str = "upload";

#[test]
fn whatever_can_be_changed_can_be_changed_in_the_terminal_and_on_a_page() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    let base = format!("http://{}", up.listener("console"));
    let admin = Visitor::log_in(&base, &[], ("admin", &up.admin_password()));
    let document: serde_json::Value =
        serde_json::from_str(&admin.get("/api/v1/openapi.json")).expect("the document of the API");
    let paths = document["paths"].as_object().expect("paths");
    let changing = |methods: &serde_json::Value| ["post", "patch"].iter().any(|method| !methods[*method].is_null());
    let bare = |path: &'_ String| path.strip_prefix("/api/v1").unwrap_or(path).to_owned();
    let mut asked: Vec<String> =
        paths.iter().filter(|(_, methods)| changing(methods)).map(|(path, _)| bare(path)).collect();
    asked.sort_unstable();
    let listed: Vec<&str> = OPERATIONS.iter().map(|(path, ..)| *path).filter(|path| !path.is_empty()).collect();
    assert_eq!(asked, listed, "each is in the table above");
    let token = {
        let page = admin.get("/bans");
        let (_, rest) = page.split_once("name=\"token\" value=\"").expect("a form");
        rest.split('"').next().expect("a token").to_owned()
    };
    for (path, verb, form) in OPERATIONS.iter().filter(|(path, ..)| !path.is_empty()) {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        assert!(weir(&words).ok().contains("Usage: weir"), "{path}: weir {verb}");
        match *form {
            TERMINAL_ONLY => assert_eq!(admin.status_of(&format!("/api/v1{path}"), &[]), "403", "{path}"),
            UPLOAD => assert!(admin.get("/lab").contains("action=\"/api/v1/lab/samples\""), "{path}"),
            // Whatever is wrong with an empty form, a page reports it.
            form => assert_eq!(admin.status_of(form, &[("token", &token)]), "303", "{path}: {form}"),
        }
    }
}
