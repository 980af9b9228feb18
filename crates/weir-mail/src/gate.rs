//! The mail gate put together: store, throttle, held mail, submission, delivery, and the operations over them.
//!
//! [`Gate::open`] recovers what the spool holds before the first port opens. [`Gate::shutdown`] lets messages that are coming in finish,
//! answers all other clients with 421, and ends when everything is durable. [`operations_at_rest`] are the same operations for when no gate
//! runs. What happens to a letter once it may go is a [`crate::pipeline`] of stages.

mod absent;
mod at_rest;
mod bans;
mod delivering;
mod receiving;
mod recovery;
mod running;
mod settings;
mod stages;

pub use recovery::Recovered;

pub use delivering::DeliverySettings;
pub use settings::Settings;
pub use stages::StageSettings;

use crate::accounts::{Accounts, Dovecot};
use crate::clamd_door::ClamdDoor;
use crate::delivery::StartError;
use crate::delivery::resolver::ResolverError;
use crate::door::{DoorError, OpenDoors};
use crate::held::HeldMail;
use crate::inbound::senders::SenderList;
use crate::letter::Letter;
use crate::milter_door::{MilterDoor, MilterParts};
use crate::notices::{NoticeEvent, NoticeParts, Notices};
use crate::operations::{Backend, Listener, MailOperations, OperationsParts};
use crate::policy_door::PolicyDoor;
use crate::retention::Retention;
use crate::submission::{self, ClockBox, Identity, Notify, RaiseAlarm, Submission, SubmissionParts};
use crate::throttle::{NoticeKind, Throttling};
use absent::Absent;
use at_rest::AtRest;
use bans::KeptBans;
use receiving::Receiving;
use recovery::Recovery;
use running::Running;
use stages::Stages;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use weir_foundation::Foundation;
use weir_foundation::clock::Clock;
use weir_foundation::passwords::Passwords;
use weir_foundation::{sockets, supervision};
use weir_smtp::dkim::KeyError;
use weir_smtp::registry::Registry;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_store::diary::{Diary, DiaryLine};
use weir_store::spool::{FoundMessage, Spool, SpoolError};
use weir_store::tracking::{Tracking, TrackingLimits, TrackingParts};
use weir_tls::{Tls, TlsError};

/// How often the certificate's files are looked at.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(60);
/// How many letters found at start are compared with message tracking.
const FOUND_MAX: usize = 10_000;

/// A running mail gate.
pub struct Gate {
    running: Arc<Running>,
    operations: MailOperations,
    tracking: Tracking,
    recovered: Recovered,
    tls: Arc<Tls>,
    bans: Vec<KeptBans>,
    doors: OpenDoors,
    tasks: Vec<JoinHandle<()>>,
    foundation: Foundation,
    grace: Duration,
}

