//! The exchange of one front-end as a state machine: boards on one side, frames on the other, time passed in.
//!
//! [`Link::tick`] drains the boards into frames, asks for what is missing, forgets silent peers and sends signs of life; [`Link::hear`]
//! takes one frame in; [`Link::next_frame`] gives out what is to be sent. The carriers need not be reliable: it is enough that most frames
//! arrive at some time.
//!
//! How losses are repaired: frames with news are numbered, and every sign of life contains the last number. A receiver asks for numbers
//! that it has not seen; the sender repeats them from its journal, or sends its complete state if they are no longer there. A front-end
//! that has just started asks all others for their complete state.
//!
//! Cost of a tick: what the boards have to tell, at most [`FRAMES_A_TICK`] frames per board. Memory: the outbox, the journal, the peers and
//! two documents, all bounded.

use super::documents::{Documents, digest_of};
use super::frame::{Body, DocumentId, Frame, FrameError, Header, Heartbeat, Origin, RECORDS_MAX};
use super::journal::Journal;
use super::peers::{Deaf, Peers, Reception, SILENCE, Wish};
use super::shared_queue::{QueueId, SharedQueue};
use super::status::{Alarm, Counters, Status};
use crate::identity::Identities;
use crate::profile::Document;
use bytes::Bytes;
use ring::hmac;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use weir_core::fair::{Profile, Report};
use weir_core::time::Instant;

/// A moment by two clocks: one that only runs forward, and the calendar in µs since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now: Instant,
    pub wall_us: u64,
}

/// The exchange of one front-end.
pub struct Link {
    origin: Origin,
    key: hmac::Key,
    identities: Identities,
    queues: Vec<Arc<dyn SharedQueue>>,
    journal: Journal,
    peers: Peers,
    documents: Documents,
    outbox: VecDeque<Bytes>,
    counters: Counters,
    sent_us: u64,
    /// Everything was last sent from this number on.
    snapshot: u64,
    snapshot_at: Option<Instant>,
    heartbeat_at: Instant,
    ticked_at: Option<Instant>,
    /// Since when some peer uses another history document.
    differs_since: Option<Instant>,
    suspects: Suspects,
    adopted: Option<Arc<Document>>,
    /// The profile that new queues are given.
    profile: Option<Arc<Profile>>,
    reports: Vec<Report>,
}

/// When something alarming was last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Suspects {
    namesake: Option<Instant>,
    crowded: Option<Instant>,
    forged: Option<Instant>,
    earlier: Option<Earlier>,
}

/// A front-end that continues in an earlier life than one that was heard.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    origin: Origin,
    newest_us: u64,
    since: Instant,
    last: Instant,
}

impl Earlier {
    /// True after longer than frames are under way, and than a process takes to end.
    fn goes_on(&self) -> bool {
        self.last.since(self.since) >= LINGERS
    }
}

/// Time between signs of life.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Everything is sent again at most this often, because that walks over all sessions.
const SNAPSHOT_AFTER: Duration = Duration::from_secs(1);
/// Frames of news that one tick may send for a queue.
pub const FRAMES_A_TICK: usize = 32;
/// Frames that wait to be sent; older ones are dropped, and are requested again.
const OUTBOX_MAX: usize = 2048;
/// If ticks are this far apart, this process did not run in between.
const ASLEEP: Duration = Duration::from_millis(200);
/// Front-ends may use different documents for as long as the switch takes.
const SWITCHING: Duration = Duration::from_secs(12);
/// If an earlier life sends for this long, these are not just late frames.
const LINGERS: Duration = Duration::from_secs(5);
/// How long an alarm stays after its last cause.
const ALARM: Duration = Duration::from_secs(10);

impl Link {
    /// The link of the front-end `origin`, listening to at most `peers_max` others.
    pub fn new(origin: Origin, key: hmac::Key, identities: Identities, peers_max: usize) -> Link {
        Link {
            origin,
            key,
            identities,
            queues: Vec::new(),
            journal: Journal::default(),
            peers: Peers::new(peers_max),
            documents: Documents::default(),
            outbox: VecDeque::new(),
            counters: Counters::default(),
            sent_us: 0,
            snapshot: 0,
            snapshot_at: None,
            heartbeat_at: Instant::ZERO,
            ticked_at: None,
            differs_since: None,
            suspects: Suspects::default(),
            adopted: None,
            profile: None,
            reports: Vec::new(),
        }
    }

