//! Who exists: by file, by the users, by asking the next server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Routes, Smarthost};
use weir_mail::delivery::settings::Settings;
use weir_mail::inbound::RecipientRule;
use weir_mail::inbound::recipients::{Callout, CalloutSettings, Remembering};
use weir_smtp::client::approach::Approach;
use weir_smtp::client::tls::TlsLevel;
use weir_smtp::limits::SmtpLimits;

use super::gate::{Gate, Plan};

/// A next server whose replies a test decides. It never takes a message.
#[derive(Clone)]
struct NextServer {
    port: u16,
    said: Arc<Mutex<Vec<String>>>,
    mood: Arc<Mutex<Mood>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Knows ann.
    Well,
    /// Wants no mail from `<>`.
    Proud,
    /// 4xx to every recipient.
    Busy,
    /// Takes the connection and says nothing.
    Silent,
    /// Hangs up at once.
    Gone,
    /// Greets with 554.
    Hostile,
}

impl NextServer {
    async fn start() -> NextServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = NextServer { port, said: Arc::default(), mood: Arc::new(Mutex::new(Mood::Well)) };
        let shared = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(shared.clone().converse(BufReader::new(stream)));
            }
        });
        server
    }

    async fn converse(self, mut stream: BufReader<tokio::net::TcpStream>) {
        let mood = *self.mood.lock().unwrap();
        let mut reply = match mood {
            Mood::Gone => return,
            Mood::Silent => return tokio::time::sleep(Duration::from_secs(60)).await,
            Mood::Hostile => "554 go away".to_owned(),
            _ => "220 next.example".to_owned(),
        };
        loop {
            if stream.write_all(format!("{reply}\r\n").as_bytes()).await.is_err() {
                return;
            }
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_owned();
            self.said.lock().unwrap().push(line.clone());
            reply = match (line.split(' ').next().unwrap_or_default(), mood) {
                ("MAIL", Mood::Proud) => "550 5.7.1 no bounces here".into(),
                ("RCPT", Mood::Busy) => "451 4.3.0 busy".into(),
                ("RCPT", _) if line.contains("<ann@") || line.contains("<ann+") => "250 ann is here".into(),
                ("RCPT", _) => "550 5.1.1 who is that?".into(),
                ("DATA" | "BDAT", _) => panic!("a callout sends no message"),
                _ => "250 fine".into(),
            };
        }
    }

    fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn asked(&self) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.starts_with("RCPT")).count()
    }

    fn rule(&self, settings: CalloutSettings) -> RecipientRule {
        let host = Endpoint::Host("127.0.0.1".into(), self.port);
        let approach = Approach { tls: TlsLevel::Off, ..Approach::default() };
        let route = Route::Smarthost(Smarthost { hosts: vec![host], order: HostOrder::Failover, approach });
        let mut delivery = Settings::new("mx.example.org", PathBuf::from("/nonexistent"));
        delivery.routes = Routes::new(Route::Refuse("nowhere".into())).with("example.org", route);
        RecipientRule::Callout(Arc::new(Callout::new(&delivery, settings).unwrap()))
    }
}

fn quick() -> CalloutSettings {
    CalloutSettings { patience: Duration::from_millis(400), ..CalloutSettings::default() }
}

#[tokio::test]
async fn the_next_server_is_asked_once_and_no_message_is_sent() {
    let next = NextServer::start().await;
    let gate = Gate::start(Plan { recipients: next.rule(quick()), ..Plan::default() }).await;
    let mut client = gate.client().await;
    for _ in 0..3 {
        assert!(client.rcpt("<ann@example.org>").await.starts_with("250"));
        let said = client.rcpt("<eve@example.org>").await;
        assert!(said.starts_with("550 5.1.1 the next server refuses this recipient: who is that?"), "{said}");
    }
    assert!(client.rcpt("<ann+tag@EXAMPLE.org>").await.starts_with("250"), "the next server decides about tags");
    assert_eq!(next.asked(), 3);
    assert!(next.said.lock().unwrap().contains(&"MAIL FROM:<>".to_owned()));
    // The postmaster need not be asked about, and other domains of ours have another route.
    assert!(client.rcpt("<postmaster@example.org>").await.starts_with("250"));
    assert!(client.rcpt("<ann@x.sub.example.net>").await.starts_with("550 5.1.1"));
    assert_eq!(next.asked(), 3);
}

