//! MX: a private name server that answers from a table, and servers behind it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;
use weir_mail::delivery::resolver::{Dns, MailResolver, Ourselves};
use weir_mail::delivery::route::Route;
use weir_smtp::client::approach::Approach;
use weir_smtp::outcome::{Fate, Status};

use super::memory_ledger::{MemoryLedger, now, settings_for, start};
use super::server::{Say, Server};

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Mx(u16, &'static str),
    A(Ipv4Addr),
    Txt(String),
}

/// What is known of a name; what is not is NXDOMAIN.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    Records(Vec<Answer>),
    ServFail,
    Silence,
}

/// A name server on a port of its own.
#[derive(Clone, Debug)]
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    questions: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    pub(crate) async fn start(zones: &[(&str, Zone)]) -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zones: BTreeMap<String, Zone> =
            zones.iter().map(|(name, zone)| ((*name).to_owned(), zone.clone())).collect();
        let server = NameServer { address, questions: Arc::default() };
        let questions = Arc::clone(&server.questions);
        tokio::spawn(async move {
            let mut packet = [0; 1500];
            loop {
                let (length, client) = socket.recv_from(&mut packet).await.unwrap();
                let (name, kind, question) = parse(&packet[..length]);
                questions.lock().unwrap().push(name.clone());
                if let Some(reply) = reply(&packet[..2], question, kind, zones.get(&name)) {
                    socket.send_to(&reply, client).await.unwrap();
                }
            }
        });
        server
    }

    fn asked(&self, name: &str) -> usize {
        self.questions.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }
}

