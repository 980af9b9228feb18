//! The operations on both databases: users, held mail and the trail, with a clock that only the test moves.
#![allow(missing_docs)]

#[path = "shared/submitted.rs"]
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
                let records = super::Records::sqlite(&folder.path().join("records.db")).await.unwrap();
                super::$name(super::Fixture::new(records).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let url = super::Postgres::shared().database();
                super::$name(super::Fixture::new(super::Records::postgres(&url).await.unwrap()).await).await;
            })*
        }
    };
}

on_both! {
    users_are_made_changed_and_shown,
    a_contact_is_not_a_mailbox_of_the_account,
    who_is_made_anew_goes_on_with_the_figures_of_the_day,
    what_is_not_valid_is_refused_with_a_hint,
    a_lock_ends_sessions_and_stands_still_and_unlock_ends_it,
    who_is_known_elsewhere_only_can_be_locked,
    a_lock_of_somebody_known_elsewhere_forgets_nothing,
    who_is_spelled_in_other_capitals_is_the_same,
    an_account_is_meant_before_an_older_throttle_in_other_capitals,
    no_password_is_given_where_dovecot_checks_it,
    where_others_check_passwords_too_that_is_said,
    a_secured_account_has_another_password,
    what_goes_from_the_queue_is_in_the_trail_before_it_goes,
    a_lock_after_a_stop_ends_with_a_new_password_and_a_persons_does_not,
    held_mail_is_listed_by_message_and_decided_in_every_way,
    a_missing_file_is_shown_and_can_be_given_up,
    what_was_held_while_the_clock_was_ahead_can_be_decided_on,
    trust_is_remembered_with_the_user,
    own_parameters_count_for_what_waits_already,
    everything_is_in_the_trail,
    users_decide_on_their_spam_and_administrators_on_everything,
}

const SECOND: u64 = 1_000_000_000;
/// 2026-11-15 04:00:00 UTC.
const START: u64 = 1_794_715_200 * SECOND;
const MESSAGES: [&str; 3] = ["0dh3k9w2m1c8t0qzx4p0", "0dh3k9w2m1c8t0qzx4p1", "0dh3k9w2m1c8t0qzx4p2"];

