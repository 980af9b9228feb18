//! The other front-ends: which of their frames have arrived, which are missing, and who has gone silent.
//!
//! At most `peers_max` are known at once, each with at most [`MISSING_MAX`] missing numbers; if more are missing, everything is asked for.
//! A peer counts as alive only if a frame is newer than all its earlier ones, so nobody can keep it alive by sending old frames again.
//! For peers that were forgotten we remember the last frame ([`FORGOTTEN_MAX`]), so that old frames do not bring them back either.

use super::frame::{Header, Heartbeat, Origin, WANTED_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_core::fair::PeerId;
use weir_core::time::Instant;

#[derive(Debug)]
pub(super) struct Peers {
    known: Vec<Peer>,
    forgotten: VecDeque<(Origin, u64)>,
    peers_max: usize,
}

/// Another front-end in one of its lives.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) origin: Origin,
    pub(super) beat: Heartbeat,
    beat_us: u64,
    newest_us: u64,
    heard_at: Instant,
    delay_us: u64,
    /// The next number that has not been seen.
    next: u64,
    /// Numbers that were skipped: frames with higher numbers have arrived.
    missing: BTreeMap<u64, Missing>,
    /// Everything must be sent again, in news above this number.
    all_above: Option<u64>,
    asked_all_at: Option<Instant>,
    repaired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    noticed_at: Instant,
    asked_at: Option<Instant>,
}

/// A numbered frame, received for the first time or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    New,
    Repeated,
}

/// What should be requested from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) to: Origin,
    pub(super) all: Option<u64>,
    pub(super) numbers: Vec<u64>,
}

/// Why frames of a sender are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deaf {
    /// From an earlier life, or from a front-end of the same name.
    Earlier,
    /// `peers_max` are known.
    Crowded,
}

/// A peer that is silent for this long is forgotten.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
const MISSING_MAX: usize = 512;
const FORGOTTEN_MAX: usize = 256;
/// A frame that another has overtaken may still be under way for this long.
const PATIENCE: Duration = Duration::from_millis(10);
const ASK_AGAIN: Duration = Duration::from_millis(40);
const ASK_ALL_AGAIN: Duration = Duration::from_millis(200);

impl Peers {
    pub(super) fn new(peers_max: usize) -> Peers {
        Peers { known: Vec::new(), forgotten: VecDeque::new(), peers_max }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.known.iter()
    }

    /// Whether this frame is news that has been handled already. It needs no HMAC, because dropping the frame changes nothing.
    pub(super) fn has_seen(&self, header: &Header) -> bool {
        self.known.iter().any(|peer| peer.origin == header.origin && peer.has_seen(header.number))
    }

    /// The sender of a verified frame, which is added if it is new; and the one that it replaces.
    pub(super) fn sender(
        &mut self,
        header: &Header,
        news: bool,
        now: Instant,
    ) -> Result<(&mut Peer, Option<PeerId>), Deaf> {
        let Origin { front_end, incarnation } = header.origin;
        let place = self.known.iter().position(|peer| peer.origin.front_end == front_end);
        let mut replaced = None;
        let place = match place {
            Some(place) if self.known[place].origin.incarnation == incarnation => place,
            Some(place) if self.known[place].origin.incarnation < incarnation => {
                replaced = Some(self.known[place].id());
                self.known[place] = Peer::new(header, news, now);
                place
            }
            Some(_) => return Err(Deaf::Earlier),
            None => self.admit(header, news, now)?,
        };
        let peer = &mut self.known[place];
        peer.note_life(header, now);
        Ok((peer, replaced))
    }

    fn admit(&mut self, header: &Header, news: bool, now: Instant) -> Result<usize, Deaf> {
        let buried = |(origin, newest_us): &(Origin, u64)| {
            origin.front_end == header.origin.front_end
                && (origin.incarnation > header.origin.incarnation
                    || origin.incarnation == header.origin.incarnation && *newest_us >= header.sent_us)
        };
        if self.forgotten.iter().any(buried) {
            return Err(Deaf::Earlier);
        }
        if self.known.len() >= self.peers_max {
            return Err(Deaf::Crowded);
        }
        self.known.push(Peer::new(header, news, now));
        Ok(self.known.len() - 1)
    }

