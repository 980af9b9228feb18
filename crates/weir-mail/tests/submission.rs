//! Submission over real sockets: the throttle at work, held mail, orders by mail, and what a restart finds.
#![allow(missing_docs)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use weir_core::throttle::Params;
use weir_core::time::Instant;
use weir_mail::accounts::{Accounts, Passwords};
use weir_mail::held::HeldMail;
use weir_mail::letter::{Letter, Origin};
use weir_mail::notices::{self, Event, Notices};
use weir_mail::outbound::Outbound;
use weir_mail::own_link;
use weir_mail::smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_mail::smtp::limits::Limits;
use weir_mail::smtp::server::{Server, TlsMode};
use weir_mail::smtp::settings::{Auth, Settings as Listener};
use weir_mail::submission::{ClockBox, Identity, Settings, Shared, Submission};
use weir_mail::throttle::{Clock, Command, NoticeKind, Throttling};
use weir_store::records::{HeldFilter, Records, UserRow};
use weir_store::spool::faults::{Call, Faults};
use weir_store::spool::{Found, MessageId, Options, Spool, SpoolError};

type Letters = Vec<(MessageId, Vec<String>)>;

/// What would have gone out.
#[derive(Clone, Default)]
struct Gone {
    letters: Arc<Mutex<Letters>>,
}

impl Outbound for Gone {
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>) {
        let to = places.iter().map(|place| letter.to[*place].address.clone()).collect();
        self.letters.lock().unwrap().push((id, to));
    }
}

impl Gone {
    fn recipients(&self) -> Vec<String> {
        self.letters.lock().unwrap().iter().flat_map(|(_, to)| to.clone()).collect()
    }
}

/// A whole submission gate on a data folder, with a clock of its own.
struct Gate {
    server: Server<Submission<Gone>>,
    address: SocketAddr,
    spool: Spool,
    records: Records,
    throttling: Throttling,
    held: HeldMail<Gone>,
    gone: Gone,
    now: Arc<AtomicU64>,
}

impl Gate {
    async fn start(folder: &Path) -> Gate {
        Gate::start_on(folder, None).await
    }

    async fn start_on(folder: &Path, faults: Option<Arc<Faults>>) -> Gate {
        Gate::start_as(folder, faults, |_| {}).await
    }

    async fn start_as(folder: &Path, faults: Option<Arc<Faults>>, change: impl FnOnce(&mut Settings)) -> Gate {
        let now = Arc::new(AtomicU64::new(1_794_798_240_000_000_000));
        let clock: Clock = {
            let now = now.clone();
            Arc::new(move || Instant(now.load(Ordering::SeqCst)))
        };
        std::fs::create_dir_all(folder.join("held")).unwrap();
        let (spool, found) = open_spool(&folder.join("spool"), faults).await;
        let records = Records::sqlite(&folder.join("records.db")).await.unwrap();
        let (gone, throttling) = (Gone::default(), Throttling::start(records.clone(), clock.clone()));
        let passwords = Passwords::new(2, [1; 32]).unwrap();
        if records.user("ann").await.unwrap().is_none() {
            records.user_add(&ann(passwords.hash("secret").await.unwrap())).await.unwrap();
        }
        let held = HeldMail::new(folder.join("held"), "r1", spool.clone(), records.clone(), gone.clone());
        let settings = notices::Settings {
            hostname: "mail.example.org".into(),
            admin: "admin@example.org".into(),
            webhook: None,
            link: "https://console.example.org/".into(),
        };
        let notices = Notices::start(settings, spool.clone(), records.clone(), gone.clone(), clock.clone());
        let mut settings = Settings {
            hostname: "mail.example.org".into(),
            relay: "r1".into(),
            identity: Identity::Login,
            ipv6_prefix_bits: 64,
            learn_only: false,
            sender_must_match: true,
            received_from: Vec::new(),
            profiles: BTreeMap::new(),
            params: Params::default(),
            recipient_secret: [3; 32],
            notify: {
                let notices = notices.clone();
                Box::new(move |kind, identity, contact| {
                    notices.tell(Event { kind, identity: identity.into(), contact: contact.into() });
                })
            },
            alarm: Box::new(move |alarm| notices.raise(alarm.clone())),
        };
        change(&mut settings);
        let accounts = Accounts::new(records.clone(), passwords, None);
        let submission = Submission::new(Shared {
            settings: settings.into(),
            spool: spool.clone(),
            records: records.clone(),
            accounts,
            throttling: throttling.clone(),
            held: held.clone(),
            outbound: gone.clone(),
            clock: ClockBox(clock),
        });
        for found in found {
            let letter = Letter::read(&found.envelope).unwrap();
            submission.resume(found.id, letter).await.unwrap();
        }
        let server = Server::new(submission, Limits::default());
        let trusted = vec!["127.0.0.1".parse().unwrap()];
        let listener = Listener { auth: Auth::Optional, trusted, ..Listener::default() };
        let address = server.listen("127.0.0.1:0".parse().unwrap(), listener, TlsMode::Off).unwrap();
        Gate { server, address, spool, records, throttling, held, gone, now }
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut client = Client { stream: BufReader::new(stream) };
        assert!(client.reply().await.starts_with("220 "));
        assert!(client.say("EHLO client.example.org").await.contains("AUTH PLAIN LOGIN"));
        client
    }