async fn users_decide_on_their_spam_and_administrators_on_everything(fixture: Fixture) {
    let row = |message: &str, place: i64, queue: &str, recipient: &str| QuarantineRow {
        message: message.into(),
        place,
        relay: "here".into(),
        queue: queue.into(),
        fate: Fate::Held,
        recipient: recipient.into(),
        sender: "eve@example.net".into(),
        subject: "win".into(),
        source: "192.0.2.1".into(),
        owner: String::new(),
        origin: "received".into(),
        size: 100,
        at: START as i64,
        reason: "why".into(),
        decided_by: String::new(),
        release_to: String::new(),
    };
    let rows = [
        row(MESSAGES[0], 0, "virus", "ann@example.org"),
        row(MESSAGES[1], 0, "spam", "Ann+x@Example.org"),
        row(MESSAGES[1], 1, "spam", "bob@example.org"),
        row(MESSAGES[1], 2, "spam", "postmaster"),
    ];
    fixture.records.quarantine().add(&rows).await.unwrap();
    let list = fixture.operations.quarantine.list(&QuarantineSelection::default()).await.unwrap();
    let entries: Vec<_> = list.entries.iter().map(|e| (e.message.as_str(), e.recipients.len())).collect();
    assert_eq!(entries, [(MESSAGES[0], 1), (MESSAGES[1], 3)], "one entry a message");
    // Neither has a canonical address, which does not make them the same.
    let of_domain = Authority::User { addresses: vec!["@example.org".into()] };
    let bare = QuarantineSelection { recipient: "postmaster".into(), ..Default::default() };
    let bare =
        fixture.operations.quarantine.decide(&bare, &QuarantineDecision::Release, &of_domain, &Actor::new("ann")).await;
    assert!(bare.is_err(), "{bare:?}");
    let user = Authority::User { addresses: vec!["Ann@example.org".into()] };
    let actor = Actor::new("ann");
    let of = |message: &str| QuarantineSelection { messages: vec![message.to_owned()], ..Default::default() };
    let release = &QuarantineDecision::Release;
    let refused = fixture.operations.quarantine.decide(&of(MESSAGES[0]), release, &user, &actor).await.unwrap_err();
    assert!(refused.to_string().contains("only an administrator"), "{refused}");
    let done = fixture.operations.quarantine.decide(&of(MESSAGES[1]), release, &user, &actor).await.unwrap();
    assert_eq!(done.recipients, 1, "for themselves, not for Bob");
    let all = QuarantineSelection { all: true, ..Default::default() };
    // An operator releases no infected mail, however it is named.
    let operator = Authority::Operator;
    for selection in [of(MESSAGES[0]), QuarantineSelection { queue: "virus".into(), ..Default::default() }] {
        let refused = fixture.operations.quarantine.decide(&selection, release, &operator, &actor).await.unwrap_err();
        assert!(refused.to_string().contains("only an administrator"), "{refused}");
    }
    let found = QuarantineSelection { text: "BOB@exam".into(), ..Default::default() };
    let found = fixture.operations.quarantine.list(&found).await.unwrap();
    assert_eq!(found.entries.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), [MESSAGES[1]]);
    let nothing = QuarantineSelection::default();
    let admin = Authority::Administrator { reason: String::new() };
    let reasoned = Authority::Administrator { reason: "the sender rang".into() };
    for (selection, who, said) in
        [(of(MESSAGES[0]), &admin, "say why"), (all.clone(), &reasoned, "a message at a time")]
    {
        let refused = fixture.operations.quarantine.decide(&selection, release, who, &actor).await.unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    assert!(fixture.operations.quarantine.decide(&nothing, release, &admin, &Actor::new("cli:root")).await.is_err());
    let deleted =
        fixture.operations.quarantine.decide(&all, &QuarantineDecision::Delete, &admin, &Actor::new("cli:root")).await;
    assert_eq!(deleted.unwrap().recipients, 3);
    let decided = fixture.records.quarantine().decided("here", "", 9).await.unwrap();
    let fates: Vec<_> = decided.iter().map(|row| (row.place, row.fate, row.decided_by.as_str())).collect();
    assert_eq!(
        fates,
        [(0, Fate::Drop, "cli:root"), (0, Fate::Go, "ann"), (1, Fate::Drop, "cli:root"), (2, Fate::Drop, "cli:root")]
    );
    let trail = fixture.audit.newest(MESSAGES[1], 9).await.unwrap();
    let who: Vec<_> = trail.iter().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    assert_eq!(who, [("cli:root", "quarantine.delete"), ("ann", "quarantine.release")]);
    assert!(fixture.behind.woken.load(Ordering::SeqCst) >= 2);
    assert!(fixture.operations.feeds.status().is_err(), "nothing is scanned behind these operations");
}

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

async fn users_are_made_changed_and_shown(fixture: Fixture) {
    let page = fixture.ann().await;
    assert_eq!(
        (page.user.name.as_str(), page.user.state.as_str(), page.has_password, page.sessions),
        ("ann", "active", true, 2)
    );
    assert_eq!(page.user.created, "2026-11-15T04:00:00Z");
    assert_eq!(page.throttle.state, "open");
    let change = Change {
        contact: Some("ann@elsewhere.example".into()),
        profile: Some(Profile::List),
        throttle: OwnThrottle::default().with("max_slack", Asked::Number(9)),
        ..Change::default()
    };
    let page = fixture.operations.users.set("ann", &change, &me()).await.unwrap();
    assert_eq!(
        (page.throttle.params.0.stop_at, page.throttle.params.0.max_slack),
        (500, 9),
        "the profile's and her own"
    );
    assert_eq!(page.own_parameters, ["max_slack"]);
    let mail_is_login = NewUser { name: "bob@example.org".into(), ..NewUser::default() };
    let bob = fixture.operations.users.add(mail_is_login, &me()).await.unwrap();
    assert_eq!((bob.user.addresses.as_slice(), bob.has_password), (["bob@example.org".to_owned()].as_slice(), false));
    let list = fixture.operations.users.list("").await.unwrap();
    assert_eq!(list.users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["ann", "bob@example.org"]);
    assert_eq!(fixture.operations.users.list("ann").await.unwrap().users.len(), 1);
    let hash = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    fixture.operations.users.set_password("ann", "another horse", &me()).await.unwrap();
    assert_ne!(fixture.records.users().find("ann").await.unwrap().unwrap().password, hash);
}

