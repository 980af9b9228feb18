//! A whole submission gate on a data folder, and a client of a few lines.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use weir_core::throttle::Params;
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_foundation::passwords::Passwords;
use weir_mail::accounts::Accounts;
use weir_mail::held::HeldMail;
use weir_mail::inbound::Domains;
use weir_mail::letter::Letter;
use weir_mail::notices::{self, NoticeEvent, NoticeParts, Notices};
use weir_mail::pipeline::{Pipeline, Stage, Transit};
use weir_mail::submission::{ClockBox, Identity, Settings, Submission, SubmissionParts};
use weir_mail::throttle::Throttling;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::settings::{Auth, Settings as Listener};
use weir_store::records::{Records, UserRow};
use weir_store::spool::faults::Faults;
use weir_store::spool::{FoundMessage, MessageId, Options, Spool, SpoolError};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// When the clock of a gate begins.
pub(crate) const START_NS: u64 = 1_794_798_240_000_000_000;

type Letters = Vec<(MessageId, Vec<String>)>;

/// What would have gone out.
#[derive(Clone, Default)]
pub(crate) struct Gone {
    pub(crate) letters: Arc<Mutex<Letters>>,
}

impl Stage for Gone {
    fn take(&self, letter: Transit) -> Option<Transit> {
        let Transit { id, letter, places } = letter;
        let to = places.iter().map(|place| letter.to[*place].address.clone()).collect();
        self.letters.lock().unwrap().push((id, to));
        None
    }
}

impl Gone {
    pub(crate) fn recipients(&self) -> Vec<String> {
        self.letters.lock().unwrap().iter().flat_map(|(_, to)| to.clone()).collect()
    }
}