impl Gate {
    /// Opens the spool, recovers what is in it, and listens. `stages` is given the spool and says what the stages are started with.
    pub async fn open(
        foundation: Foundation,
        passwords: Passwords,
        settings: Settings,
        stages: impl FnOnce(&Spool) -> StageSettings,
    ) -> Result<Gate, GateError> {
        let (folder, options) = (foundation.folder.spool(), settings.store.spool.clone());
        let opened = tokio::task::spawn_blocking(move || Spool::open(folder, options)).await;
        let (spool, found) = opened.map_err(io::Error::other)??;
        let diary = diary(&foundation, &settings);
        let tracking = tracking(&foundation, &settings, diary.clone());
        let spool = spool.with_diary(diary);
        let unfinished = letters(&found);
        let tls = certificate(&settings, &foundation)?;
        let stages = Stages::start(stages(&spool), &spool)?;
        let senders = SenderList::open(&foundation.records).await;
        let works = Works::new(&foundation, passwords, &settings, (spool, stages, senders));
        let recovered = works.recover(found).await;
        if let Err(error) = works.held.drop_orphans(&works.throttling).await {
            tracing::error!(%error, "held mail is not looked through for entries without a message");
        }
        let tls = Arc::new(tls);
        let server = Arc::new(SmtpServer::new(works.submission.clone(), settings.limits.clone()));
        let _ = works.sessions.set(Arc::clone(server.registry()));
        let mut bans = vec![KeptBans::open(&server, "bans.submission", &foundation).await];
        let (listeners, receiving) = match ports(&server, &works, &foundation, &settings, &tls).await {
            Ok(open) => open,
            Err(error) => {
                // The next attempt must find nothing of this one still running.
                server.shutdown(Duration::ZERO).await;
                works.stop(settings.submission.grace).await;
                return Err(error);
            }
        };
        bans.extend(receiving.iter().map(|receiving| receiving.bans.clone()));
        let doors = match open_doors(&works, &foundation, &settings) {
            Ok(doors) => doors,
            Err(error) => {
                server.shutdown(Duration::ZERO).await;
                if let Some(receiving) = &receiving {
                    receiving.server.shutdown(Duration::ZERO).await;
                }
                works.stop(settings.submission.grace).await;
                return Err(error);
            }
        };
        let listeners = listeners.into_iter().chain(doors.listeners.clone()).collect();
        let spool_diary = works.spool.diary().clone();
        let mut tasks = vec![
            supervision::spawn("held", works.held.clone().run(works.throttling.clone(), Arc::clone(&works.clock))),
            supervision::spawn("retention", works.retention(&foundation, &settings).run()),
            supervision::spawn("mail-certificate", Arc::clone(&tls).watch(CERTIFICATE_EVERY)),
        ];
        tasks.push(supervision::spawn("tracking", follow(tracking.clone(), spool_diary, unfinished)));
        tasks.extend(bans.iter().cloned().map(|bans| supervision::spawn("bans", bans.run())));
        let Works { spool, stages, held, accounts, throttling, passwords, rules, clock, senders, .. } = works;
        let since = clock();
        let certificate = tls.files().chain.clone();
        let running = Arc::new(Running {
            server,
            accounts,
            receiving,
            senders,
            held,
            spool,
            stages,
            listeners,
            since,
            certificate,
        });
        let operations = MailOperations::new(&OperationsParts {
            foundation: foundation.clone(),
            throttling,
            passwords,
            settings: rules,
            backend: Arc::clone(&running) as Arc<_>,
            tracking: tracking.clone(),
        });
        let grace = settings.submission.grace;
        Ok(Gate { running, operations, tracking, recovered, tls, bans, doors, tasks, foundation, grace })
    }

    /// What a person in charge may do to this gate.
    pub fn operations(&self) -> &MailOperations {
        &self.operations
    }

    /// What this gate stands on.
    pub fn foundation(&self) -> &Foundation {
        &self.foundation
    }

    /// What became of the letters found at start.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// What listens where.
    pub fn listeners(&self) -> &[Listener] {
        &self.running.listeners
    }

    /// Reads the certificate again.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.tls.reload()
    }

    /// Stops listening, lets messages that are coming in finish, says 421, and makes everything durable.
    pub async fn shutdown(self) {
        let received = async {
            if let Some(receiving) = &self.running.receiving {
                receiving.server.shutdown(self.grace).await;
            }
        };
        tokio::join!(self.running.server.shutdown(self.grace), received, self.doors.close(self.grace));
        self.running.stages.pipeline.stop(self.grace).await;
        self.tasks.iter().for_each(JoinHandle::abort);
        for task in self.tasks {
            let _ = task.await;
        }
        for bans in &self.bans {
            bans.close().await;
        }
        flush(&self.running.spool).await;
        self.tracking.close().await;
        // Somebody may still have a copy; the next start of the gate must not find it in use.
        self.running.spool.close().await;
    }
}

/// Everything between the store and the ports.
struct Works {
    clock: Clock,
    spool: Spool,
    stages: Stages,
    throttling: Throttling,
    passwords: Passwords,
    held: HeldMail,
    accounts: Accounts,
    rules: Arc<submission::Settings>,
    submission: Submission,
    notices: Notices,
    /// The server's sessions, once there is a server.
    sessions: Arc<OnceLock<Arc<Registry>>>,
    /// Whom people allow and block.
    senders: SenderList,
}