async fn a_contact_is_not_a_mailbox_of_the_account(fixture: Fixture) {
    fixture.ann().await;
    let users = &fixture.operations.users;
    let add = async |name: &str, contact: &str, reads: &[&str]| {
        let new = NewUser {
            name: name.into(),
            addresses: vec![format!("{}@example.org", name.split('@').next().unwrap_or_default())],
            contact: contact.into(),
            reads: reads.iter().map(|address| (*address).to_owned()).collect(),
            ..NewUser::default()
        };
        users.add(new, &me()).await.map_err(|error| error.to_string())
    };
    for (name, contact, reads) in [
        ("carl", "carl@example.org", &[][..]),
        ("carl", "Carl+home@EXAMPLE.org", &[]),
        ("carl@example.com", "carl@example.com", &[]),
        ("carl", "info@example.org", &["info@example.org"]),
    ] {
        let error = add(name, contact, reads).await.unwrap_err();
        assert!(error.contains("mailbox of this account"), "{error}");
    }
    add("carl", "carl@home.example", &["info@example.org"]).await.unwrap();
    let contact = |to: &str| Change { contact: Some(to.into()), ..Change::default() };
    assert!(users.set("ann", &contact("ann@example.org"), &me()).await.is_err());
    users.set("ann", &contact("ann@home.example"), &me()).await.unwrap();
    let more = Change { addresses: Some(vec!["ann@home.example".into()]), ..Change::default() };
    assert!(users.set("ann", &more, &me()).await.is_err(), "the contact would become the account's own");
}

async fn who_is_made_anew_goes_on_with_the_figures_of_the_day(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail("m1", "ann", 40).await;
    let users = &fixture.operations.users;
    let before = users.show("ann").await.unwrap().throttle;
    assert!(before.stopped_since.is_some());
    fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap();
    let situation = async || fixture.records.throttles().find("ann").await.unwrap().map(|row| row.state);
    users.remove("ann", &me()).await.unwrap();
    let kept = situation().await;
    assert!(kept.as_ref().is_some_and(|state| state.contains("\"situation\":2")), "{kept:?}");
    assert!(users.show("ann").await.is_err() && users.lock("ann", "x", &me()).await.is_err(), "who is gone is gone");
    assert!(!users.exists("ann").await.unwrap(), "although the throttle is kept");
    fixture.ann().await;
    assert!(users.exists("ann").await.unwrap() && !users.exists("a\nb").await.unwrap());
    assert_eq!(situation().await, kept, "slack, counts and the number of stops are those of before");
    // After nine days nobody needs them.
    users.remove("ann", &me()).await.unwrap();
    fixture.now.fetch_add(9 * 86_400 * SECOND, Ordering::SeqCst);
    fixture.ann().await;
    assert_eq!(situation().await, None);
}