    /// Forgets one peer that has been silent for too long.
    pub(super) fn forget_silent(&mut self, now: Instant) -> Option<Origin> {
        let place = self.known.iter().position(|peer| now.since(peer.heard_at) > SILENCE)?;
        let gone = self.known.swap_remove(place);
        self.forgotten.retain(|(origin, _)| origin.front_end != gone.origin.front_end);
        if self.forgotten.len() >= FORGOTTEN_MAX {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back((gone.origin, gone.newest_us));
        Some(gone.origin)
    }

    /// This process did not run for so long: nobody counts as silent for this time.
    pub(super) fn excuse(&mut self, asleep: Duration) {
        for peer in &mut self.known {
            peer.heard_at += asleep;
        }
    }

    /// Everybody should send everything, because there is a new queue.
    pub(super) fn want_all(&mut self) {
        for peer in &mut self.known {
            peer.all_above = Some(peer.next - 1);
        }
    }

    /// What should be requested now.
    pub(super) fn wishes(&mut self, now: Instant) -> Vec<Wish> {
        self.known.iter_mut().filter_map(|peer| peer.wish(now)).collect()
    }
}

impl Peer {
    fn new(header: &Header, news: bool, now: Instant) -> Peer {
        // The first frame may itself be news: then it is the next that is noted.
        let next = if news { header.number.max(1) } else { header.number.saturating_add(1) };
        Peer {
            origin: header.origin,
            beat: Heartbeat::default(),
            beat_us: 0,
            newest_us: 0,
            heard_at: now,
            delay_us: 0,
            next,
            missing: BTreeMap::new(),
            all_above: Some(next - 1),
            asked_all_at: None,
            repaired: 0,
        }
    }

    /// The scheduler's name for it.
    pub(super) fn id(&self) -> PeerId {
        self.origin.peer()
    }

    fn note_life(&mut self, header: &Header, now: Instant) {
        if header.sent_us > self.newest_us {
            (self.newest_us, self.heard_at) = (header.sent_us, now);
        }
    }

    /// Notes how long a frame was under way, by both clocks.
    pub(super) fn note_delay(&mut self, delay_us: u64) {
        self.delay_us = (7 * self.delay_us.min(u64::MAX / 8) + delay_us.min(u64::MAX / 8)) / 8;
    }

    fn has_seen(&self, number: u64) -> bool {
        number < self.next && !self.missing.contains_key(&number)
    }

    /// News of this number is here.
    pub(super) fn note_news(&mut self, number: u64, now: Instant) -> Reception {
        if number >= self.next {
            self.note_gap(number, now);
            self.next = number.saturating_add(1);
            return Reception::New;
        }
        match self.missing.remove(&number) {
            Some(_) => {
                self.repaired += 1;
                Reception::New
            }
            None => Reception::Repeated,
        }
    }

    /// A sign of life says what has been sent so far.
    pub(super) fn note_beat(&mut self, header: &Header, beat: Heartbeat, now: Instant) {
        if header.sent_us < self.beat_us {
            return;
        }
        let number = header.number;
        (self.beat, self.beat_us) = (beat, header.sent_us);
        if number >= self.next {
            self.note_gap(number.saturating_add(1), now);
            self.next = number.saturating_add(1);
        }
        let kept = self.missing.split_off(&beat.oldest);
        if !std::mem::replace(&mut self.missing, kept).is_empty() {
            // What the sender no longer has can only be repaired by sending everything.
            self.all_above = Some(number);
        }
        if self.all_above.is_some_and(|above| beat.snapshot > above) {
            self.all_above = None;
        }
    }