    /// The schedulers from now on. If there is a new one, this front-end asks the others for everything.
    pub fn set_queues(&mut self, queues: Vec<Arc<dyn SharedQueue>>) {
        let known = |queue: &Arc<dyn SharedQueue>| self.queues.iter().any(|old| Arc::ptr_eq(old, queue));
        let new: Vec<&Arc<dyn SharedQueue>> = queues.iter().filter(|queue| !known(queue)).collect();
        if !new.is_empty() {
            self.peers.want_all();
        }
        if let Some(profile) = &self.profile {
            new.iter().for_each(|queue| queue.adopt(profile));
        }
        self.queues = queues;
    }

    /// A history document of our own, from a file or just learned. The others will get it too.
    pub fn put_document(&mut self, text: Bytes, moment: Moment) -> Result<DocumentId, crate::profile::DocumentError> {
        let document = Document::parse(&text)?;
        let id = DocumentId { version: document.version, digest: digest_of(&text) };
        if self.documents.put(id, text, moment.now) {
            self.heartbeat_at = moment.now;
        }
        Ok(id)
    }

    /// The document that was put into use since the last call.
    pub fn take_adopted(&mut self) -> Option<Arc<Document>> {
        self.adopted.take()
    }

    /// A carrier is connected (again): a sign of life is sent at once.
    pub fn connected(&mut self, moment: Moment) {
        self.heartbeat_at = moment.now;
    }

    /// The next frame to send.
    pub fn next_frame(&mut self) -> Option<Bytes> {
        self.outbox.pop_front()
    }

    /// Does what is due.
    pub fn tick(&mut self, moment: Moment) {
        self.excuse_sleep(moment.now);
        self.forget_silent(moment.now);
        for queue in 0..self.queues.len() {
            self.tell_news(queue, moment);
        }
        for Wish { to, all, numbers } in self.peers.wishes(moment.now) {
            self.send(Body::Want { to, all, numbers }, moment);
        }
        self.tend_shelf(moment);
        if moment.now >= self.heartbeat_at {
            self.heartbeat_at = moment.now + HEARTBEAT;
            let beat = self.beat();
            self.send(Body::Heartbeat(beat), moment);
        }
    }

    /// Handles a frame.
    pub fn hear(&mut self, bytes: &Bytes, moment: Moment) {
        match self.take_frame(bytes, moment) {
            Ok(()) => {}
            Err(FrameError::Forged) => {
                self.counters.frames_forged += 1;
                self.suspects.forged = Some(moment.now);
            }
            Err(FrameError::Malformed | FrameError::Version) => self.counters.frames_malformed += 1,
        }
    }

    /// A carrier did not take a frame.
    pub fn note_dropped(&mut self) {
        self.counters.frames_dropped += 1;
    }

    pub fn uses(&self) -> DocumentId {
        self.documents.uses()
    }

    /// Whether it is this front-end's turn to make this version of the history document. If those whose turn it was have missed it, it passes to the next:
    /// they may learn nothing, or be about to leave.
    pub fn has_turn(&self, version: u64, missed: u64) -> bool {
        let before = self.peers.iter().filter(|peer| peer.origin < self.origin).count() as u64;
        version.wrapping_add(missed) % (self.peers.iter().count() as u64 + 1) == before
    }