async fn what_is_not_valid_is_refused_with_a_hint(fixture: Fixture) {
    fixture.ann().await;
    let operations = &fixture.operations;
    let again = NewUser { name: "ann".into(), addresses: vec!["a@b".into()], ..NewUser::default() };
    let new = |name: &str, address: &str| NewUser {
        name: name.into(),
        addresses: vec![address.into()],
        ..NewUser::default()
    };
    let weak = NewUser { password: Some("short".into()), ..new("carl", "carl@example.org") };
    let homeless = NewUser { name: "carl".into(), ..NewUser::default() };
    let refusals = [
        operations.users.add(again, &me()).await.unwrap_err(),
        operations.users.add(new("a b", "a@b"), &me()).await.unwrap_err(),
        operations.users.add(new("carl", "nonsense"), &me()).await.unwrap_err(),
        operations.users.add(weak, &me()).await.unwrap_err(),
        operations.users.add(homeless, &me()).await.unwrap_err(),
        operations.users.show("nobody").await.unwrap_err(),
        operations.users.set("ann", &Change::default(), &me()).await.unwrap_err(),
        operations.users.lock("ann", "a\nb", &me()).await.unwrap_err(),
        operations.users.unlock("nobody", &me()).await.unwrap_err(),
        operations.held.decide(&HeldSelection::default(), Decision::Delete, &me()).await.unwrap_err(),
        operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap_err(),
        operations.held.show("nonsense").await.unwrap_err(),
        operations.held.show(MESSAGES[0]).await.unwrap_err(),
        operations.queue.retry(&QueueSelection::default(), &me()).await.unwrap_err(),
    ];
    for refused in refusals {
        assert!(!refused.hint().is_empty() && !matches!(refused, OperationError::Failed(_)), "{refused:?}");
    }
    let named = vec![MESSAGES[0].to_owned(); 1001];
    let too_many = HeldSelection { messages: named, ..HeldSelection::default() };
    assert!(operations.held.list(&too_many).await.unwrap_err().to_string().contains("at most 1000"));
    let too_many = Change { trust: (0..1001).map(|n| format!("to{n}@example.org")).collect(), ..Change::default() };
    assert!(operations.users.set("ann", &too_many, &me()).await.unwrap_err().to_string().contains("at most 1000"));
    assert_eq!(operations.users.show("ann").await.unwrap().trusted.len(), 0, "all or nothing");
}

async fn a_lock_ends_sessions_and_stands_still_and_unlock_ends_it(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    assert_eq!(fixture.held().await, 2);
    let locked = fixture.operations.users.lock("ann", "a leak", &me()).await.unwrap();
    assert_eq!((locked.sessions_ended, fixture.behind.ended.load(Ordering::SeqCst)), (1, 1));
    let page = fixture.operations.users.show("ann").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.locked_reason.as_str()), ("locked", "a leak"));
    assert!(page.throttle.in_words.contains("a person locked the account"), "{}", page.throttle.in_words);
    fixture.now.fetch_add(3600 * SECOND, Ordering::SeqCst);
    assert_eq!(fixture.held().await, 2, "nothing goes by itself");
    let done = fixture.operations.users.unlock("ann", &me()).await.unwrap();
    assert_eq!((done.lock_ended, done.stop_ended, done.held), (true, true, 2));
    assert_eq!(fixture.operations.users.show("ann").await.unwrap().user.state, "active");
    let done = fixture.operations.users.unlock("ann", &me()).await.unwrap();
    assert_eq!((done.lock_ended, done.stop_ended), (false, false));
}

/// As people of a directory are, and machines that are known by their address.
async fn who_is_known_elsewhere_only_can_be_locked(fixture: Fixture) {
    let users = &fixture.operations.users;
    assert!(
        users.lock("lara@example.org", "a leak", &me()).await.unwrap_err().to_string().contains("there is no user")
    );
    assert!(!users.exists("lara@example.org").await.unwrap());
    fixture.mail(MESSAGES[0], "lara@example.org", 17).await;
    assert!(users.exists("lara@example.org").await.unwrap(), "without an account");
    users.lock("lara@example.org", "a leak", &me()).await.unwrap();
    let page = users.show("lara@example.org").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.locked_reason.as_str()), ("locked", "a leak"));
    assert!(users.unlock("lara@example.org", &me()).await.unwrap().lock_ended);
    assert!(
        users.list("").await.unwrap().users.iter().all(|user| user.name != "lara@example.org"),
        "no account is left behind"
    );
}