impl Works {
    fn new(
        foundation: &Foundation,
        passwords: Passwords,
        settings: &Settings,
        (spool, stages, senders): (Spool, Stages, SenderList),
    ) -> Works {
        let clock = Arc::clone(&foundation.clock);
        let (records, sessions) = (foundation.records.clone(), Arc::new(OnceLock::new()));
        let (pipeline, folder) = (stages.pipeline.clone(), foundation.folder.held());
        let parts = NoticeParts {
            spool: spool.clone(),
            records: records.clone(),
            held: folder.clone(),
            pipeline: pipeline.clone(),
            clock: Arc::clone(&clock),
        };
        let notices = Notices::start(settings.notices.clone(), parts);
        let to_admin = notices.clone();
        stages.alarms.connect(move |alarm| to_admin.raise(alarm));
        let notify = telling(Arc::clone(&sessions), notices.clone());
        let bell = notices.clone();
        let alarm: RaiseAlarm = Box::new(move |alarm| bell.raise(alarm.clone()));
        let rules = Arc::new(settings.rules(&foundation.relay, foundation.recipient_secret, notify, alarm));
        let throttling = Throttling::start(records.clone(), Arc::clone(&clock));
        let held = HeldMail::new(folder, &foundation.relay, spool.clone(), &records, pipeline.clone());
        let dovecot = settings.submission.dovecot_socket.clone().map(Dovecot::new);
        let accounts = Accounts::new(&records, passwords.clone(), dovecot, rules.learn_only);
        let submission = Submission::new(SubmissionParts {
            settings: Arc::clone(&rules),
            spool: spool.clone(),
            accounts: accounts.clone(),
            records,
            throttling: throttling.clone(),
            held: held.clone(),
            pipeline,
            clock: ClockBox(Arc::clone(&clock)),
        });
        if !rules.knows_senders() {
            recovery::charge_reports(&submission, &stages.delivery);
        }
        Works {
            clock,
            spool,
            stages,
            throttling,
            passwords,
            held,
            accounts,
            rules,
            submission,
            notices,
            sessions,
            senders,
        }
    }

