//! An inbound gate on a data folder of its own, and a client of a few lines.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_mail::delivery::resolver::Dns;
use weir_mail::held::HeldMail;
use weir_mail::inbound::dnsbl::DnsblSettings;
use weir_mail::inbound::rates::RateSettings;
use weir_mail::inbound::senders::SenderList;
use weir_mail::inbound::{
    Authenticating, Domains, Evaluator, EvaluatorSettings, Inbound, InboundParts, RecipientRule, Settings,
};
use weir_mail::letter::{Letter, LetterOrigin};
use weir_mail::pipeline::{Pipeline, Stage, Transit};
use weir_mail::submission::{self, ClockBox};
use weir_mail::throttle::Throttling;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::reception::Alarm;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::settings::{Auth, Protocol, Purpose, Settings as Listener};
use weir_store::diary::{Diary, DiaryLine};
use weir_store::records::{Records, UserRow};
use weir_store::spool::{Marks, MessageId, Options, Spool};

type Letters = Vec<(MessageId, Arc<Letter>)>;

/// What would have gone on.
#[derive(Clone, Default, Debug)]
pub(crate) struct Gone {
    letters: Arc<Mutex<Letters>>,
}

impl Stage for Gone {
    fn take(&self, letter: Transit) -> Option<Transit> {
        let Transit { id, letter, places } = letter;
        assert_eq!(places.len(), letter.to.len());
        self.letters.lock().unwrap().push((id, letter));
        None
    }
}

impl Gone {
    pub(crate) fn letters(&self) -> Vec<Arc<Letter>> {
        self.letters.lock().unwrap().iter().map(|(_, letter)| Arc::clone(letter)).collect()
    }

    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.letters.lock().unwrap().iter().map(|(id, _)| *id).collect()
    }

    pub(crate) fn recipients(&self) -> Vec<String> {
        self.letters().iter().flat_map(|letter| letter.to.iter().map(|to| to.address.clone())).collect()
    }

    /// The letters, when there are so many.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Arc<Letter>> {
        let begun = std::time::Instant::now();
        while self.letters().len() < count {
            assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain for {count} letters");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.letters()
    }
}

/// A gate for `example.org` and everything below `sub.example.net`, as a test wants it.
pub(crate) struct Plan {
    pub(crate) recipients: RecipientRule,
    pub(crate) trusted: &'static [&'static str],
    pub(crate) hand_back: bool,
    pub(crate) evaluation: Option<EvaluatorSettings>,
    pub(crate) rates: RateSettings,
    pub(crate) dnsbl: DnsblSettings,
    pub(crate) dns: Dns,
    pub(crate) limits: SmtpLimits,
    pub(crate) users: Vec<(&'static str, Vec<&'static str>)>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            recipients: RecipientRule::Any,
            trusted: &[],
            hand_back: false,
            evaluation: None,
            rates: RateSettings::default(),
            dnsbl: DnsblSettings::default(),
            dns: Dns::System,
            limits: SmtpLimits { body_line_bytes: 0, failed_logins_per_address: 10_000, ..SmtpLimits::default() },
            users: Vec::new(),
        }
    }
}

pub(crate) struct Gate {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: SmtpServer<Inbound>,
    pub(crate) smtp: SocketAddr,
    pub(crate) lmtp: SocketAddr,
    pub(crate) spool: Spool,
    pub(crate) records: Records,
    pub(crate) throttling: Throttling,
    pub(crate) pipeline: Pipeline,
    pub(crate) gone: Gone,
    pub(crate) alarms: Arc<Mutex<Vec<Alarm>>>,
}

/// How addresses are known to the throttle.
pub(crate) fn rules() -> submission::Settings {
    submission::Settings {
        hostname: "mx.example.org".into(),
        relay: "r1".into(),
        identity: submission::Identity::Login,
        clients: Vec::new(),
        ipv6_prefix_bits: 64,
        learn_only: false,
        sender_must_match: true,
        received_from: Vec::new(),
        asked_by_servers: false,
        dovecot: false,
        profiles: std::collections::BTreeMap::new(),
        params: weir_mail::throttle::usual_person(),
        own_domains: Domains::new(["example.org"]),
        partner_domains: Domains::default(),
        recipient_secret: [3; 32],
        link: String::new(),
        users_release: false,
        received_names_client: false,
        share: weir_store::spool::ShareLimits::default(),
        tell_delays_over: Duration::ZERO,
        notify: Box::new(|_, _, _| {}),
        alarm: Box::new(|_| {}),
    }
}