async fn a_lock_of_somebody_known_elsewhere_forgets_nothing(fixture: Fixture) {
    let (users, lara) = (&fixture.operations.users, "lara@example.org");
    let correspondents = async || users.show(lara).await.unwrap().correspondents;
    let account = async || fixture.records.users().find(lara).await.unwrap();
    fixture.mail(MESSAGES[0], lara, 40).await;
    let sent = [(lara.to_owned(), (1..=5).map(RecipientKey).collect())];
    weir_mail::throttle::remember(&fixture.records.correspondents(), sent, 20_000).await.unwrap();
    // A stop that ends with a lock, because what waited was deleted.
    let done = fixture.operations.held.decide(&by_user(lara), Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.locked.as_slice(), correspondents().await), ([lara.to_owned()].as_slice(), 5));
    let refused = users.set_password(lara, "another horse", &me()).await.unwrap_err();
    assert!(refused.to_string().contains("has no password here"), "{refused}");
    assert!(users.unlock(lara, &me()).await.unwrap().lock_ended);
    assert!(account().await.is_none(), "no account that says how they log in");
    // And a person's, with a new password that would open nothing.
    let done = fixture.operations.secure(lara, Some("another horse"), &me()).await.unwrap();
    assert!(!done.new_password && done.password_elsewhere.is_some(), "{done:?}");
    assert!(account().await.unwrap().password.is_empty());
    assert!(users.unlock(lara, &me()).await.unwrap().lock_ended);
    assert!(account().await.is_none());
    assert_eq!(correspondents().await, 5);
    assert!(fixture.records.throttles().find(lara).await.unwrap().is_some());
    // What a person has set for them is not forgotten either.
    users.lock(lara, "a leak", &me()).await.unwrap();
    let contact = Change { contact: Some("lara@home.example".into()), ..Change::default() };
    users.set(lara, &contact, &me()).await.unwrap();
    users.unlock(lara, &me()).await.unwrap();
    assert_eq!(account().await.unwrap().contact, "lara@home.example");
    // Once there was an account here; now the directory has them, and they go on sending.
    users.remove(lara, &me()).await.unwrap();
    fixture.mail(MESSAGES[1], lara, 1).await;
    fixture.now.fetch_add(9 * 86_400 * SECOND, Ordering::SeqCst);
    fixture.ann().await;
    assert!(fixture.records.throttles().find(lara).await.unwrap().is_some(), "who sends is not forgotten");
}

async fn who_is_spelled_in_other_capitals_is_the_same(fixture: Fixture) {
    let users = &fixture.operations.users;
    let anna =
        |name: &str| NewUser { name: name.into(), addresses: vec!["anna@example.org".into()], ..NewUser::default() };
    users.add(anna("Anna"), &me()).await.unwrap();
    let refused = users.add(anna("anna"), &me()).await.unwrap_err();
    assert!(refused.to_string().contains("there is already a user Anna"), "{refused}");
    assert_eq!(users.lock("ANNA", "a leak", &me()).await.unwrap().name, "Anna");
    assert_eq!(users.show("Anna").await.unwrap().user.state, "locked");
    assert!(users.unlock("anna", &me()).await.unwrap().lock_ended);
    // Without an account.
    fixture.mail(MESSAGES[0], "lara@example.org", 40).await;
    let done = users.unlock("Lara@Example.org", &me()).await.unwrap();
    assert_eq!((done.name.as_str(), done.stop_ended), ("lara@example.org", true));
    assert_eq!(users.called("LARA@example.org").await.unwrap(), "lara@example.org");
    assert_eq!(users.called("nobody").await.unwrap(), "nobody");
    assert_eq!(fixture.operations.secure("LARA@example.org", None, &me()).await.unwrap().recipients_deleted, 25);
}

async fn an_account_is_meant_before_an_older_throttle_in_other_capitals(fixture: Fixture) {
    let users = &fixture.operations.users;
    let anna = NewUser { name: "Anna".into(), addresses: vec!["anna@example.org".into()], ..NewUser::default() };
    fixture.mail(MESSAGES[0], "anna", 40).await;
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_some());
    users.add(anna, &me()).await.unwrap();
    assert_eq!(users.lock("anna", "a leak", &me()).await.unwrap().name, "Anna");
    assert!(fixture.records.users().find("anna").await.unwrap().is_none(), "no second account");
    // What waits is the throttle's, and can be decided about by its name.
    assert_eq!(users.called_in_queues("anna").await.unwrap(), "anna");
    assert_eq!(users.called_in_queues("ANNA").await.unwrap(), "Anna");
    let done = users.unlock("anna", &me()).await.unwrap();
    assert_eq!((done.name.as_str(), done.lock_ended, done.stop_ended, done.held), ("Anna", true, true, 25));
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_none());
    // A stop that ends because what waits is deleted leaves a lock, and that is the account's.
    fixture.mail(MESSAGES[1], "anna", 40).await;
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_some());
    fixture.operations.held.decide(&by_user("anna"), Decision::Delete, &me()).await.unwrap();
    assert!(fixture.records.users().find("anna").await.unwrap().is_none());
    assert_eq!(users.show("Anna").await.unwrap().user.state, "locked");
}

