//! Tests of `weir status` and the console's first page when a server that Weir needs is down: a smarthost, the next server of one of our
//! domains, or the only web server.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, wait_for};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// An address at which nothing listens. Other tests use 127.0.0.1, so none of them takes it meanwhile.
fn silent(last: u8) -> String {
    let address = format!("127.0.77.{last}");
    let port = TcpListener::bind((address.as_str(), 0)).unwrap().local_addr().unwrap().port();
    format!("{address}:{port}")
}

/// A program that listens there.
struct Peer(Child);

impl Peer {
    fn start(command: &mut Command, address: &str) -> Peer {
        let peer = Peer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run `make setup`"));
        wait_for("the peer", || TcpStream::connect(address).ok());
        peer
    }

    fn smtp(address: &str) -> Peer {
        Peer::start(Command::new("/usr/sbin/smtp-sink").args(["-u", "root", address, "100"]), address)
    }

    fn http(address: &str, folder: &std::path::Path) -> Peer {
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut command = Command::new("python3");
        Peer::start(command.args(["-m", "http.server", port, "--bind", host]).current_dir(folder), address)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `weir status` says about a part: its verdict, and the text.
fn part(site: &Site, name: &str) -> (String, String) {
    let status = site.status();
    let parts = status["health"]["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["part"] == name).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&part["verdict"]), text(&part["says"]))
}

/// Waits until the console's first page, which is updated now and then, contains these words.
fn overview_says(up: &Up, password: &str, words: &[&str]) {
    let base = format!("http://{}", up.listener("console"));
    let visitor = Visitor::log_in(&base, &[], ("admin", password));
    wait_for(&format!("the page to say {words:?}"), || {
        let page = visitor.get("/");
        words.iter().all(|words| page.contains(words)).then_some(())
    });
}

#[test]
fn a_smarthost_and_the_next_server_of_a_domain_are_said_to_be_away() {
    let (smarthost, next) = (silent(1), silent(2));
    let site = Site::new(&format!(
        "way = \"smarthost\"\nhosts = [\"{smarthost}\"]\ntls = \"off\"\n\
         [inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test smtp:{next}\"]\nrecipients = \"callout\"\n"
    ));
    let up = site.up();
    let both = format!("the smarthost {smarthost}, the server {next} for demo.test");
    let first = site.weir(&["status"]).ok();
    assert!(first.ends_with(&format!("\nAll is well as far as Weir knows; not tried yet: {both}.\n")), "{first}");
    let admin = up.admin_password();
    overview_says(&up, &admin, &["not tried yet: the smarthost"]);

    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let said = client.mail("demo@localhost", &["ann@elsewhere.example"], "waits");
    assert!(said.starts_with("250"), "{said}");
    let away = format!("the smarthost {smarthost} cannot be reached for ");
    wait_for("the smarthost to be away", || part(&site, "mail").1.contains(&away).then_some(()));
    let mut outside = Client::greeted(&up.listener("inbound"));
    let mut known = || {
        outside.say("RSET");
        outside.say("MAIL FROM:<you@example.org>");
        outside.say("RCPT TO:<ann@demo.test>")
    };
    let refused = known();
    assert!(refused.starts_with("451"), "{refused}");
    let (verdict, says) = part(&site, "mail");
    assert!(verdict == "failing" && says.contains(&away), "{says}");
    assert!(says.contains(&format!("the server {next} for demo.test cannot be reached")), "{says}");
    assert!(says.to_lowercase().contains("refused") && says.contains("1 failed attempt"), "{says}");
    let printed = site.weir(&["status", "--long"]);
    assert_eq!(printed.code, Some(4), "{}", printed.stdout);
    assert!(printed.stdout.contains("NOT WELL: 2 things do not work"), "{}", printed.stdout);
    assert!(printed.stdout.contains("next hop     the smarthost"), "{}", printed.stdout);
    overview_says(&up, &admin, &["cannot be reached", "a next hop is away"]);

    let _servers = (Peer::smtp(&smarthost), Peer::smtp(&next));
    wait_for("the recipient to be known", || known().starts_with("250").then_some(()));
    let (_, says) = wait_for("all to be well again", || Some(part(&site, "mail")).filter(|(how, _)| how == "well"));
    assert!(says.contains("2 of 2 next hops answered when last tried"), "{says}");
    assert!(site.weir(&["status"]).ok().ends_with("\nAll is well.\n"));
}

#[test]
fn the_only_web_server_is_said_to_be_away_until_it_answers() {
    let (server, site) = (silent(3), Site::new(""));
    let file = site.home().join("weir.toml");
    let with = |every: &str| {
        let web = format!("[web]\nbackends = [\"app {server}\"]\nhealth_every = \"{every}\"\nrest = \"100ms\"\n");
        fs::read_to_string(&file).unwrap().replace("[web]\n", &web)
    };
    let (asked, unasked) = (with("1s"), with("0s"));
    fs::write(&file, unasked).unwrap();
    let up = site.up();
    let admin = up.admin_password();
    let first = site.weir(&["status"]).ok();
    assert!(first.contains(&format!("not tried yet: the web server {server}")), "{first}");
    drop(up);

    fs::write(&file, asked).unwrap();
    let up = site.up();
    let away = wait_for("the server to be away", || {
        Some(part(&site, "web")).filter(|(verdict, _)| verdict == "failing").map(|(_, says)| says)
    });
    assert!(away.contains("no server of app answers: Connection refused"), "{away}");
    // It is tried again all the time, but stays down.
    for _ in 0..10 {
        assert_eq!(part(&site, "web").0, "failing");
    }
    assert_eq!(site.weir(&["status"]).code, Some(4));
    overview_says(&up, &admin, &["The only server does not answer.", "no server answers"]);
    let _server = Peer::http(&server, site.home());
    wait_for("the server to be back", || (part(&site, "web").0 == "well").then_some(()));
    site.weir(&["status"]).ok();
}