impl Gate {
    pub(crate) async fn start(plan: Plan) -> Gate {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        let (spool, _) = Spool::open(folder.path().join("spool"), options).unwrap();
        let spool = spool.with_diary(Diary::open(&folder.path().join("diary"), 1 << 20).unwrap());
        let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
        for (name, addresses) in &plan.users {
            assert!(records.users().add(&user(name, addresses)).await.unwrap());
        }
        let (gone, alarms) = (Gone::default(), Arc::<Mutex<Vec<Alarm>>>::default());
        let mut pipeline = Pipeline::ending_in(gone.clone());
        let evaluator = plan.evaluation.as_ref().map(|settings| Arc::new(Evaluator::new(settings).unwrap()));
        if let Some(evaluator) = &evaluator {
            pipeline = pipeline.preceded_by(Authenticating::new(Arc::clone(evaluator), &spool, pipeline.clone()));
        }
        let smtp = Listener {
            hostname: "mx.example.org".into(),
            auth: Auth::Off,
            trusted: plan.trusted.iter().map(|network| network.parse().unwrap()).collect(),
            limits: plan.limits.clone(),
            ..Listener::default()
        };
        let settings = Settings {
            listen: Vec::new(),
            listen_lmtp: Vec::new(),
            smtp: smtp.clone(),
            domains: Domains::new(["example.org", ".sub.example.net", "bücher.example"]),
            recipients: plan.recipients,
            hand_back: plan.hand_back,
            rates: plan.rates,
            dnsbl: plan.dnsbl,
            dns: plan.dns,
            evaluation: plan.evaluation,
        };
        let heard = Arc::clone(&alarms);
        let clock: Clock = Arc::new(|| Instant(1_794_798_240_000_000_000));
        let throttling = Throttling::start(records.clone(), Arc::clone(&clock));
        let held_folder = folder.path().join("held");
        let parts = InboundParts {
            spool: spool.clone(),
            records: records.clone(),
            throttling: throttling.clone(),
            held: HeldMail::new(held_folder, "r1", spool.clone(), &records, pipeline.clone()),
            pipeline: pipeline.clone(),
            evaluator,
            senders: SenderList::open(&records).await,
            clock: ClockBox(clock),
            alarm: Box::new(move |alarm| heard.lock().unwrap().push(alarm.clone())),
            rules: Arc::new(rules()),
        };
        let inbound = Inbound::new(settings, parts).unwrap();
        let server = SmtpServer::with_purpose(inbound, plan.limits, Purpose::Inbound);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let lmtp = Listener { protocol: Protocol::Lmtp, ..smtp.clone() };
        let smtp = server.listen(any, smtp, TlsMode::Off).unwrap();
        let lmtp = server.listen(any, lmtp, TlsMode::Off).unwrap();
        Gate { folder, server, smtp, lmtp, spool, records, throttling, pipeline, gone, alarms }
    }

    /// A client that has said EHLO.
    pub(crate) async fn client(&self) -> Client {
        let mut client = Client::connect(self.smtp).await;
        assert!(client.say("EHLO client.example").await.starts_with("250"));
        client
    }

    /// A client that a listed peer names, as Postfix and nginx do.
    pub(crate) async fn client_from(&self, address: &str, helo: &str) -> Client {
        let mut client = Client::connect(self.smtp).await;
        assert!(client.say("EHLO proxy.example").await.contains("XCLIENT"), "this peer must be listed");
        assert!(client.say(&format!("XCLIENT ADDR={address} NAME=[UNAVAILABLE]")).await.starts_with("220"));
        assert!(client.say(&format!("EHLO {helo}")).await.starts_with("250"));
        client
    }

    /// What the diary says about mail of a client.
    pub(crate) fn lines_about(&self, client: &str) -> Vec<DiaryLine> {
        self.spool.diary().settle();
        let files = std::fs::read_dir(self.folder.path().join("diary")).unwrap();
        let texts: Vec<String> =
            files.map(|file| String::from_utf8(std::fs::read(file.unwrap().path()).unwrap()).unwrap()).collect();
        let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &DiaryLine| line.facts.as_ref().is_some_and(|facts| facts.client == client)).collect()
    }

    /// The text of a message in the spool.
    pub(crate) async fn text(&self, id: MessageId) -> String {
        let mut body = self.spool.body(id).unwrap();
        let mut text = Vec::new();
        while let Some(piece) = body.next().await.unwrap() {
            text.extend_from_slice(&piece);
        }
        String::from_utf8(text).unwrap()
    }
}

/// No marks.
pub(crate) fn no_marks() -> Marks {
    Marks::default()
}

pub(crate) fn is_received(letter: &Letter) -> bool {
    letter.origin == LetterOrigin::Received
}

fn user(name: &str, addresses: &[&str]) -> UserRow {
    UserRow {
        name: name.into(),
        password: String::new(),
        addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        contact: String::new(),
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
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = Client { stream: BufReader::new(stream) };
        client.reply().await;
        client
    }

    pub(crate) async fn say(&mut self, line: &str) -> String {
        if self.stream.write_all(format!("{line}\r\n").as_bytes()).await.is_err() {
            return String::new();
        }
        self.reply().await
    }

    /// A whole reply; empty if the connection is gone.
    pub(crate) async fn reply(&mut self) -> String {
        let mut whole = String::new();
        loop {
            let mut line = String::new();
            match tokio::time::timeout(Duration::from_secs(30), self.stream.read_line(&mut line)).await {
                Ok(Ok(read)) if read > 0 => whole.push_str(&line),
                Ok(_) => return whole,
                Err(_) => panic!("no reply after {whole:?}"),
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return whole;
            }
        }
    }

    /// The reply to RCPT in a transaction of its own.
    pub(crate) async fn rcpt(&mut self, path: &str) -> String {
        assert!(self.say("MAIL FROM:<sender@elsewhere.example> SMTPUTF8").await.starts_with("250"));
        let said = self.say(&format!("RCPT TO:{path}")).await;
        self.say("RSET").await;
        said
    }

    /// The reply to a whole mail, or to the first command that was refused.
    pub(crate) async fn mail(&mut self, from: &str, to: &[&str], text: &str) -> String {
        let mut commands = vec![format!("MAIL FROM:<{from}>")];
        commands.extend(to.iter().map(|to| format!("RCPT TO:<{to}>")));
        commands.push("DATA".to_owned());
        for command in commands {
            let said = self.say(&command).await;
            if !said.starts_with(['2', '3']) {
                return said;
            }
        }
        self.say(&format!("{text}\r\n.")).await
    }
}