async fn no_password_is_given_where_dovecot_checks_it(fixture: Fixture) {
    let fixture = fixture.with(|settings| settings.dovecot = true);
    fixture.ann().await;
    let users = &fixture.operations.users;
    let password = async || fixture.records.users().find("ann").await.unwrap().unwrap().password;
    let before = password().await;
    let done = fixture.operations.secure("ann", Some("another horse"), &me()).await.unwrap();
    assert_eq!((done.new_password, done.password_elsewhere.as_deref()), (false, Some("Dovecot checks it")));
    assert_ne!(password().await, before, "the one for the console is void all the same");
    users.unlock("ann", &me()).await.unwrap();
    fixture.mail(MESSAGES[0], "ann", 40).await;
    fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap();
    users.set_password("ann", "a third horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "locked", "whoever sent has Dovecot's password");
}

async fn where_others_check_passwords_too_that_is_said(fixture: Fixture) {
    let fixture = fixture.with(|settings| settings.asked_by_servers = true);
    fixture.ann().await;
    let done = fixture.operations.secure("ann", Some("another horse"), &me()).await.unwrap();
    assert!(done.new_password && done.password_elsewhere.is_some_and(|who| who.contains("mail servers")));
}

async fn a_secured_account_has_another_password(fixture: Fixture) {
    fixture.ann().await;
    let before = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    let done = fixture.operations.secure("ann", None, &me()).await.unwrap();
    assert!(!done.new_password, "nobody was told one");
    assert_eq!(done.queue_problem.as_deref(), Some("the queue is away"), "and the rest is done all the same");
    let after = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    assert!(!after.is_empty() && after != before, "the stolen password counts no more");
}

async fn what_goes_from_the_queue_is_in_the_trail_before_it_goes(fixture: Fixture) {
    fixture.ann().await;
    let outgoing = |is| *fixture.behind.outgoing.lock().unwrap() = is;
    let deleted = async || {
        let trail = fixture.audit.newest("ann", 100).await.unwrap();
        trail.into_iter().filter(|line| line.action == "queue.delete").map(|line| line.detail).collect::<Vec<_>>()
    };
    let of_ann = QueueSelection { user: "ann".into(), ..QueueSelection::default() };
    assert!(fixture.operations.queue.delete(&of_ann, &me()).await.is_err() && deleted().await.is_empty());
    outgoing(Outgoing::Stays);
    assert!(fixture.operations.queue.delete(&of_ann, &me()).await.is_err());
    assert_eq!(deleted().await, [format!("2 messages: {} …", MESSAGES[0])]);
    outgoing(Outgoing::Half);
    let problem = fixture.operations.queue.delete(&of_ann, &me()).await.unwrap_err().to_string();
    assert!(problem.starts_with("1 message was deleted, but") && problem.contains("the disk is full"), "{problem}");
    let done = fixture.operations.secure("ann", None, &me()).await.unwrap();
    assert_eq!((done.queued_deleted, done.queue_problem.as_deref()), (1, Some("the disk is full")));
    assert_eq!(deleted().await.len(), 3);
}

async fn a_lock_after_a_stop_ends_with_a_new_password_and_a_persons_does_not(fixture: Fixture) {
    fixture.ann().await;
    let users = &fixture.operations.users;
    assert!(!users.lock_if_stopped("ann", "", &me()).await.unwrap(), "she is not stopped");
    fixture.mail(MESSAGES[0], "ann", 40).await;
    let one = HeldSelection { recipient: "to30@example.org".into(), ..HeldSelection::default() };
    let done = fixture.operations.held.decide(&one, Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.recipients, done.locked.len()), (1, 0), "the stop goes on");
    let all = HeldSelection { user: "ann".into(), ..HeldSelection::default() };
    let done = fixture.operations.held.decide(&all, Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.stops_ended.len(), done.locked), (0, vec!["ann".to_owned()]), "whoever sent it would go on");
    let page = users.show("ann").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.held), ("locked", 0));
    assert!(page.user.locked_reason.starts_with("stopped after unusual mail"), "{}", page.user.locked_reason);
    users.set_password("ann", "another horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "active");
    users.lock("ann", "a leak", &me()).await.unwrap();
    users.set_password("ann", "a third horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "locked");
}

async fn held_mail_is_listed_by_message_and_decided_in_every_way(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 18).await;
    fixture.mail(MESSAGES[1], "ann", 3).await;
    fixture.mail(MESSAGES[2], "bob", 40).await;
    let list = fixture.operations.held.list(&HeldSelection::default()).await.unwrap();
    let counts: Vec<_> = list.messages.iter().map(|held| (held.user.as_str(), held.recipients.len())).collect();
    assert_eq!(counts, [("ann", 3), ("ann", 3), ("bob", 25)]);
    let expected = list.messages[0].recipients[0].expected.as_deref();
    assert_eq!(expected, Some("2026-11-15T04:01:01Z"), "the end of the first period");
    assert!(list.messages[2].stopped && list.messages[2].recipients[0].expected.is_none());
    for most in 1..=3 {
        let first = fixture.operations.held.first(&HeldSelection::default(), most).await.unwrap();
        assert_eq!((first.more, &first.messages[..]), (most < 3, &list.messages[..most]), "no message is cut");
    }

    let page = fixture.operations.held.show(MESSAGES[0]).await.unwrap();
    assert!(page.why.contains("allowance for new recipients (1 a minute)") && page.choices.len() == 3, "{page:?}");
    assert!(page.attachments.is_empty() && page.attachments_unseen.is_none(), "{page:?}");
    let invoice = "MIME-Version: 1.0\r\nContent-Type: application/pdf; name=invoice.pdf\r\n\r\n%PDF-1.7";
    std::fs::write(fixture.file(MESSAGES[0]), invoice).unwrap();
    let page = fixture.operations.held.show(MESSAGES[0]).await.unwrap();
    let attachment = Attachment { name: "invoice.pdf".into(), media_type: "application/pdf".into(), size_bytes: 8 };
    assert_eq!((page.attachments, page.size_bytes), (vec![attachment], Some(invoice.len() as u64)));
    assert!(fixture.operations.held.show(MESSAGES[2]).await.unwrap().why.contains("more than 20 recipients waited"));

    let one = HeldSelection {
        messages: vec![MESSAGES[0].into()],
        recipient: "to15@example.org".into(),
        ..Default::default()
    };
    let done = fixture.operations.held.decide(&one, Decision::Release, &me()).await.unwrap();
    assert_eq!((done.recipients, done.users.as_slice()), (1, ["ann".to_owned()].as_slice()));
    let recipient = HeldSelection { recipient: "to2@example.org".into(), ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&recipient, Decision::Delete, &me()).await.unwrap().recipients, 1);
    let message = HeldSelection { messages: vec![MESSAGES[0].into()], ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&message, Decision::Delete, &me()).await.unwrap().recipients, 2);
    let done = fixture.operations.held.decide(&by_user("bob"), Decision::Release, &me()).await.unwrap();
    assert_eq!((done.recipients, done.stops_ended.as_slice()), (25, ["bob".to_owned()].as_slice()));
    let all = HeldSelection { all: true, ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&all, Decision::Release, &me()).await.unwrap().recipients, 2);
    assert_eq!(fixture.held().await, 0);
    assert!(fixture.behind.woken.load(Ordering::SeqCst) >= 5);
    let decided = fixture.records.held().decided("here", "", 1000).await.unwrap();
    assert_eq!(decided.iter().filter(|row| row.fate == Fate::Drop).count(), 3);
    assert_eq!(decided.iter().filter(|row| row.fate == Fate::Go).count(), 28);
}

