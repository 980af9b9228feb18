//! The thread of the exchange: a link, its carriers, and the loop between them.
//!
//! One thread with a runtime of its own, so that proxy threads never wait for it, and it waits for them only at a board's lock. It wakes
//! every `period` (2–10 ms), and whenever a frame comes.

use super::carrier::{Carrier, CarrierEvent, Connect, Port, keep};
use super::frame::{DocumentId, Origin};
use super::incarnation;
use super::link::{Link, Moment};
use super::nats::{Nats, NatsSettings};
use super::relay::{Relay, RelaySettings};
use super::shared_queue::SharedQueue;
use super::status::{Alarm, Status};
use crate::identity::{Identities, Secret};
use crate::profile::tally::{Counted, Since, Tally};
use crate::profile::{Document, DocumentError};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use weir_core::time::Instant;
use weir_foundation::supervision;
use weir_settings::settings;

/// What the exchange needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This front-end's name; no other in the cluster may have it.
    pub name: String,
    /// Where the number of its last life is kept, so that the next one is higher; without it, only the calendar distinguishes them.
    pub incarnation_file: Option<PathBuf>,
    /// The cluster's secret: the HMAC of frames is made with it.
    pub secret: Secret,
    /// Relays; frames go to all of them.
    pub relays: Vec<RelaySettings>,
    /// NATS servers; frames go to all of them.
    pub nats: Vec<NatsSettings>,
    /// How often news goes out: 2 … 10 ms.
    pub period: Duration,
    pub peers_max: usize,
    /// How the history document is kept current; if none, only by hand.
    pub learning: Option<Learning>,
}

impl Settings {
    /// The settings of a front-end without others, with the defaults.
    pub fn new(name: &str, secret: Secret) -> Settings {
        Settings {
            name: name.to_owned(),
            incarnation_file: None,
            secret,
            relays: Vec::new(),
            nats: Vec::new(),
            period: Duration::from_millis(5),
            peers_max: 64,
            learning: None,
        }
    }
}

settings! {
    /// How the history document follows the traffic.
    #[derive(Copy)]
    pub struct Learning {
        /// How often a new version is made of what was counted
        pub period as "learn_every": Duration = duration("1h", "1s"..="30d"),
        /// After this time a count is worth half
        pub half_life: Duration = duration("30d", "1m"..="3650d"),
    }
}

/// A running exchange. Dropping it stops the thread.
pub struct Exchange {
    commands: mpsc::Sender<ExchangeCommand>,
    status: Arc<Mutex<Status>>,
    document: watch::Receiver<Option<Arc<Document>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

enum ExchangeCommand {
    Queues(Vec<Arc<dyn SharedQueue>>),
    Document(Bytes),
}

const STATUS_PERIOD: Duration = Duration::from_millis(200);

impl Exchange {
    /// Starts the thread. `tally` counts requests for the history document.
    pub fn start(
        settings: &Settings,
        identities: &Identities,
        queues: Vec<Arc<dyn SharedQueue>>,
        tally: Option<Arc<Tally>>,
    ) -> Result<Exchange, ExchangeError> {
        let (commands, inbox) = mpsc::channel(16);
        let (published, document) = watch::channel(None);
        let mut worker = Worker::new(settings, identities, tally, published)?;
        worker.link.set_queues(queues);
        // A caller that asks before the thread has run still finds the carriers.
        worker.look();
        let status = Arc::clone(&worker.status);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExchangeError::Thread)?;
        let run = supervision::watched_elsewhere("web exchange", worker.run(inbox));
        let thread = std::thread::Builder::new().name("web-exchange".to_owned());
        let thread = thread.spawn(move || runtime.block_on(run)).map_err(ExchangeError::Thread)?;
        Ok(Exchange { commands, status, document, thread: Some(thread) })
    }

    /// The schedulers from now on.
    pub fn set_queues(&self, queues: Vec<Arc<dyn SharedQueue>>) {
        self.command(ExchangeCommand::Queues(queues));
    }