/// The name in lower case, the type, and the question as it came.
fn parse(packet: &[u8]) -> (String, u16, &[u8]) {
    let (mut at, mut name) = (12, String::new());
    while packet[at] != 0 {
        let length = usize::from(packet[at]);
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(&packet[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes([packet[at + 1], packet[at + 2]]);
    (name, kind, &packet[12..at + 5])
}

fn reply(id: &[u8], question: &[u8], kind: u16, zone: Option<&Zone>) -> Option<Vec<u8>> {
    let (code, answers) = match zone {
        None => (3, Vec::new()),
        Some(Zone::ServFail) => (2, Vec::new()),
        Some(Zone::Silence) => return None,
        Some(Zone::Records(records)) => (0, records.iter().filter_map(|record| data(record, kind)).collect()),
    };
    let mut out = id.to_vec();
    out.extend_from_slice(&[0x85, 0x80 | code, 0, 1]);
    out.extend_from_slice(&(answers.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0]);
    out.extend_from_slice(question);
    for data in answers {
        out.extend_from_slice(&[0xc0, 12]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(&data);
    }
    Some(out)
}

fn data(record: &Answer, kind: u16) -> Option<Vec<u8>> {
    match (record, kind) {
        (Answer::A(address), 1) => Some(address.octets().to_vec()),
        (Answer::Mx(preference, host), 15) => {
            let mut out = preference.to_be_bytes().to_vec();
            for label in host.split('.').filter(|label| !label.is_empty()) {
                out.push(label.len() as u8);
                out.extend_from_slice(label.as_bytes());
            }
            out.push(0);
            Some(out)
        }
        (Answer::Txt(text), 16) => {
            let parts = text.as_bytes().chunks(255);
            Some(parts.flat_map(|part| std::iter::once(part.len() as u8).chain(part.iter().copied())).collect())
        }
        _ => None,
    }
}

fn records(records: &[Answer]) -> Zone {
    Zone::Records(records.to_vec())
}

fn a(last: u8) -> Zone {
    records(&[Answer::A(Ipv4Addr::new(127, 0, 0, last))])
}

async fn resolver(zones: &[(&str, Zone)], names: &[&str]) -> (NameServer, MailResolver) {
    let server = NameServer::start(zones).await;
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let ourselves = Ourselves { names, loopback: true, ..Ourselves::default() };
    let resolver = MailResolver::new(&Dns::Server(server.address, Duration::from_millis(300)), ourselves).unwrap();
    (server, resolver)
}

async fn hosts(resolver: &MailResolver, domain: &str) -> Vec<String> {
    resolver.exchangers(domain, now()).await.unwrap().iter().map(|host| host.name.to_string()).collect()
}

#[tokio::test]
async fn exchangers_come_in_order_of_preference() {
    let zones = [
        (
            "d.example",
            records(&[Answer::Mx(20, "b.example"), Answer::Mx(10, "a.example"), Answer::Mx(30, "gone.example")]),
        ),
        ("a.example", a(1)),
        ("b.example", a(2)),
    ];
    let (_, resolver) = resolver(&zones, &[]).await;
    assert_eq!(hosts(&resolver, "d.example").await, ["a.example", "b.example"]);
    let host = &resolver.exchangers("D.Example", now()).await.unwrap()[0];
    assert_eq!(host.to_string(), "a.example[127.0.0.1:25]");
}

#[tokio::test]
async fn equals_take_turns_at_random() {
    let names = ["a.example", "b.example", "c.example"];
    let mut zones: Vec<_> = names.iter().map(|name| (*name, a(1))).collect();
    zones.push(("d.example", records(&names.map(|name| Answer::Mx(10, name)))));
    let (_, resolver) = resolver(&zones, &[]).await;
    let mut first = std::collections::BTreeSet::new();
    for _ in 0..100 {
        first.insert(hosts(&resolver, "d.example").await[0].clone());
    }
    assert_eq!(first.len(), 3, "{first:?}");
}

#[tokio::test]
async fn without_mx_the_domain_is_its_own_host() {
    let (_, resolver) = resolver(&[("d.example", a(7)), ("empty.example", records(&[]))], &[]).await;
    assert_eq!(hosts(&resolver, "d.example").await, ["d.example"]);
    let outcome = resolver.exchangers("empty.example", now()).await.unwrap_err();
    assert_eq!((outcome.fate, outcome.status), (Fate::Permanent, Status(5, 4, 4)));
}

#[tokio::test]
async fn what_is_permanent_and_what_is_not() {
    let zones = [
        ("null.example", records(&[Answer::Mx(0, ".")])),
        ("fail.example", Zone::ServFail),
        ("silent.example", Zone::Silence),
        ("dangling.example", records(&[Answer::Mx(10, "gone.example")])),
        ("half.example", records(&[Answer::Mx(10, "gone.example"), Answer::Mx(20, "fail.example")])),
    ];
    let (_, resolver) = resolver(&zones, &[]).await;
    for (domain, fate, status) in [
        ("null.example", Fate::Permanent, Status(5, 1, 10)),
        ("missing.example", Fate::Permanent, Status(5, 1, 2)),
        ("fail.example", Fate::Temporary, Status(4, 4, 3)),
        ("silent.example", Fate::Temporary, Status(4, 4, 3)),
        ("dangling.example", Fate::Permanent, Status(5, 4, 4)),
        ("half.example", Fate::Temporary, Status(4, 4, 3)),
    ] {
        let outcome = resolver.exchangers(domain, now()).await.unwrap_err();
        assert_eq!((outcome.fate, outcome.status), (fate, status), "{domain}: {outcome}");
    }
}

#[tokio::test]
async fn failures_are_asked_for_once() {
    let (server, resolver) = resolver(&[("fail.example", Zone::ServFail)], &[]).await;
    resolver.exchangers("fail.example", now()).await.unwrap_err();
    let before = server.asked("fail.example");
    assert!(before > 0);
    for _ in 0..100 {
        resolver.exchangers("fail.example", now()).await.unwrap_err();
    }
    assert_eq!(server.asked("fail.example"), before);
}

#[tokio::test]
async fn mail_does_not_go_in_circles() {
    let zones = [
        (
            "d.example",
            records(&[Answer::Mx(10, "first.example"), Answer::Mx(20, "me.example"), Answer::Mx(30, "behind.example")]),
        ),
        ("loop.example", records(&[Answer::Mx(10, "ME.example"), Answer::Mx(20, "behind.example")])),
        ("first.example", a(1)),
        ("me.example", a(2)),
        ("behind.example", a(3)),
    ];
    let (_, resolver) = resolver(&zones, &["me.example"]).await;
    assert_eq!(hosts(&resolver, "d.example").await, ["first.example"], "those behind us would send it back");
    let outcome = resolver.exchangers("loop.example", now()).await.unwrap_err();
    assert_eq!((outcome.fate, outcome.status), (Fate::Permanent, Status(5, 4, 6)));
}

#[tokio::test]
async fn mail_for_several_domains_finds_its_servers() {
    let server = Server::start(|_, _, _| Say::Usual).await;
    let mx = |name| records(&[Answer::Mx(10, name)]);
    let zones = [
        ("one.example", mx("mx.example")),
        ("two.example", mx("mx.example")),
        ("null.example", records(&[Answer::Mx(0, ".")])),
        ("mx.example", a(1)),
    ];
    let dns = NameServer::start(&zones).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings_for(Route::Mx(Approach::default()));
    settings.dns = Dns::Server(dns.address, Duration::from_secs(2));
    settings.ourselves = Ourselves { port: server.port, loopback: true, ..Ourselves::default() };
    let delivery = start(settings, &ledger);
    let to = ["<a@one.example>", "<b@two.example>", "<c@One.example>", "<d@null.example>", "<e@missing.example>"];
    let message = ledger.message("<a@sender.example>", &to, "Subject: x\r\n\r\nx\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let rcpts = server.commands().iter().filter(|line| line.starts_with("RCPT")).count();
    assert_eq!((server.log().bodies.len(), rcpts), (2, 3), "one delivery a domain");
    let reports = ledger.state().reports.clone();
    assert_eq!(reports.len(), 1, "one report for all that failed: {reports:?}");
    assert!(reports[0].contains("Status: 5.1.10") && reports[0].contains("Status: 5.1.2"), "{}", reports[0]);
}

#[tokio::test]
async fn a_server_with_our_own_name_is_ourselves() {
    let server = Server::start(|_, step, _| match step {
        super::server::Step::Hello => Say::Raw("250 CLIENT.example\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let dns = NameServer::start(&[("d.example", a(1))]).await;
    let ledger = MemoryLedger::default();
    let mut settings = settings_for(Route::Mx(Approach::default()));
    settings.dns = Dns::Server(dns.address, Duration::from_secs(2));
    settings.ourselves = Ourselves { port: server.port, loopback: true, ..Ourselves::default() };
    let delivery = start(settings, &ledger);
    delivery.enqueue(ledger.message("<a@sender.example>", &["<b@d.example>"], "x\r\n"));
    assert!(ledger.report().await.contains("Status: 5.4.6"));
}
