//! The operations on both databases: users, held mail and the trail, with a clock that only the test moves.
#![allow(missing_docs)]

#[path = "../shared/submitted.rs"]
mod submitted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use submitted::Recipients;
use weir_core::throttle::{Params, RecipientKey};
use weir_core::time::Instant;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_foundation::passwords::Passwords;
use weir_foundation::{Actor, Foundation, OperationError, OperationFuture};
use weir_mail::inbound::Domains;
use weir_mail::operations::*;
use weir_mail::submission::{Identity, Settings};
use weir_mail::throttle::Throttling;
use weir_peers::Postgres;
use weir_store::folder::DataFolder;
use weir_store::records::{Fate, HeldFilter, QuarantineRow, Records};
use weir_store::spool::{Options, Spool};

/// Runs a test on both databases.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let records = crate::Records::sqlite(&folder.path().join("records.db")).await.unwrap();
                super::$name(crate::Fixture::new(records).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let url = crate::Postgres::shared().database();
                super::$name(crate::Fixture::new(crate::Records::postgres(&url).await.unwrap()).await).await;
            })*
        }
    };
}

mod held;
mod users;

const SECOND: u64 = 1_000_000_000;
/// 2026-11-15 04:00:00 UTC.
const START: u64 = 1_794_715_200 * SECOND;
const MESSAGES: [&str; 3] = ["0dh3k9w2m1c8t0qzx4p0", "0dh3k9w2m1c8t0qzx4p1", "0dh3k9w2m1c8t0qzx4p2"];

/// Operations with nothing behind them but a counter of ended sessions.
struct Fixture {
    operations: MailOperations,
    audit: AuditTrail,
    throttling: Throttling,
    records: Records,
    now: Arc<AtomicU64>,
    behind: Arc<Behind>,
    folder: tempfile::TempDir,
    foundation: Foundation,
}

struct Behind {
    ended: AtomicUsize,
    woken: AtomicUsize,
    outgoing: Mutex<Outgoing>,
    spool: Spool,
}

/// How outgoing mail is.
#[derive(Default, Clone, Copy, PartialEq)]
enum Outgoing {
    /// It cannot be reached.
    #[default]
    Away,
    /// One message waits, and nothing can be deleted.
    Stays,
    /// One of two messages can be deleted.
    Half,
}

impl Backend for Behind {
    fn vital(&self) -> Option<Vital> {
        None
    }
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
    fn end_sessions(&self, _: &str, _: &str) -> usize {
        self.ended.fetch_add(1, Ordering::SeqCst) + 1
    }
    fn sessions_of(&self, _: &str) -> usize {
        2
    }
    fn keys_changed(&self) {}
    fn spool(&self) -> OperationFuture<'_, Spool> {
        Box::pin(async { Ok(self.spool.clone()) })
    }
    fn queue(&self) -> &dyn Queue {
        self
    }
}

fn away<T>() -> OperationFuture<'static, T>
where
    T: Send + 'static,
{
    let error = OperationError::Unknown { what: "the queue is away".into(), hint: String::new() };
    Box::pin(async { Err(error) })
}

impl Queue for Behind {
    fn list<'a>(&'a self, _: &'a QueueSelection, _: usize) -> OperationFuture<'a, QueueList> {
        let entry = QueueEntry {
            message: MESSAGES[0].into(),
            user: "ann".into(),
            sender: "ann@example.org".into(),
            accepted: String::new(),
            size_bytes: 1,
            attempts: 1,
            next_attempt: None,
            recipients: Vec::new(),
        };
        match *self.outgoing.lock().unwrap() {
            Outgoing::Away => away(),
            _ => Box::pin(async { Ok(QueueList { messages: vec![entry], total: 2 }) }),
        }
    }
    fn retry<'a>(&'a self, _: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        away()
    }
    fn delete<'a>(&'a self, _: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        let gone = DroppedMessage { message: MESSAGES[0].into(), recipients: 3 };
        match *self.outgoing.lock().unwrap() {
            Outgoing::Half => Box::pin(async {
                Ok(Dropped { messages: vec![gone], problem: Some(OperationError::Failed("the disk is full".into())) })
            }),
            _ => away(),
        }
    }
}