    /// Offers a history document: if it is newer than the one in use, all front-ends will adopt it together.
    pub fn put_document(&self, text: &[u8]) -> Result<Document, DocumentError> {
        let document = Document::parse(text)?;
        self.command(ExchangeCommand::Document(Bytes::copy_from_slice(text)));
        Ok(document)
    }

    /// The state of the exchange, at most a fifth of a second old.
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The history document in use, as it changes.
    pub fn document(&self) -> watch::Receiver<Option<Arc<Document>>> {
        self.document.clone()
    }

    fn command(&self, command: ExchangeCommand) {
        // The queue is full only if the thread is gone or stuck; then nobody would execute the command.
        if self.commands.try_send(command).is_err() {
            tracing::error!("the exchange does not take commands");
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.commands, closed));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    link: Link,
    carriers: Vec<Carrier>,
    connect: Vec<(Transport, Port)>,
    events: mpsc::Receiver<CarrierEvent>,
    period: Duration,
    started: std::time::Instant,
    status: Arc<Mutex<Status>>,
    alarms: Vec<Alarm>,
    uncarried_since: Option<Instant>,
    published: watch::Sender<Option<Arc<Document>>>,
    lessons: Option<Lessons>,
}

/// A carrier of either kind.
enum Transport {
    Relay(Relay),
    Nats(Nats),
}

/// How long every carrier may be down before there is an alarm: a reconnection is quicker.
const UNCARRIED: Duration = Duration::from_secs(1);