    /// The state of the exchange; the caller adds what it knows of carriers.
    pub fn status(&self, now: Instant) -> Status {
        let recent = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < ALARM);
        let differs = self.differs_since.is_some_and(|since| now.since(since) > SWITCHING);
        let earlier = self.suspects.earlier.filter(Earlier::goes_on);
        let alarms = [
            (recent(self.suspects.namesake), Alarm::Namesake),
            (recent(earlier.map(|earlier| earlier.last)), Alarm::EarlierLife),
            (recent(self.suspects.crowded), Alarm::Crowded),
            (recent(self.suspects.forged), Alarm::Forged),
            (differs, Alarm::HistoryDiffers),
        ];
        Status {
            alarms: alarms.into_iter().filter_map(|(raised, alarm)| raised.then_some(alarm)).collect(),
            carriers: Vec::new(),
            peers: self.peers.iter().map(|peer| peer.status(now)).collect(),
            history_version: self.documents.uses().version,
            counters: self.counters,
        }
    }

    /// If this process did not run for a while, the others must not count as silent.
    fn excuse_sleep(&mut self, now: Instant) {
        let asleep = self.ticked_at.replace(now).map_or(Duration::ZERO, |before| now.since(before));
        if asleep > ASLEEP {
            self.peers.excuse(asleep);
        }
    }

    fn forget_silent(&mut self, now: Instant) {
        while let Some(gone) = self.peers.forget_silent(now) {
            self.counters.peers_forgotten += 1;
            self.queues.iter().for_each(|queue| queue.forget_peer(gone.peer()));
        }
    }

    fn tell_news(&mut self, place: usize, moment: Moment) {
        for _ in 0..FRAMES_A_TICK {
            let Some(queue) = self.queues.get(place) else { return };
            let mut reports = std::mem::take(&mut self.reports);
            reports.clear();
            queue.drain(RECORDS_MAX, &mut reports);
            reports.truncate(RECORDS_MAX);
            let count = reports.len();
            if count > 0 {
                self.counters.reports_sent += count as u64;
                let frame = self.frame(Body::News { queue: queue.id(), reports }, self.journal.latest() + 1, moment);
                let bytes = frame.encode(&self.key);
                self.journal.push(bytes.clone(), moment.now);
                self.post(bytes);
                let Body::News { reports, .. } = frame.body else { return };
                self.reports = reports;
            }
            if count < RECORDS_MAX {
                return;
            }
        }
    }

    fn beat(&self) -> Heartbeat {
        let (holds, length) = self.documents.holds();
        Heartbeat {
            snapshot: self.snapshot,
            oldest: self.journal.oldest(),
            holds,
            length: length as u32,
            uses: self.documents.uses(),
        }
    }

    fn tend_shelf(&mut self, moment: Moment) {
        let newest = self.peers.iter().map(|peer| (peer.beat.holds, peer.beat.length)).max();
        if let Some((document, length)) = newest {
            for offset in self.documents.wants(document, length as usize, moment.now) {
                self.send(Body::Ask { document, offset }, moment);
            }
        }
        let differs = self.peers.iter().any(|peer| peer.beat.uses != self.documents.uses());
        self.differs_since = differs.then(|| self.differs_since.unwrap_or(moment.now));
        let others = self.peers.iter().map(|peer| peer.beat.holds);
        if let Some(text) = self.documents.due(others, moment.now) {
            self.adopt(&text);
            self.heartbeat_at = moment.now;
        }
    }

    fn adopt(&mut self, text: &Bytes) {
        // It could be read when it came; if it cannot be read now, the old profile stays.
        let Ok(document) = Document::parse(text) else { return };
        let profile = Arc::new(document.profile(&self.identities));
        self.queues.iter().for_each(|queue| queue.adopt(&profile));
        self.profile = Some(profile);
        self.adopted = Some(Arc::new(document));
    }

    fn take_frame(&mut self, bytes: &Bytes, moment: Moment) -> Result<(), FrameError> {
        let header = Header::peek(bytes)?;
        if header.origin == self.origin {
            return Ok(());
        }
        let news = Header::is_news(bytes);
        if news && self.peers.has_seen(&header) {
            self.counters.frames_known += 1;
            return Ok(());
        }
        let frame = Frame::decode(&self.key, bytes)?;
        if header.origin.front_end == self.origin.front_end {
            self.suspects.namesake = Some(moment.now);
            self.counters.frames_unheard += 1;
            return Ok(());
        }
        let reception = match self.peers.sender(&header, news, moment.now) {
            Err(deaf) => {
                self.leave_unheard(deaf, &header, moment.now);
                return Ok(());
            }
            Ok((peer, replaced)) => {
                peer.note_delay(moment.wall_us.saturating_sub(header.sent_us));
                if let Some(gone) = replaced {
                    self.queues.iter().for_each(|queue| queue.forget_peer(gone));
                }
                match &frame.body {
                    Body::News { .. } => peer.note_news(header.number, moment.now),
                    Body::Heartbeat(beat) => {
                        peer.note_beat(&header, *beat, moment.now);
                        Reception::New
                    }
                    _ => Reception::New,
                }
            }
        };
        if reception == Reception::New {
            self.counters.frames_heard += 1;
            self.take_body(&header, frame.body, moment);
        }
        Ok(())
    }

    fn leave_unheard(&mut self, deaf: Deaf, header: &Header, now: Instant) {
        self.counters.frames_unheard += 1;
        match deaf {
            Deaf::Crowded => self.suspects.crowded = Some(now),
            Deaf::Earlier => self.note_earlier(header, now),
        }
    }

    /// Only new frames show that a life goes on; one such life at a time is remembered.
    fn note_earlier(&mut self, header: &Header, now: Instant) {
        let (origin, newest_us) = (header.origin, header.sent_us);
        match &mut self.suspects.earlier {
            Some(known) if now.since(known.last) < SILENCE => {
                if known.origin == origin && newest_us > known.newest_us {
                    (known.newest_us, known.last) = (newest_us, now);
                }
            }
            earlier => *earlier = Some(Earlier { origin, newest_us, since: now, last: now }),
        }
    }

    fn take_body(&mut self, header: &Header, body: Body, moment: Moment) {
        match body {
            Body::News { queue, reports } => self.take_news(header, queue, &reports),
            Body::Want { to, all, numbers } if to == self.origin => self.repeat(all, &numbers, moment),
            Body::Ask { document, offset } => self.answer(document, offset, moment),
            Body::Page { document, offset, bytes } => {
                if let Some(text) = self.documents.take_page(document, offset, bytes) {
                    self.take_document(document, text, moment);
                }
            }
            Body::Want { .. } | Body::Heartbeat(_) => {}
        }
    }

    fn take_news(&mut self, header: &Header, queue: QueueId, reports: &[Report]) {
        self.counters.reports_heard += reports.len() as u64;
        // A backend that only other front-ends have is not counted here.
        let Some(queue) = self.queues.iter().find(|known| known.id() == queue) else { return };
        reports.iter().for_each(|report| queue.hear(header.origin.peer(), header.number, report));
    }

    fn repeat(&mut self, all: Option<u64>, numbers: &[u64], moment: Moment) {
        for number in numbers {
            if let Some(frame) = self.journal.repeat(*number, moment.now) {
                self.counters.frames_repeated += 1;
                self.post(frame);
            }
        }
        let told = all.is_none_or(|above| self.snapshot > above);
        let lately = self.snapshot_at.is_some_and(|at| moment.now.since(at) < SNAPSHOT_AFTER);
        if !told && !lately {
            self.counters.snapshots += 1;
            self.snapshot = self.journal.latest() + 1;
            self.snapshot_at = Some(moment.now);
            self.heartbeat_at = moment.now;
            self.queues.iter().for_each(|queue| queue.report_all());
        }
    }

    /// Of all that hold a document, the first by name answers.
    fn answer(&mut self, document: DocumentId, offset: u32, moment: Moment) {
        let holder = |peer: &super::peers::Peer| peer.beat.holds == document && peer.origin < self.origin;
        if self.peers.iter().any(holder) {
            return;
        }
        if let Some(bytes) = self.documents.page(document, offset) {
            self.send(Body::Page { document, offset, bytes }, moment);
        }
    }

    fn take_document(&mut self, id: DocumentId, text: Bytes, moment: Moment) {
        match Document::parse(&text) {
            Ok(document) if document.version == id.version => {
                self.documents.put(id, text, moment.now);
                self.heartbeat_at = moment.now;
            }
            _ => self.documents.refuse(id),
        }
    }

    fn send(&mut self, body: Body, moment: Moment) {
        let bytes = self.frame(body, self.journal.latest(), moment).encode(&self.key);
        self.post(bytes);
    }

    fn frame(&mut self, body: Body, number: u64, moment: Moment) -> Frame {
        // A calendar that is set back must not make a front-end look dead to the others.
        self.sent_us = moment.wall_us.max(self.sent_us + 1);
        Frame { header: Header { origin: self.origin, number, sent_us: self.sent_us }, body }
    }

    fn post(&mut self, frame: Bytes) {
        if self.outbox.len() == OUTBOX_MAX {
            self.outbox.pop_front();
            self.counters.frames_dropped += 1;
        }
        self.counters.frames_sent += 1;
        self.outbox.push_back(frame);
    }
}

#[cfg(test)]
mod tests;