    /// Ends the waiting of mail that nobody decides about.
    fn retention(&self, foundation: &Foundation, settings: &Settings) -> Retention {
        Retention {
            keep: if self.rules.learn_only { Duration::MAX } else { settings.submission.keep_stopped },
            relay: foundation.relay.clone(),
            hostname: settings.notices.hostname.clone(),
            admin: settings.notices.admin.clone(),
            knows_senders: self.rules.knows_senders(),
            records: foundation.records.clone(),
            throttling: self.throttling.clone(),
            held: self.held.clone(),
            spool: self.spool.clone(),
            pipeline: self.stages.pipeline.clone(),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Ends what was started before any port was open.
    async fn stop(&self, grace: Duration) {
        self.stages.pipeline.stop(grace).await;
        flush(&self.spool).await;
    }

    /// Takes up what the last life left.
    async fn recover(&self, found: Vec<FoundMessage>) -> Recovered {
        let Works { spool, submission, held, stages, .. } = self;
        let pipeline = &stages.pipeline;
        pipeline.prepare().await;
        let recovered = Recovery { spool, submission, held, pipeline }.recover(found).await;
        tracing::info!(?recovered, "the spool's letters are taken up");
        pipeline.taken_up();
        submission.tell_untold().await;
        recovered
    }
}

async fn flush(spool: &Spool) {
    if let Err(error) = spool.flush().await {
        tracing::error!(%error, "the spool could not be flushed; some mail may be sent twice");
    }
}

/// Opens the ports of submission, and those for mail from outside if that is wanted.
async fn ports(
    server: &SmtpServer<Submission>,
    works: &Works,
    foundation: &Foundation,
    settings: &Settings,
    tls: &Arc<Tls>,
) -> Result<(Vec<Listener>, Option<Receiving>), GateError> {
    let mut listeners = listen(server, settings, tls)?;
    let receiving = match &settings.inbound {
        Some(inbound) => Some(Receiving::open(inbound, works, foundation, tls).await?),
        None => None,
    };
    listeners.extend(receiving.iter().flat_map(|receiving| receiving.listeners.clone()));
    Ok((listeners, receiving))
}

/// Opens the doors for other programs.
fn open_doors(works: &Works, foundation: &Foundation, settings: &Settings) -> Result<OpenDoors, GateError> {
    let (scan, folder) = (works.stages.scan.clone(), foundation.folder.quarantine());
    let mut doors = OpenDoors::default();
    let (place, door) = ClamdDoor::new(&settings.clamd_door, scan.clone(), folder.clone());
    doors.open(place, door)?;
    let parts = MilterParts {
        hostname: settings.hostname.clone(),
        recipients_max: settings.limits.recipients,
        message_bytes: settings.limits.message_bytes,
        folder,
        submission: works.submission.clone(),
        scanning: scan,
        spool: works.spool.clone(),
        pipeline: works.stages.pipeline.clone(),
        senders: works.senders.clone(),
        clock: ClockBox(Arc::clone(&works.clock)),
    };
    let (place, door) = MilterDoor::new(&settings.milter, parts);
    doors.open(place, door)?;
    let (place, door) = PolicyDoor::new(&settings.policy_service, works.submission.clone(), works.spool.clone());
    doors.open(place, door)?;
    Ok(doors)
}

impl From<DoorError> for GateError {
    fn from(error: DoorError) -> GateError {
        match error {
            DoorError::Tcp { address, source } => GateError::Listen { address, source },
            DoorError::Unix { path, source } => GateError::ListenUnix { path, source },
        }
    }
}

/// The operations where the mail gate is off, or does not start for now: they open no spool.
pub fn operations_without_mail(foundation: &Foundation, passwords: Passwords, settings: &Settings) -> MailOperations {
    let tracking = tracking(foundation, settings, Diary::default());
    operations_over(foundation, passwords, settings, (Arc::new(Absent), tracking))
}

/// The operations on a data folder where nothing runs.
pub fn operations_at_rest(foundation: &Foundation, passwords: Passwords, settings: &Settings) -> MailOperations {
    let diary = diary(foundation, settings);
    let backend = AtRest::new(foundation.folder.spool(), settings.store.spool.clone(), diary.clone());
    let tracking = tracking(foundation, settings, diary);
    operations_over(foundation, passwords, settings, (Arc::new(backend), tracking))
}

fn operations_over(
    foundation: &Foundation,
    passwords: Passwords,
    settings: &Settings,
    (backend, tracking): (Arc<dyn Backend>, Tracking),
) -> MailOperations {
    let nobody: Notify = Box::new(|_, _, _| {});
    MailOperations::new(&OperationsParts {
        foundation: foundation.clone(),
        throttling: Throttling::start(foundation.records.clone(), Arc::clone(&foundation.clock)),
        passwords,
        settings: Arc::new(settings.rules(&foundation.relay, foundation.recipient_secret, nobody, Box::new(|_| {}))),
        backend,
        tracking,
    })
}

/// Message tracking, which opens its file when somebody needs it.
fn tracking(foundation: &Foundation, settings: &Settings, diary: Diary) -> Tracking {
    let (folder, store) = (&foundation.folder, &settings.store);
    Tracking::new(TrackingParts {
        records: foundation.records.clone(),
        file: folder.tracking(),
        relay: foundation.relay.clone(),
        diary,
        diary_folder: folder.diary(),
        limits: TrackingLimits { bytes_max: store.tracking_bytes, age_max: store.tracking_age },
    })
}

/// What the spool had at start, as the diary would have heard of it. Of very many the newest will do: the others were there at the last start too.
fn letters(found: &[FoundMessage]) -> Vec<DiaryLine> {
    let line = |found: &FoundMessage| {
        let letter = Letter::read(&found.envelope).ok()?;
        Some(DiaryLine::new(found.id, "found", "").with(letter.facts(found.size)).at(letter.at))
    };
    found.iter().rev().take(FOUND_MAX).filter_map(line).collect()
}

/// Follows the diary. A kill may have taken lines about mail that the spool has: they are written first.
async fn follow(tracking: Tracking, diary: Diary, unfinished: Vec<DiaryLine>) {
    if !unfinished.is_empty() && tracking.is_on() {
        while matches!(tracking.catch_up(Duration::from_secs(1)).await, Ok(false)) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let ids: Vec<String> = unfinished.iter().map(|line| line.id.clone()).collect();
        match tracking.unknown(&ids).await {
            Ok(unknown) => {
                let unknown: BTreeSet<String> = unknown.into_iter().collect();
                unfinished.into_iter().filter(|line| unknown.contains(&line.id)).for_each(|line| diary.note(line));
            }
            Err(error) => tracing::warn!(%error, "mail in the spool may not be found by `weir find`"),
        }
    }
    tracking.run().await;
}

/// The diary. Without it, on a full disk say, everything else works.
fn diary(foundation: &Foundation, settings: &Settings) -> Diary {
    Diary::open(&foundation.folder.diary(), settings.store.diary_bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "the diary cannot be opened; nothing is written down for `weir trace`");
        Diary::default()
    })
}

