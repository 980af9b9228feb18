//! A ledger in memory that tests can watch, and delivery set up around it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use weir_core::time::Instant;
use weir_mail::delivery::Delivery;
use weir_mail::delivery::ledger::{DeliveryProgress, Ledger, LedgerError, OwnMail};
use weir_mail::delivery::message::{Job, OutgoingMessage, Recipient};
use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Routes, Smarthost};
use weir_mail::delivery::settings::Settings;
use weir_smtp::client::approach::{Approach, Patience};
use weir_smtp::client::content::BodySource;
use weir_smtp::envelope::{MailFrom, RcptTo};
use weir_store::diary::DiaryLine;
use weir_store::spool::{MessageId, Piece};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A ledger in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLedger {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    bodies: BTreeMap<MessageId, Vec<u8>>,
    pub(crate) progress: Vec<(MessageId, DeliveryProgress)>,
    pub(crate) finished: Vec<MessageId>,
    pub(crate) reports: Vec<String>,
    pub(crate) notes: Vec<DiaryLine>,
    /// Progress is not written down as fast as it is made.
    pub(crate) behind: bool,
    next: u64,
}

impl Default for MemoryLedger {
    fn default() -> MemoryLedger {
        MemoryLedger { state: Arc::default(), changed: watch::Sender::new(0) }
    }
}

impl MemoryLedger {
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Puts a message there.
    pub(crate) fn message(&self, sender: &str, recipients: &[&str], body: &str) -> OutgoingMessage {
        self.raw_message(sender, recipients, body.as_bytes().to_vec())
    }

    pub(crate) fn raw_message(&self, sender: &str, recipients: &[&str], body: Vec<u8>) -> OutgoingMessage {
        let sender = MailFrom::parse(sender).unwrap();
        let to = |(index, text): (usize, &&str)| Recipient {
            index: index as u32,
            to: RcptTo::parse(text, sender.smtputf8).unwrap(),
        };
        let recipients = recipients.iter().enumerate().map(to).collect();
        let size_bytes = body.len() as u64;
        let id = self.put(body);
        OutgoingMessage {
            id,
            owner: "ann".into(),
            sender,
            recipients,
            size_bytes,
            accepted_at: now(),
            sign: false,
            added: "".into(),
            hand_back: false,
            long_lines: false,
        }
    }

    fn put(&self, body: Vec<u8>) -> MessageId {
        let mut state = self.state();
        state.next += 1;
        let id: MessageId = format!("{:020}", state.next).parse().unwrap();
        state.bodies.insert(id, body);
        id
    }

    /// Waits until something is so.
    pub(crate) async fn until<T>(&self, what: &str, mut found: impl FnMut(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = found(&self.state()) {
                    return found;
                }
                changed.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => panic!("{what}: did not happen; {:?}", self.state()),
        }
    }

    /// Waits until a message is finished.
    pub(crate) async fn finished(&self, id: MessageId) {
        self.until("a message is finished", |state| state.finished.contains(&id).then_some(())).await;
    }

    /// Waits for a report to a sender.
    pub(crate) async fn report(&self) -> String {
        self.until("a report", |state| state.reports.first().cloned()).await
    }

    pub(crate) fn deferred(&self) -> usize {
        self.state()
            .progress
            .iter()
            .filter(|(_, progress)| matches!(progress, DeliveryProgress::Deferred { .. }))
            .count()
    }

    fn touch(&self) {
        self.changed.send_modify(|version| *version += 1);
    }
}

impl Ledger for MemoryLedger {
    type Body = Pieces;

    fn body(&self, id: MessageId) -> Result<Pieces, LedgerError> {
        let body = self.state().bodies.get(&id).cloned().ok_or(LedgerError::Unknown)?;
        Ok(Pieces(body.chunks(64 << 10).map(|piece| Piece::from(piece.to_vec())).rev().collect()))
    }

    fn record(&self, id: MessageId, progress: &DeliveryProgress) -> Result<(), LedgerError> {
        self.state().progress.push((id, progress.clone()));
        self.touch();
        Ok(())
    }

    fn finish(&self, id: MessageId, _recipients: &[u32]) -> Result<(), LedgerError> {
        self.state().finished.push(id);
        self.touch();
        Ok(())
    }

    fn note(&self, line: DiaryLine) {
        self.state().notes.push(line);
    }

    fn keeps_up(&self) -> bool {
        !self.state().behind
    }

    fn post(&self, mail: OwnMail) -> impl Future<Output = Result<Option<Job>, LedgerError>> + Send {
        let text = String::from_utf8_lossy(&mail.text).into_owned();
        self.state().reports.push(text);
        let message = OutgoingMessage { id: self.put(mail.text), ..mail.envelope };
        self.touch();
        async { Ok(Some(message.into())) }
    }
}

#[derive(Debug)]
pub(crate) struct Pieces(Vec<Piece>);

impl BodySource for Pieces {
    type Piece = Piece;
    type Error = LedgerError;

    async fn next(&mut self) -> Result<Option<Piece>, LedgerError> {
        Ok(self.0.pop())
    }
}

pub(crate) fn now() -> Instant {
    Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

/// Steps that may take a moment only.
pub(crate) fn impatient() -> Patience {
    let short = Duration::from_millis(800);
    Patience { connect: short, greeting: short, handshake: short, command: short, block: short, end: short }
}

/// Everything goes to one host; retries come soon; reports go nowhere.
pub(crate) fn settings(port: u16, approach: Approach) -> Settings {
    settings_for(smarthost(port, approach))
}

pub(crate) fn smarthost(port: u16, approach: Approach) -> Route {
    let hosts = vec![Endpoint::Host("127.0.0.1".into(), port)];
    Route::Smarthost(Smarthost { hosts, order: HostOrder::Failover, approach })
}

pub(crate) fn settings_for(route: Route) -> Settings {
    let mut settings = Settings::new("client.example", "/nonexistent".into());
    settings.routes = Routes::new(route).with("sender.example", Route::Refuse("reports end here".into()));
    settings.queue.retry.waits = [Duration::from_millis(20)].into();
    settings.queue.window.pause_first = Duration::from_millis(20);
    settings.queue.window.pause_most = Duration::from_millis(50);
    settings
}

pub(crate) fn start(settings: Settings, ledger: &MemoryLedger) -> Delivery<MemoryLedger> {
    Delivery::start(settings, ledger.clone(), Arc::new(now)).unwrap()
}