    /// All numbers from the next up to `number` are missing.
    fn note_gap(&mut self, number: u64, now: Instant) {
        let gap = number - self.next;
        if gap > (MISSING_MAX - self.missing.len()) as u64 {
            self.missing.clear();
            self.all_above = Some(number);
            return;
        }
        let fresh = Missing { noticed_at: now, asked_at: None };
        self.missing.extend((self.next..number).map(|missing| (missing, fresh)));
    }

    fn wish(&mut self, now: Instant) -> Option<Wish> {
        let asked_lately = self.asked_all_at.is_some_and(|at| now.since(at) < ASK_ALL_AGAIN);
        let all = self.all_above.filter(|_| !asked_lately);
        if all.is_some() {
            self.asked_all_at = Some(now);
        }
        let due = |missing: &Missing| match missing.asked_at {
            None => now.since(missing.noticed_at) >= PATIENCE,
            Some(asked_at) => now.since(asked_at) >= ASK_AGAIN,
        };
        let due = self.missing.iter_mut().filter(|(_, missing)| due(missing)).take(WANTED_MAX);
        let numbers = due.map(|(number, missing)| {
            missing.asked_at = Some(now);
            *number
        });
        let numbers: Vec<u64> = numbers.collect();
        (all.is_some() || !numbers.is_empty()).then_some(Wish { to: self.origin, all, numbers })
    }

    pub(super) fn status(&self, now: Instant) -> PeerStatus {
        PeerStatus {
            front_end: format!("{:016x}", self.origin.front_end),
            silent_s: now.since(self.heard_at).as_secs_f64(),
            delay_ms: self.delay_us as f64 / 1e3,
            missing: self.missing.len(),
            repaired: self.repaired,
            whole: self.all_above.is_none(),
            history_version: self.beat.uses.version,
        }
    }
}

impl Origin {
    /// The scheduler's name for this life of this front-end.
    pub fn peer(self) -> PeerId {
        // Both are hashes or clocks of our own cluster; the multiplication only keeps lives apart.
        PeerId(self.front_end ^ self.incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }
}

/// The state of another front-end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    pub front_end: String,
    /// Time since its last sign of life.
    pub silent_s: f64,
    /// How long frames take, by the two machines' clocks.
    pub delay_ms: f64,
    /// Frames of it that are missing now.
    pub missing: usize,
    /// Frames that came after they were asked for.
    pub repaired: u64,
    /// Whether the news of all its sessions has been received.
    pub whole: bool,
    /// The history document that it uses.
    pub history_version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn header(front_end: u64, incarnation: u64, number: u64, sent_us: u64) -> Header {
        Header { origin: Origin { front_end, incarnation }, number, sent_us }
    }

    fn beat(snapshot: u64, oldest: u64) -> Heartbeat {
        Heartbeat { snapshot, oldest, ..Heartbeat::default() }
    }

    #[test]
    fn missing_numbers_are_asked_for_until_they_come() {
        let mut peers = Peers::new(4);
        let first = header(1, 1, 10, 1);
        let (peer, _) = peers.sender(&first, true, Instant(0)).unwrap();
        assert_eq!(peer.note_news(10, Instant(0)), Reception::New);
        assert_eq!(peer.note_news(13, Instant(0)), Reception::New);
        assert_eq!(peer.note_news(13, Instant(0)), Reception::Repeated);
        peer.note_beat(&header(1, 1, 14, 7), beat(11, 1), Instant(0));
        assert_eq!(peers.wishes(Instant(MS)), [], "told in full since, and patience");
        let wish = Wish { to: first.origin, all: None, numbers: vec![11, 12, 14] };
        assert_eq!(peers.wishes(Instant(11 * MS)), std::slice::from_ref(&wish));
        assert_eq!(peers.wishes(Instant(12 * MS)), []);
        let (peer, _) = peers.sender(&first, true, Instant(0)).unwrap();
        assert_eq!(peer.note_news(12, Instant(20 * MS)), Reception::New);
        assert_eq!(peers.wishes(Instant(60 * MS)), [Wish { numbers: vec![11, 14], ..wish }]);
        assert!(peers.has_seen(&header(1, 1, 12, 9)) && !peers.has_seen(&header(1, 1, 14, 9)));
        assert!(!peers.has_seen(&header(1, 2, 12, 9)));
    }