async fn a_missing_file_is_shown_and_can_be_given_up(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let shown = async || fixture.operations.held.list(&HeldSelection::default()).await.unwrap().messages;
    assert!(!shown().await[0].file_missing);
    std::fs::remove_file(fixture.file(MESSAGES[0])).unwrap();
    let letter = fixture.file(MESSAGES[0]).with_extension("json");
    std::fs::write(&letter, b"{}").unwrap();
    assert!(shown().await[0].file_missing);
    fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    let stuck = shown().await;
    assert!(stuck.len() == 1 && stuck[0].file_missing && stuck[0].recipients.len() == 2, "released, and cannot go");
    assert!(fixture.operations.held.show(MESSAGES[0]).await.unwrap().why.contains("its file is missing"));
    assert_eq!(fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap().recipients, 2);
    assert!(shown().await.is_empty() && fixture.records.held().decided("here", "", 9).await.unwrap().is_empty());
    assert!(!letter.exists(), "nothing is left of it");
}

async fn what_was_held_while_the_clock_was_ahead_can_be_decided_on(fixture: Fixture) {
    fixture.ann().await;
    let month = 30 * 86_400 * SECOND;
    fixture.now.fetch_add(month, Ordering::SeqCst);
    fixture.mail(MESSAGES[0], "ann", 17).await;
    fixture.now.fetch_sub(month, Ordering::SeqCst);
    let done = fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    assert_eq!(done.recipients, 2);
}