/// A whole submission gate on a data folder, with a clock of its own.
pub(crate) struct Gate {
    pub(crate) server: SmtpServer<Submission>,
    address: SocketAddr,
    pub(crate) spool: Spool,
    pub(crate) records: Records,
    pub(crate) throttling: Throttling,
    pub(crate) held: HeldMail,
    pub(crate) gone: Gone,
    pub(crate) now: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) async fn start(folder: &Path) -> Gate {
        Gate::start_on(folder, None).await
    }

    pub(crate) async fn start_on(folder: &Path, faults: Option<Arc<Faults>>) -> Gate {
        Gate::start_as(folder, faults, |_| {}).await
    }

    pub(crate) async fn start_as(
        folder: &Path,
        faults: Option<Arc<Faults>>,
        change: impl FnOnce(&mut Settings),
    ) -> Gate {
        let now = Arc::new(AtomicU64::new(START_NS));
        let clock: Clock = {
            let now = now.clone();
            Arc::new(move || Instant(now.load(Ordering::SeqCst)))
        };
        std::fs::create_dir_all(folder.join("held")).unwrap();
        let (spool, found) = open_spool(&folder.join("spool"), faults).await;
        let records = Records::sqlite(&folder.join("records.db")).await.unwrap();
        let (gone, throttling) = (Gone::default(), Throttling::start(records.clone(), clock.clone()));
        let passwords = Passwords::new(2, [1; 32]).unwrap();
        if records.users().find("ann").await.unwrap().is_none() {
            records.users().add(&ann(passwords.hash("secret").await.unwrap())).await.unwrap();
        }
        let pipeline = Pipeline::ending_in(gone.clone());
        let held = HeldMail::new(folder.join("held"), "r1", spool.clone(), &records, pipeline.clone());
        let settings = notices::Settings { link: "https://console.example.org/".into(), ..notice_settings() };
        let parts = NoticeParts {
            spool: spool.clone(),
            records: records.clone(),
            held: folder.join("held"),
            pipeline: pipeline.clone(),
            clock: clock.clone(),
        };
        let notices = Notices::start(settings, parts);
        let mut settings = Settings {
            hostname: "mail.example.org".into(),
            relay: "r1".into(),
            identity: Identity::Login,
            clients: Vec::new(),
            ipv6_prefix_bits: 64,
            learn_only: false,
            users_release: false,
            received_names_client: false,
            share: weir_store::spool::ShareLimits::default(),
            sender_must_match: true,
            received_from: Vec::new(),
            asked_by_servers: false,
            dovecot: false,
            profiles: BTreeMap::new(),
            params: Params::default(),
            own_domains: Domains::new(["example.org"]),
            partner_domains: Domains::default(),
            recipient_secret: [3; 32],
            link: "https://console.example.org/".into(),
            tell_delays_over: Duration::from_secs(300),
            notify: {
                let notices = notices.clone();
                Box::new(move |kind, identity, contact| {
                    notices.tell(NoticeEvent { kind, identity: identity.into(), contact: contact.into() });
                })
            },
            alarm: Box::new(move |alarm| notices.raise(alarm.clone())),
        };
        change(&mut settings);
        let accounts = Accounts::new(&records, passwords, None, settings.learn_only);
        let submission = Submission::new(SubmissionParts {
            settings: settings.into(),
            spool: spool.clone(),
            records: records.clone(),
            accounts,
            throttling: throttling.clone(),
            held: held.clone(),
            pipeline,
            clock: ClockBox(clock),
        });
        for found in found {
            let letter = Letter::read(&found.envelope).unwrap();
            submission.resume(found.id, letter).await.unwrap();
        }
        let server = SmtpServer::new(submission, SmtpLimits::default());
        let trusted = vec!["127.0.0.1".parse().unwrap()];
        let listener = Listener { auth: Auth::Optional, trusted, ..Listener::default() };
        let address = server.listen("127.0.0.1:0".parse().unwrap(), listener, TlsMode::Off).unwrap();
        Gate { server, address, spool, records, throttling, held, gone, now }
    }

    pub(crate) async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut client = Client { stream: BufReader::new(stream) };
        assert!(client.reply().await.starts_with("220 "));
        assert!(client.say("EHLO client.example.org").await.contains("AUTH PLAIN LOGIN"));
        client
    }

    pub(crate) async fn ann(&self) -> Client {
        let mut client = self.client().await;
        assert!(client.login("ann", "secret").await.starts_with("235 "), "login");
        client
    }
}

/// Tasks of an earlier gate let go of the spool as they end.
pub(crate) async fn open_spool(folder: &Path, faults: Option<Arc<Faults>>) -> (Spool, Vec<FoundMessage>) {
    let options = Options { free_floor_bytes: 0, faults, ..Options::default() };
    let open = async {
        loop {
            match Spool::open(folder, options.clone()) {
                Err(SpoolError::InUse(_)) => tokio::task::yield_now().await,
                opened => return opened.unwrap(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), open).await.expect("the spool is let go")
}

/// Notices to the administrator, without a webhook or a link.
pub(crate) fn notice_settings() -> notices::Settings {
    notices::Settings {
        hostname: "mail.example.org".into(),
        admin: "admin@example.org".into(),
        webhook: None,
        link: String::new(),
        digest_every: DAY,
        tell_delays_over: Duration::from_secs(300),
        admin_delays: false,
        silent: false,
    }
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

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn say(&mut self, line: &str) -> String {
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

    pub(crate) async fn login(&mut self, user: &str, password: &str) -> String {
        self.say(&format!("AUTH PLAIN {}", STANDARD.encode(format!("\0{user}\0{password}")))).await
    }

    /// The reply to a whole mail; or to the first command that was refused.
    pub(crate) async fn mail(&mut self, from: &str, to: &[String], text: &str) -> String {
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

pub(crate) fn letter_to(n: usize) -> Vec<String> {
    vec![format!("new{n}@example.net")]
}

pub(crate) const TEXT: &str = "From: Ann <ann@example.org>\r\nSubject: hello\r\n\r\nbody";