impl Worker {
    fn new(
        settings: &Settings,
        identities: &Identities,
        tally: Option<Arc<Tally>>,
        published: watch::Sender<Option<Arc<Document>>>,
    ) -> Result<Worker, ExchangeError> {
        let (sender, events) = mpsc::channel(1024);
        let relays = settings.relays.iter().map(|relay| Relay::new(relay).map(Transport::Relay));
        let nats = settings.nats.iter().map(|nats| Ok(Transport::Nats(Nats::new(nats.clone()))));
        let transports: Vec<Transport> = relays.chain(nats).collect::<Result<_, rustls::Error>>()?;
        let (carriers, ports): (Vec<Carrier>, Vec<Port>) =
            transports.iter().map(|transport| Carrier::new(transport.name(), sender.clone())).unzip();
        let incarnation = incarnation::begin(settings.incarnation_file.as_deref(), wall_us());
        let origin = Origin { front_end: identities.name_key(&settings.name), incarnation };
        let key = settings.secret.hmac_key("weir exchange frames");
        Ok(Worker {
            link: Link::new(origin, key, identities.clone(), settings.peers_max),
            carriers,
            connect: transports.into_iter().zip(ports).collect(),
            events,
            period: settings.period.clamp(Duration::from_millis(2), Duration::from_millis(10)),
            started: std::time::Instant::now(),
            status: Arc::default(),
            alarms: Vec::new(),
            uncarried_since: None,
            published,
            lessons: settings.learning.zip(tally).map(|(learning, tally)| Lessons::new(learning, tally)),
        })
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<ExchangeCommand>) {
        for (place, (transport, port)) in std::mem::take(&mut self.connect).into_iter().enumerate() {
            let seed = wall_us().wrapping_add(place as u64);
            match transport {
                Transport::Relay(relay) => drop(supervision::spawn("web exchange relay", keep(relay, port, seed))),
                Transport::Nats(nats) => drop(supervision::spawn("web exchange nats", keep(nats, port, seed))),
            }
        }
        let mut tick = interval(self.period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(STATUS_PERIOD);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                command = inbox.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                _ = tick.tick() => self.link.tick(self.moment()),
                _ = look.tick() => self.look(),
                Some(event) = self.events.recv() => self.take(event),
            }
            self.send();
        }
    }

    fn moment(&self) -> Moment {
        Moment { now: Instant::ZERO + self.started.elapsed(), wall_us: wall_us() }
    }

    fn obey(&mut self, command: ExchangeCommand) {
        match command {
            ExchangeCommand::Queues(queues) => self.link.set_queues(queues),
            ExchangeCommand::Document(text) => {
                if let Err(error) = self.link.put_document(text, self.moment()) {
                    tracing::warn!(%error, "the history document cannot be used");
                }
            }
        }
    }

    fn take(&mut self, event: CarrierEvent) {
        let moment = self.moment();
        match event {
            CarrierEvent::Connected => {
                self.link.connected(moment);
                self.link.tick(moment);
            }
            CarrierEvent::Frame(frame) => self.link.hear(&frame, moment),
        }
    }

    fn send(&mut self) {
        while let Some(frame) = self.link.next_frame() {
            let taken = self.carriers.iter().filter(|carrier| carrier.send(&frame)).count();
            if taken < self.carriers.len() {
                self.link.note_dropped();
            }
        }
        if let Some(document) = self.link.take_adopted() {
            tracing::info!(version = document.version, subnets = document.subnets.len(), "history adopted");
            if let Some(lessons) = &mut self.lessons {
                lessons.adopted(&document, self.link.uses());
            }
            self.published.send_replace(Some(document));
        }
    }

    /// Brings the status up to date, and logs what is new.
    fn look(&mut self) {
        let moment = self.moment();
        let mut status = self.link.status(moment.now);
        status.carriers = self.carriers.iter().map(Carrier::state).collect();
        status.alarms.extend(self.carrier_alarm(moment.now));
        for alarm in status.alarms.iter().filter(|alarm| !self.alarms.contains(alarm)) {
            tracing::warn!(%alarm, "exchange: alarm");
        }
        for alarm in self.alarms.iter().filter(|alarm| !status.alarms.contains(alarm)) {
            tracing::info!(%alarm, "exchange: alarm over");
        }
        self.alarms.clone_from(&status.alarms);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        self.learn(moment);
    }

    fn carrier_alarm(&mut self, now: Instant) -> Option<Alarm> {
        let down = self.carriers.iter().filter(|carrier| !carrier.is_connected()).count();
        if down < self.carriers.len() || down == 0 {
            self.uncarried_since = None;
            return (down > 0).then_some(Alarm::CarrierDown);
        }
        let since = *self.uncarried_since.get_or_insert(now);
        (now.since(since) >= UNCARRIED).then_some(Alarm::NoCarrier)
    }

    fn learn(&mut self, moment: Moment) {
        let Some(lessons) = &mut self.lessons else { return };
        let current = self.published.borrow().clone();
        let next = current.as_ref().map_or(1, |document| document.version + 1);
        let now_unix_s = moment.wall_us / 1_000_000;
        if !self.link.has_turn(next, lessons.missed_turns(current.as_deref(), now_unix_s)) {
            return;
        }
        if let Some(text) = lessons.next_text(current.as_deref(), now_unix_s) {
            match self.link.put_document(text, moment) {
                Ok(id) => lessons.offered(id, now_unix_s),
                Err(error) => tracing::error!(%error, "the learned history cannot be used"),
            }
        }
    }
}

/// Turns live counts into new versions of the document.
struct Lessons {
    learning: Learning,
    tally: Arc<Tally>,
    started_unix_s: u64,
    /// Counts that no document in use holds yet, since when they were gathered, and the document that will hold them.
    pending: Counted,
    since: Since,
    offer: Option<Offer>,
}

/// A document of our own that is not in use yet.
struct Offer {
    id: DocumentId,
    /// When its counts were taken.
    taken_unix_s: u64,
}

impl Lessons {
    fn new(learning: Learning, tally: Arc<Tally>) -> Lessons {
        let started_unix_s = wall_us() / 1_000_000;
        let since = Since { unix_s: started_unix_s, document: None };
        Lessons { learning, tally, started_unix_s, pending: Counted::default(), since, offer: None }
    }