async fn trust_is_remembered_with_the_user(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let done = fixture.operations.held.decide(&by_user("ann"), Decision::Trust, &me()).await.unwrap();
    assert_eq!(done.trusted, ["to15@example.org", "to16@example.org"]);
    assert_eq!(fixture.operations.users.show("ann").await.unwrap().trusted, done.trusted);
    fixture.mail(MESSAGES[1], "ghost", 17).await;
    let refused = fixture.operations.held.decide(&by_user("ghost"), Decision::Trust, &me()).await.unwrap_err();
    assert!(refused.to_string().contains("there is no user ghost"), "trust belongs to a user: {refused}");
    assert_eq!(fixture.held().await, 2, "and nothing was released");
    let change =
        Change { distrust: vec!["TO15@example.org".into()], trust: vec!["x@y.org".into()], ..Change::default() };
    let page = fixture.operations.users.set("ann", &change, &me()).await.unwrap();
    assert_eq!(page.trusted, ["to15@example.org", "to16@example.org", "x@y.org"], "local parts have case");
}

async fn own_parameters_count_for_what_waits_already(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let rate = OwnThrottle::default().with("rate", Asked::PerMin(60.0)).with("multi_rate", Asked::PerMin(60.0));
    let page =
        fixture.operations.users.set("ann", &Change { throttle: rate, ..Change::default() }, &me()).await.unwrap();
    assert_eq!(page.throttle.params.0.rate_period.as_secs(), 1);
    let last = page.throttle.last_at.unwrap();
    assert!(last.as_str() <= "2026-11-15T04:00:05Z", "two seconds instead of two minutes: {last}");
    let rows = fixture.records.held().list(&HeldFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 2);
}

async fn everything_is_in_the_trail(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    fixture.operations.users.set_password("ann", "another horse", &me()).await.unwrap();
    fixture.operations.users.lock("ann", "a leak", &me()).await.unwrap();
    fixture.operations.users.unlock("ann", &Actor::new("bob")).await.unwrap();
    fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    let trail = fixture.audit.newest("ann", 100).await.unwrap();
    let said: Vec<_> = trail.iter().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    let expected = [
        ("cli:root", "held.release"),
        ("bob", "user.unlock"),
        ("cli:root", "user.lock"),
        ("cli:root", "user.passwd"),
        ("cli:root", "user.add"),
    ];
    assert_eq!(said, expected);
    assert!(trail.iter().all(|line| !line.detail.contains("horse")), "no password in the trail");
    assert_eq!(fixture.audit.newest("", 2).await.unwrap().len(), 2);
}