    async fn ann(&self) -> Client {
        let mut client = self.client().await;
        assert!(client.login("ann", "secret").await.starts_with("235 "), "login");
        client
    }
}

/// Tasks of an earlier gate let go of the spool as they end.
async fn open_spool(folder: &Path, faults: Option<Arc<Faults>>) -> (Spool, Vec<Found>) {
    let options = Options { free_floor_bytes: 0, faults, ..Options::default() };
    let open = async {
        loop {
            match Spool::open(folder, options.clone()) {
                Err(SpoolError::InUse(_)) => tokio::task::yield_now().await,
                opened => return opened.unwrap(),
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), open).await.expect("the spool is let go")
}

fn ann(password: String) -> UserRow {
    UserRow {
        name: "ann".into(),
        password,
        addresses: vec!["ann@example.org".into()],
        contact: "ann@elsewhere.example".into(),
        profile: "person".into(),
        params: "{}".into(),
        locked_at: None,
        locked_reason: String::new(),
        created_at: 0,
    }
}

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn say(&mut self, line: &str) -> String {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        self.reply().await
    }

    async fn reply(&mut self) -> String {
        let mut whole = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).await.unwrap() > 0, "the server hung up after {whole:?}");
            whole.push_str(&line);
            if line.as_bytes().get(3) != Some(&b'-') {
                return whole;
            }
        }
    }

    async fn login(&mut self, user: &str, password: &str) -> String {
        self.say(&format!("AUTH PLAIN {}", STANDARD.encode(format!("\0{user}\0{password}")))).await
    }

    /// The reply to a whole mail; or to the first command that was refused.
    async fn mail(&mut self, from: &str, to: &[String], text: &str) -> String {
        let mut commands = vec![format!("MAIL FROM:<{from}>")];
        commands.extend(to.iter().map(|to| format!("RCPT TO:<{to}>")));
        commands.push("DATA".into());
        for command in commands {
            let reply = self.say(&command).await;
            if !reply.starts_with('2') && !reply.starts_with('3') {
                self.say("RSET").await;
                return reply;
            }
        }
        self.say(&format!("{text}\r\n.")).await
    }
}

fn letter_to(n: usize) -> Vec<String> {
    vec![format!("new{n}@example.net")]
}

const TEXT: &str = "From: Ann <ann@example.org>\r\nSubject: hello\r\n\r\nbody";