/// A stop is a lock: the sessions of the user end, then people are told.
fn telling(sessions: Arc<OnceLock<Arc<Registry>>>, notices: Notices) -> Notify {
    Box::new(move |kind, identity: &str, contact: &str| {
        if let (NoticeKind::Stopped, Some(registry)) = (kind, sessions.get()) {
            let why = "the account is stopped after unusual mail; see the notice at your contact address";
            running::end_sessions(registry, identity, why);
        }
        notices.tell(NoticeEvent { kind, identity: identity.to_owned(), contact: contact.to_owned() });
    })
}

fn certificate(settings: &Settings, foundation: &Foundation) -> Result<Tls, TlsError> {
    let tls = match settings.submission.certificate() {
        Some(files) => Tls::load(files),
        None => {
            let mut names = vec![settings.hostname.clone(), "localhost".to_owned()];
            names.dedup();
            Tls::self_signed(&foundation.folder.tls(), &names)
        }
    }?;
    // Other mail servers often do not say which name they called.
    Ok(tls.with_names(Arc::clone(&settings.named), Some(&settings.hostname)))
}

/// A socket that listens, and where.
pub(crate) fn open(address: SocketAddr) -> Result<(TcpListener, SocketAddr), GateError> {
    let open = || {
        let listener = TcpListener::from_std(sockets::listen(address)?)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    let listening = open().map_err(|source| GateError::Listen { address, source })?;
    tracing::info!(address = %listening.1, "smtp listening");
    Ok(listening)
}

fn listen(server: &SmtpServer<Submission>, settings: &Settings, tls: &Arc<Tls>) -> Result<Vec<Listener>, GateError> {
    let login = match settings.submission.identity {
        Identity::Login => ", login required",
        Identity::ClientAddress => ", no login",
    };
    let (listen, listen_tls) = (&settings.submission.listen, &settings.submission.listen_tls);
    let plain = listen.iter().map(|address| (*address, TlsMode::StartTls(Arc::clone(tls)), "STARTTLS"));
    let implicit = listen_tls.iter().map(|address| (*address, TlsMode::Implicit(Arc::clone(tls)), "TLS"));
    let mut listeners = Vec::new();
    for (address, mode, how) in plain.chain(implicit) {
        let (listener, bound) = open(address)?;
        supervision::spawn("submission listener", server.serve(listener, settings.smtp(), mode));
        listeners.push(Listener {
            name: "submission".to_owned(),
            address: bound.to_string(),
            about: format!("{how}{login}"),
        });
    }
    Ok(listeners)
}

/// Why the gate cannot open.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The spool.
    #[error("the spool cannot be opened: {0}")]
    Spool(#[from] SpoolError),
    /// A port.
    #[error("cannot listen on {address}: {}", listen_problem(address, source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A Unix socket.
    #[error("cannot listen on {}: {source}", path.display())]
    ListenUnix {
        /// The path.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file of recipients.
    #[error("inbound.recipient_file {path} cannot be read: {source}")]
    Recipients {
        /// The file.
        path: String,
        /// What is wrong.
        source: io::Error,
    },
    /// The DNS.
    #[error("{0}")]
    Dns(#[from] ResolverError),
    /// The certificate.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Delivery.
    #[error("delivery cannot start: {0}")]
    Delivery(#[from] StartError),
    /// Keys to sign with.
    #[error("the keys to sign with cannot be read: {0}")]
    Keys(#[from] KeyError),
    /// The scan.
    #[error("the scan cannot start: {0}")]
    Scan(#[from] crate::scan::ScanError),
    /// Something of the system.
    #[error("{0}")]
    System(#[from] io::Error),
}

fn listen_problem(address: &SocketAddr, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is in use; stop what uses it, or set submission.listen, submission.listen_tls, inbound.listen, \
             inbound.listen_lmtp, scan.clamd_door.listen, milter.listen or policy_service.listen"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; use the systemd unit, or a higher port".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => source.to_string(),
    }
}