impl Fixture {
    async fn new(records: Records) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicU64::new(START));
        let clock: Clock = {
            let now = Arc::clone(&now);
            Arc::new(move || Instant(now.load(Ordering::SeqCst)))
        };
        let throttling = Throttling::start(records.clone(), Arc::clone(&clock));
        let (spool, _) = Spool::open(folder.path().join("spool"), Options::default()).unwrap();
        let behind =
            Behind { ended: AtomicUsize::default(), woken: AtomicUsize::default(), outgoing: Mutex::default(), spool };
        let behind = Arc::new(behind);
        let foundation = Foundation {
            folder: Arc::new(DataFolder::open(folder.path().join("data")).unwrap()),
            records: records.clone(),
            relay: "here".into(),
            recipient_secret: [7; 32],
            clock,
        };
        let audit = AuditTrail::new(&foundation);
        let operations = operations(&foundation, &throttling, &behind, settings());
        Fixture { operations, audit, throttling, records, now, behind, folder, foundation }
    }

    /// The same with other settings.
    fn with(self, change: impl FnOnce(&mut Settings)) -> Fixture {
        let mut settings = settings();
        change(&mut settings);
        let operations = operations(&self.foundation, &self.throttling, &self.behind, settings);
        Fixture { operations, ..self }
    }

    async fn ann(&self) -> UserPage {
        let new = NewUser {
            name: "ann".into(),
            password: Some("correct horse".into()),
            addresses: vec!["ann@example.org".into()],
            ..NewUser::default()
        };
        self.operations.users.add(new, &me()).await.unwrap()
    }

    /// A mail to `recipients` new addresses.
    async fn mail(&self, message: &str, identity: &str, recipients: u64) {
        let first = self.now.fetch_add(SECOND, Ordering::SeqCst) / SECOND * 1000;
        let mut submission = submitted::mail(identity, &Recipients { first, count: recipients }, message, "here");
        submission.template.held_at = self.now.load(Ordering::SeqCst) as i64;
        submission.addresses = (0..recipients).map(|n| format!("to{n}@example.org")).collect();
        std::fs::write(self.file(message), "hello").unwrap();
        self.throttling.submit(submission).await.unwrap();
    }

    /// Where the message would be kept.
    fn file(&self, message: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("data/held/{message}.eml"))
    }

    async fn held(&self) -> usize {
        self.operations.held.list(&HeldSelection::default()).await.unwrap().recipients
    }
}

fn settings() -> Settings {
    Settings {
        hostname: "mail.example".into(),
        relay: "here".into(),
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
        profiles: BTreeMap::from([("list".to_owned(), Params { stop_at: 500, ..Params::default() })]),
        params: Params::default(),
        own_domains: Domains::default(),
        partner_domains: Domains::default(),
        recipient_secret: [7; 32],
        link: String::new(),
        tell_delays_over: Duration::ZERO,
        notify: Box::new(|_, _, _| {}),
        alarm: Box::new(|_| {}),
    }
}

fn operations(
    foundation: &Foundation,
    throttling: &Throttling,
    behind: &Arc<Behind>,
    settings: Settings,
) -> MailOperations {
    MailOperations::new(&OperationsParts {
        foundation: foundation.clone(),
        throttling: throttling.clone(),
        passwords: Passwords::new(2, [7; 32]).unwrap(),
        settings: Arc::new(settings),
        backend: Arc::clone(behind) as Arc<_>,
        tracking: weir_store::tracking::Tracking::default(),
    })
}

fn me() -> Actor {
    Actor::new("cli:root")
}

fn by_user(user: &str) -> HeldSelection {
    HeldSelection { user: user.into(), ..HeldSelection::default() }
}