    /// How long ago the last version was made, or how long we have been there to see it.
    fn waited_s(&self, current: Option<&Document>, now_unix_s: u64) -> u64 {
        let last = current.map_or(self.started_unix_s, |document| document.made_unix_s.max(self.started_unix_s));
        now_unix_s.saturating_sub(last)
    }

    fn period_s(&self) -> u64 {
        self.learning.period.as_secs().max(1)
    }

    /// How many front-ends have let their turn pass: whoever has it makes a version when the last one is as old as the period, and has another period for
    /// it.
    fn missed_turns(&self, current: Option<&Document>, now_unix_s: u64) -> u64 {
        (self.waited_s(current, now_unix_s) / self.period_s()).saturating_sub(1)
    }

    fn next_text(&mut self, current: Option<&Document>, now_unix_s: u64) -> Option<Bytes> {
        if self.offer.is_some() || self.waited_s(current, now_unix_s) < self.period_s() {
            return None;
        }
        self.pending.add(self.tally.take());
        let document = self.pending.next_document(current, &self.since, now_unix_s, self.learning.half_life);
        Some(document.text().into())
    }

    fn offered(&mut self, id: DocumentId, taken_unix_s: u64) {
        self.offer = Some(Offer { id, taken_unix_s });
    }

    /// A document is in use. If it is ours, its counts are in it; if it is another's, ours wait for our next turn.
    fn adopted(&mut self, document: &Arc<Document>, id: DocumentId) {
        let own = self.offer.take().filter(|offer| offer.id == id);
        if let Some(Offer { taken_unix_s, .. }) = own {
            self.pending = Counted::default();
            self.since = Since { unix_s: taken_unix_s, document: Some(Arc::clone(document)) };
        }
        self.since.document.get_or_insert_with(|| Arc::clone(document));
    }
}

impl Transport {
    fn name(&self) -> String {
        match self {
            Transport::Relay(relay) => relay.name(),
            Transport::Nats(nats) => nats.name(),
        }
    }
}

fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Why there is no exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The system gave no thread or no runtime.
    #[error("no thread for the exchange: {0}")]
    Thread(std::io::Error),
    /// rustls refused its settings.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_nobody_takes_passes_to_the_next() {
        let learning = Learning { period: Duration::from_secs(3_600), half_life: Duration::from_secs(86_400) };
        let mut lessons = Lessons::new(learning, Arc::default());
        lessons.started_unix_s = 1_000;
        let document = Document::new(7, 10_000, Default::default(), crate::profile::Remainder::default());
        let missed = |after_s: u64| lessons.missed_turns(Some(&document), 10_000 + after_s);
        assert_eq!([0, 3_600, 7_199, 7_200, 10_799, 10_800].map(missed), [0, 0, 0, 1, 1, 2]);
        assert_eq!(lessons.missed_turns(None, 1_000 + 7_200), 1);
        // While nobody was there nobody had a turn.
        lessons.started_unix_s = 1_000_000;
        assert_eq!(lessons.missed_turns(Some(&document), 1_000_000 + 3_600), 0);
    }

    #[test]
    fn counts_that_others_came_before_are_gathered_on() {
        let learning = Learning { period: Duration::from_secs(1), half_life: Duration::from_secs(86_400) };
        let mut lessons = Lessons::new(learning, Arc::default());
        let of =
            |version| Arc::new(Document::new(version, 1, Default::default(), crate::profile::Remainder::default()));
        let id = |version| DocumentId { version, digest: 5 };
        lessons.since.unix_s = 100;
        lessons.adopted(&of(1), id(1));
        lessons.offered(id(2), 200);
        lessons.adopted(&of(3), id(3));
        let version = |lessons: &Lessons| lessons.since.document.as_ref().map(|document| document.version);
        assert_eq!((lessons.since.unix_s, version(&lessons)), (100, Some(1)), "another's");
        lessons.offered(id(4), 300);
        lessons.adopted(&of(4), id(4));
        assert_eq!((lessons.since.unix_s, version(&lessons)), (300, Some(4)), "its own");
    }
}