#[tokio::test]
async fn who_cannot_be_asked_about_is_not_taken_now() {
    let next = NextServer::start().await;
    let gate = Gate::start(Plan { recipients: next.rule(quick()), ..Plan::default() }).await;
    let mut client = gate.client().await;
    for mood in [Mood::Proud, Mood::Busy, Mood::Silent, Mood::Gone, Mood::Hostile] {
        next.be(mood);
        for path in ["<ann@example.org>", "<eve@example.org>"] {
            let said = client.rcpt(path).await;
            assert!(said.starts_with("451 4.4.3 the recipient cannot be verified now"), "{said}");
        }
    }
    // None of that was remembered.
    next.be(Mood::Well);
    assert!(client.rcpt("<ann@example.org>").await.starts_with("250"));
    assert!(client.rcpt("<eve@example.org>").await.starts_with("550"));
}

#[tokio::test]
async fn a_known_recipient_outlives_a_next_server_that_is_down() {
    let next = NextServer::start().await;
    let remembering = Remembering { yes: Duration::ZERO, no: Duration::ZERO, ..Remembering::default() };
    let gate =
        Gate::start(Plan { recipients: next.rule(CalloutSettings { remembering, ..quick() }), ..Plan::default() })
            .await;
    let mut client = gate.client().await;
    assert!(client.rcpt("<ann@example.org>").await.starts_with("250"));
    assert!(client.rcpt("<eve@example.org>").await.starts_with("550"));
    next.be(Mood::Gone);
    assert!(client.rcpt("<ann@example.org>").await.starts_with("250"), "it was there a moment ago");
    assert!(client.rcpt("<eve@example.org>").await.starts_with("451"));
    assert!(client.rcpt("<bob@example.org>").await.starts_with("451"));
}

#[tokio::test]
async fn users_are_recipients() {
    let users = vec![
        ("ann", vec!["ann@example.org", "Ann.Other@Example.org"]),
        ("app", vec!["@example.org"]),
        ("odd", vec!["o_d%d@example.org"]),
    ];
    let gate = Gate::start(Plan { recipients: RecipientRule::Store, users, ..Plan::default() }).await;
    let mut client = gate.client().await;
    for known in ["ann@example.org", "ANN@Example.ORG", "ann+tag@example.org", "ann.other@example.org"] {
        assert!(client.rcpt(&format!("<{known}>")).await.starts_with("250"), "{known}");
    }
    for unknown in [
        "bob@example.org",
        "nn@example.org",
        "a__@example.org",
        "_nn@example.org",
        "oxdxd@example.org",
        "ann@x.sub.example.net",
    ] {
        assert!(client.rcpt(&format!("<{unknown}>")).await.starts_with("550 5.1.1"), "{unknown}");
    }
}

#[tokio::test]
async fn a_list_of_recipients_counts_and_so_does_its_next_edition() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recipients");
    std::fs::write(&file, "ann@example.org\n").unwrap();
    let gate = Gate::start(Plan { recipients: RecipientRule::File(file.clone()), ..Plan::default() }).await;
    let mut client = gate.client().await;
    assert!(client.rcpt("<ann@example.org>").await.starts_with("250"));
    assert!(client.rcpt("<bob@example.org>").await.starts_with("550 5.1.1 no such recipient here"));
    // A new list counts without a restart.
    std::fs::write(&file, "ann@example.org\nbob@example.org\n").unwrap();
    let begun = std::time::Instant::now();
    while !gate.client().await.rcpt("<bob@example.org>").await.starts_with("250") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the new list is not seen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn who_searches_for_names_is_banned_and_listed_peers_are_not() {
    let limits = SmtpLimits {
        failed_logins_per_address: 5,
        refused_recipients: 100,
        body_line_bytes: 0,
        ..SmtpLimits::default()
    };
    let users = vec![("ann", vec!["ann@example.org"])];
    let plan = Plan { recipients: RecipientRule::Store, users, limits, trusted: &["127.0.0.1"], ..Plan::default() };
    let gate = Gate::start(plan).await;
    let mut client = gate.client_from("192.0.2.7", "client.example").await;
    for number in 0..5 {
        assert!(client.rcpt(&format!("<name{number}@example.org>")).await.starts_with("550"));
    }
    assert_eq!(gate.alarms.lock().unwrap().len(), 1);
    assert_eq!(gate.server.counters().bans, 1);
    let mut again = super::gate::Client::connect(gate.smtp).await;
    again.say("EHLO proxy.example").await;
    let said = again.say("XCLIENT ADDR=192.0.2.7").await;
    assert!(said.starts_with("421 4.7.0 too many unknown recipients from your address"), "{said}");
    // Its neighbour is welcome.
    assert!(gate.client_from("192.0.2.8", "x.example").await.rcpt("<ann@example.org>").await.starts_with("250"));
}