#[tokio::test(flavor = "multi_thread")]
async fn a_worm_is_stopped_and_people_decide() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let first = client.mail("ann@example.org", &letter_to(0), TEXT).await;
    assert!(first.contains("accepted, on its way to 1 recipient"), "{first}");
    let second = client.mail("ann@example.org", &letter_to(1), TEXT).await;
    assert!(
        second.starts_with("250 2.0.0 ") && second.contains("1 of 1 recipient waits in the delay queue (1 in all)"),
        "{second}"
    );
    assert!(second.contains("expected to go at 03:05 UTC"), "{second}");
    for n in 2..22 {
        let reply = client.mail("ann@example.org", &letter_to(n), TEXT).await;
        assert!(reply.starts_with("250 "), "{n}: {reply}");
        assert_eq!(n == 21, reply.contains("you are stopped"), "{n}: {reply}");
    }
    let refused = client.mail("ann@example.org", &letter_to(99), TEXT).await;
    assert!(refused.starts_with("550 5.7.1 ann is stopped"), "{refused}");
    let locked = gate.client().await.login("ann", "secret").await;
    assert!(locked.starts_with("535 5.7.1 the account is stopped: 21 recipients wait"), "{locked}");
    assert_eq!(gate.records.held(&HeldFilter::default(), 99).await.unwrap().len(), 21);
    assert_eq!(std::fs::read_dir(folder.path().join("held")).unwrap().count(), 42, "an .eml and a .json each");
    // Three notices to two people, besides the one mail that went.
    tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while gate.gone.letters.lock().unwrap().len() < 7 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("six notices");
    let text = notice_to(&gate, "ann@elsewhere.example", "stopped").await;
    assert!(text.contains("to new1@example.net  \"hello\"  from 127.0.0.1"), "{text}");
    // The contact gets a link of their own, the administrator the console's address.
    let link = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("https://console.example.org/link/"))
        .expect("a link");
    let secret = gate.records.secret_if_any(own_link::SECRET).await.unwrap().expect("a secret");
    let (who, now_s) = (("ann", "ann@elsewhere.example"), gate.now.load(Ordering::SeqCst) / 1_000_000_000);
    assert!(own_link::is_good(&secret, link, who, now_s) && !own_link::is_good(&secret, link, who, now_s + 8 * 86_400));
    let to_admin = notice_to(&gate, "admin@example.org", "stopped").await;
    assert!(to_admin.contains("Look at each mail: https://console.example.org\r\n"), "{to_admin}");
    // The paper's crafted mail, from somebody who is not logged in: everything goes.
    let order = text.split_whitespace().find(|word| word.starts_with("weir+release-")).expect("an address").to_owned();
    let mut stranger = gate.client().await;
    let other = stranger.mail("x@elsewhere.example", &letter_to(1), TEXT).await;
    assert!(other.starts_with("530 "), "an order is all that a stranger may send: {other}");
    let done = stranger.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(done.contains("21 go, 0 deleted"), "{done}");
    let again = stranger.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(again.starts_with("550 ") && again.contains("has been used"), "{again}");
    gate.held.carry_out().await.unwrap();
    assert!(gate.gone.recipients().contains(&"new21@example.net".to_owned()));
    assert_eq!(std::fs::read_dir(folder.path().join("held")).unwrap().count(), 0);
    assert!(
        gate.client().await.login("ann", "secret").await.starts_with("235 "),
        "the stop ended with the last decision"
    );
}

async fn notice_to(gate: &Gate, to: &str, word: &str) -> String {
    let letters = gate.gone.letters.lock().unwrap().clone();
    for (id, recipients) in letters {
        if recipients == [to] {
            let path = std::env::temp_dir().join(format!("weir-test-{id}.eml"));
            gate.spool.move_out(id, &path).await.unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            if text.contains(word) && text.contains("was stopped") {
                return text;
            }
        }
    }
    panic!("no notice to {to}")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_recipients_are_split_and_time_lets_them_go() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    let reply = gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.contains("3 of 18 recipients wait"), "{reply}");
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 15);
    gate.now.fetch_add(3 * 60 * 1_000_000_000, Ordering::SeqCst);
    gate.throttling.command("ann", Command::Drain).await.unwrap();
    gate.held.carry_out().await.unwrap();
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 18);
}