    #[test]
    fn everything_is_asked_for_of_a_newcomer_and_after_a_long_gap() {
        let mut peers = Peers::new(4);
        let (peer, _) = peers.sender(&header(1, 1, 10, 1), false, Instant(0)).unwrap();
        peer.note_beat(&header(1, 1, 10, 7), beat(3, 1), Instant(0));
        assert_eq!(peers.wishes(Instant(MS))[0].all, Some(10), "what it told before we listened does not count");
        assert_eq!(peers.wishes(Instant(2 * MS)), []);
        let (peer, _) = peers.sender(&header(1, 1, 10, 1), false, Instant(0)).unwrap();
        peer.note_beat(&header(1, 1, 10, 7), beat(11, 1), Instant(0));
        assert_eq!(peers.wishes(Instant(999 * MS)), []);
        let (peer, _) = peers.sender(&header(1, 1, 10, 1), false, Instant(0)).unwrap();
        peer.note_news(10_000, Instant(0));
        assert_eq!(
            peers.wishes(Instant(1999 * MS)),
            [Wish { to: header(1, 1, 0, 0).origin, all: Some(10_000), numbers: vec![] }]
        );
        let (peer, _) = peers.sender(&header(1, 1, 10, 1), false, Instant(0)).unwrap();
        peer.note_beat(&header(1, 1, 10_000, 7), beat(10_001, 1), Instant(0));
        peer.note_news(10_003, Instant(0));
        peer.note_beat(&header(1, 1, 10_003, 7), beat(10_001, 10_002), Instant(0));
        let wish = peers.wishes(Instant(2999 * MS)).remove(0);
        assert_eq!((wish.all, wish.numbers), (Some(10_003), vec![10_002]), "10 001 is gone for good");
        let (peer, _) = peers.sender(&header(1, 1, 10, 1), false, Instant(0)).unwrap();
        peer.note_beat(&header(1, 1, u64::MAX, 7), beat(0, 0), Instant(0));
        assert_eq!(peer.missing.len(), 0, "absurd numbers cost nothing");
    }

    #[test]
    fn the_silent_are_forgotten_and_old_frames_raise_nobody() {
        let mut peers = Peers::new(2);
        peers.sender(&header(1, 5, 1, 100), false, Instant(0)).unwrap();
        peers.sender(&header(1, 5, 1, 100), false, Instant(1_500 * MS)).unwrap();
        assert_eq!(peers.forget_silent(Instant(1_999 * MS)), None, "the same frame again is no sign of life");
        assert_eq!(peers.forget_silent(Instant(2_001 * MS)).map(|origin| origin.front_end), Some(1));
        assert_eq!(peers.sender(&header(1, 5, 1, 100), false, Instant(0)).err(), Some(Deaf::Earlier));
        assert_eq!(peers.sender(&header(1, 4, 1, 200), false, Instant(0)).err(), Some(Deaf::Earlier));
        assert!(peers.sender(&header(1, 5, 2, 101), false, Instant(0)).is_ok(), "it was only slow");
        let (_, replaced) = peers.sender(&header(1, 6, 1, 102), false, Instant(0)).unwrap();
        assert_eq!(replaced, Some(Origin { front_end: 1, incarnation: 5 }.peer()));
        assert_eq!(peers.sender(&header(1, 5, 3, 103), false, Instant(0)).err(), Some(Deaf::Earlier));
        assert!(peers.sender(&header(2, 1, 1, 1), false, Instant(0)).is_ok());
        assert_eq!(peers.sender(&header(3, 1, 1, 1), false, Instant(0)).err(), Some(Deaf::Crowded));
    }
}