/// The throttle decides while the spool still waits for the disk. If that fails, what was decided is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let gate = Gate::start_on(folder.path(), Some(faults.clone())).await;
    let mut client = gate.ann().await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    faults.fail(Call::Sync, 0, 5);
    let reply = client.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.starts_with("452 4.3.1 the message could not be made safe"), "{reply}");
    // The refusal does not wait for it.
    while !gate.records.held_messages_since("r1", 0).await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(gate.records.throttle("ann").await.unwrap().unwrap().held, 0);
    assert_eq!(gate.spool.stats().messages, gate.gone.letters.lock().unwrap().len(), "only the notice");
    assert!(client.mail("ann@example.org", &letter_to(0), TEXT).await.starts_with("250 "), "the next one is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_a_message_are_dropped_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    let (filter, now) = (HeldFilter::default(), gate.now.load(Ordering::SeqCst) as i64);
    let drop_orphans = || gate.held.drop_orphans(&gate.throttling);
    gate.records.relay_alive("r1", now).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 0, "the message is here");
    // What went at once is delivered, what is held has lost its files.
    gate.gone.letters.lock().unwrap().iter().for_each(|(id, _)| gate.spool.finish(*id).unwrap());
    std::fs::rename(folder.path().join("held"), folder.path().join("elsewhere")).unwrap();
    std::fs::create_dir(folder.path().join("held")).unwrap();
    gate.records.relay_alive("r1", now + 60_000_000_000).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 0, "it was there for a minute: somebody has moved it");
    gate.records.relay_alive("r1", now - 1_000_000_000).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 3);
    assert_eq!(gate.records.held(&filter, 99).await.unwrap(), []);
    gate.held.carry_out().await.unwrap();
    assert_eq!(gate.records.held_messages_since("r1", 0).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_must_belong_to_the_login_and_headers_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let reply = client.mail("bob@example.org", &letter_to(0), TEXT).await;
    assert!(reply.starts_with("553 5.7.1 bob@example.org is not an address of the login ann"), "{reply}");
    let reply = client.mail("ann@example.org", &letter_to(0), "From: bob@example.org\r\n\r\nx").await;
    assert!(reply.starts_with("553 5.7.1 From names bob@example.org"), "{reply}");
    let reply = client.mail("ann+tag@example.org", &letter_to(0), TEXT).await;
    assert!(reply.starts_with("250 "), "{reply}");
    let id = gate.gone.letters.lock().unwrap()[0].0;
    let path = folder.path().join("m.eml");
    gate.spool.move_out(id, &path).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("Received: from client.example.org"), "{text}");
    for part in
        ["(Authenticated sender: ann)", "with ESMTPA id ", "for <new0@example.net>;", "\r\nDate: ", "\r\nMessage-ID: <"]
    {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let circling = format!("{}{TEXT}", "Received: x\r\n".repeat(60));
    assert!(client.mail("ann@example.org", &letter_to(0), &circling).await.starts_with("554 5.4.6 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_from_that_cannot_be_read_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for (header, why) in [
        ("From: ann@example.org\r\nFrom: ann@example.org", "more than one From"),
        ("From: ann@example.org\r\nfrom : ceo@example.net", "From"),
        ("From: The Boss", "From names no address"),
        ("From:", "From names no address"),
    ] {
        let reply = client.mail("ann@example.org", &letter_to(0), &format!("{header}\r\n\r\nx")).await;
        assert!(reply.starts_with("553 5.7.1 ") && reply.contains(why), "{header}: {reply}");
    }
    let reply = client.mail("", &letter_to(0), "Subject: x\r\n\r\nx").await;
    assert!(reply.starts_with("553 5.7.1 the message has no From"), "{reply}");
    // Where there is none, the sender of the envelope is meant.
    let forged = "Authentication-Results: mail.example.org; dkim=pass\r\nX-Weir-Scan: clean\r\nSubject: x\r\n\r\nx";
    assert!(client.mail("ann@example.org", &letter_to(0), forged).await.starts_with("250 "));
    let path = folder.path().join("m.eml");
    let message = gate.gone.letters.lock().unwrap()[0].0;
    gate.spool.move_out(message, &path).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\r\nFrom: <ann@example.org>\r\nSubject: x\r\n"), "{text}");
    assert!(!text.contains("Authentication-Results") && !text.contains("X-Weir-Scan"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_for_sessions_that_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let (mut early, mut late) = (gate.ann().await, gate.ann().await);
    for line in ["MAIL FROM:<ann@example.org>", "RCPT TO:<new0@example.net>", "DATA"] {
        assert!(early.say(line).await.starts_with(['2', '3']));
    }
    let mut user = gate.records.user("ann").await.unwrap().unwrap();
    (user.locked_at, user.locked_reason) = (Some(1), "a leak".into());
    gate.records.user_update(&user).await.unwrap();
    let reply = early.say(&format!("{TEXT}\r\n.")).await;
    assert!(reply.starts_with("550 5.7.1 the account ann is locked: a leak"), "{reply}");
    let reply = late.say("MAIL FROM:<ann@example.org>").await;
    assert!(reply.starts_with("550 5.7.1 the account ann is locked: a leak"), "{reply}");
    assert_eq!(gate.gone.recipients(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_counts_for_trusted_recipients_too() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut user = gate.records.user("ann").await.unwrap().unwrap();
    user.params = r#"{"trusted":["friend@example.net"]}"#.into();
    gate.records.user_update(&user).await.unwrap();
    let (mut client, friend) = (gate.ann().await, ["friend@example.net".to_owned()]);
    assert!(client.mail("ann@example.org", &friend, TEXT).await.starts_with("250 "));
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(client.mail("ann@example.org", &many, TEXT).await.contains("85 of 100 recipients wait"));
    let refused = client.mail("ann@example.org", &friend, TEXT).await;
    assert!(refused.starts_with("550 5.7.1 ann is stopped"), "{refused}");
}

/// Postfix hands on mail of all its users from one address, and names them in the header.
#[tokio::test(flavor = "multi_thread")]
async fn behind_postfix_each_user_has_a_throttle_and_settings_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start_as(folder.path(), None, |settings| {
        settings.identity = Identity::ClientAddress;
        settings.sender_must_match = false;
        settings.received_from = vec!["127.0.0.1".parse().unwrap()];
    })
    .await;
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    let by = |user: &str| {
        format!("Received: from x (y [192.0.2.9])\r\n\t(Authenticated sender: {user})\r\n\tby z; now\r\n{TEXT}")
    };
    let mut postfix = gate.client().await;
    // A program on Postfix's own machine, whom nobody vouches for.
    assert!(postfix.mail("cron@example.org", &many, TEXT).await.contains("85 of 100 recipients wait"));
    assert!(postfix.mail("cron@example.org", &letter_to(0), TEXT).await.starts_with("550 5.7.1 127.0.0.1 is stopped"));
    let reply = postfix.mail("bob@example.org", &letter_to(0), &by("bob")).await;
    assert!(reply.contains("accepted, on its way to 1 recipient"), "the stop is not theirs: {reply}");
    let reply = postfix.mail("bob@example.org", &letter_to(1), &by("BOB")).await;
    assert!(reply.contains("waits in the delay queue (1 in all)"), "one user, however it is spelled: {reply}");
    let mut user = gate.records.user("ann").await.unwrap().unwrap();
    user.profile = "exempt".into();
    gate.records.user_update(&user).await.unwrap();
    let reply = postfix.mail("ann@example.org", &many, &by("Ann")).await;
    assert!(reply.contains("accepted, on its way to 100 recipients"), "ann's own profile counts: {reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_host_has_one_throttle() {
    let folder = tempfile::tempdir().unwrap();
    let client_address = |settings: &mut Settings| settings.identity = Identity::ClientAddress;
    let gate = Gate::start_as(folder.path(), None, client_address).await;
    let many: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    for (address, expected) in
        [("2001:db8::1", "85 of 100 recipients wait"), ("2001:db8::ffff:2", "2001:db8::/64 is stopped")]
    {
        let mut client = gate.client().await;
        assert!(client.say(&format!("XCLIENT ADDR=IPV6:{address}")).await.starts_with("220 "));
        client.say("EHLO client.example.org").await;
        let reply = client.mail("x@example.org", &many, TEXT).await;
        assert!(reply.contains(expected), "{address}: {reply}");
    }
}

/// A webhook that hangs keeps no mail waiting, and what is tried again is not what is in the spool already.
#[tokio::test(flavor = "multi_thread")]
async fn notices_wait_for_no_webhook_and_are_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (spool, _) = open_spool(&folder.path().join("spool"), Some(faults.clone())).await;
    let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = notices::Webhook::parse(&format!("http://{}/", silent.local_addr().unwrap())).unwrap();
    let settings = notices::Settings {
        hostname: "mail.example.org".into(),
        admin: "admin@example.org".into(),
        webhook: Some(webhook),
        link: String::new(),
    };
    let (gone, clock): (Gone, Clock) = (Gone::default(), Arc::new(|| Instant(1_794_798_240_000_000_000)));
    let notices = Notices::start(settings, spool, records, gone.clone(), clock);
    // The second mail of the first notice cannot be written at once.
    faults.fail(Call::Sync, 1, 5);
    for user in ["ann", "bob"] {
        let contact = format!("{user}@elsewhere.example");
        notices.tell(Event { kind: NoticeKind::Stopped, identity: user.into(), contact });
    }
    let written = async {
        while gone.recipients().len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(8), written)
        .await
        .expect("the webhook is patient for ten seconds");
    let expected = ["ann@elsewhere.example", "admin@example.org", "bob@elsewhere.example", "admin@example.org"];
    assert_eq!(gone.recipients(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_what_waits_and_who_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(client.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    gate.server.shutdown(std::time::Duration::ZERO).await;
    gate.records.close().await;
    drop((gate, client));
    let gate = Gate::start(folder.path()).await;
    let goes = gate.gone.recipients();
    assert_eq!(
        goes.iter().filter(|to| to.starts_with("to")).count(),
        15,
        "what may go is sent again, no more: {goes:?}"
    );
    assert!(gate.client().await.login("ann", "secret").await.contains("85 recipients wait"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_may_have_been_acknowledged_waits_when_its_user_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(gate.ann().await.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    // The body is durable, the sender has heard 250, and the power goes before the decision is written down.
    let taken = RcptTo::parse("<last@example.net>", false).unwrap();
    let sender = MailFrom::parse("<ann@example.org>").unwrap();
    let envelope = Envelope { sender, recipients: vec![taken], forwarded: None };
    let mut draft = gate.spool.draft().unwrap();
    draft.write(TEXT.as_bytes()).await.unwrap();
    let id = draft.commit(Letter::new(&envelope, Origin::Submitted, "ann", "192.0.2.1", 7).write()).await.unwrap();
    gate.server.shutdown(std::time::Duration::ZERO).await;
    gate.records.close().await;
    drop(gate);
    let gate = Gate::start(folder.path()).await;
    let filter = HeldFilter { message: id.to_string(), ..HeldFilter::default() };
    let rows = gate.records.held(&filter, 9).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.recipient.as_str()).collect::<Vec<_>>(), ["last@example.net"]);
    assert!(gate.held.eml(id).exists() && !gate.gone.recipients().contains(&"last@example.net".to_owned()));
    let release = Command::Release(rows.iter().map(|row| row.entry).collect());
    gate.throttling.command("ann", release).await.unwrap();
    gate.held.carry_out().await.unwrap();
    assert!(gate.gone.recipients().contains(&"last@example.net".to_owned()));
}
