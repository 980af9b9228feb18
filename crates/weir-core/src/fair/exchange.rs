//! Reports between front-ends: how much service each session has had so far, and whether it has a request at the moment.
//!
//! Reports carry totals, not differences. For each peer and session, the charge is the highest total heard less the lowest, so repeated,
//! late and reordered reports make no difference. Counting starts at the first report heard. Whether the session is active there is taken
//! from the newest report: in the latest life of the session's record, the one with the highest number. A peer that is forgotten takes its
//! active sessions with it; debts stay.

use super::keys::KeyMap;
use super::subnets::Stale;
use super::{Fair, FairRefusal, PeerId, SessionKey, SubnetKey, Work};

/// News of one session at one front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session.
    pub session: SessionKey,
    /// Its subnet.
    pub subnet: SubnetKey,
    /// Which record of that session at that front-end; a later one counts from zero again.
    pub life: u32,
    /// Service received there in this life, in all.
    pub served: Work,
    /// Whether it has a waiting or running request there.
    pub active: bool,
}

/// Another front-end.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    id: PeerId,
    heard: KeyMap<Heard>,
}

impl Peer {
    pub(super) fn forget(&mut self, session: u64) {
        self.heard.remove(&session);
    }
}

/// What a peer has said of one session.
#[derive(Clone, Copy, Debug)]
struct Heard {
    life: u32,
    active: bool,
    /// Number of the report that `active` is from.
    number: u64,
    lowest: u64,
    highest: u64,
}

impl Heard {
    /// Takes a report in; returns how much more service it shows.
    fn update(&mut self, number: u64, report: &Report) -> u64 {
        match report.life.wrapping_sub(self.life) as i32 {
            0 => {}
            // From a record that the peer has given up long ago.
            ..0 => return 0,
            1.. => {
                *self = Heard { life: report.life, active: report.active, number, lowest: 0, highest: 0 };
            }
        }
        let before = self.highest - self.lowest;
        self.lowest = self.lowest.min(report.served.0);
        self.highest = self.highest.max(report.served.0);
        if number > self.number {
            (self.number, self.active) = (number, report.active);
        }
        self.highest - self.lowest - before
    }
}

impl Fair {
    /// A report of another front-end. `number` counts that front-end's frames.
    pub fn hear(&mut self, peer: PeerId, number: u64, report: &Report) -> Result<(), FairRefusal> {
        let peer = self.peer(peer)?;
        let slot = self.session_slot(report.session, report.subnet)?;
        self.touch(self.sessions.at(slot).subnet);
        let fresh =
            Heard { life: report.life, active: false, number, lowest: report.served.0, highest: report.served.0 };
        let (mut was_active, mut service) = (false, 0);
        let heard = self.peers[peer].heard.entry(report.session.0).and_modify(|heard| {
            was_active = heard.active;
            service = heard.update(number, report);
        });
        let heard = heard.or_insert_with(|| {
            self.sessions.at_mut(slot).heard_from += 1;
            Heard { active: report.active, ..fresh }
        });
        let active = heard.active;
        let mut stale = match (was_active, active) {
            (false, true) => self.activate(slot),
            (true, false) => self.deactivate(slot),
            _ => Stale::NONE,
        };
        if service > 0 {
            stale = stale | self.charge(slot, Work(service).tag() as i64);
        }
        self.rank(self.sessions.at(slot).subnet, stale);
        Ok(())
    }

    /// A front-end has been silent for too long: its sessions no longer count here, and its totals are counted
    /// anew if it comes back.
    pub fn forget_peer(&mut self, peer: PeerId) {
        let Some(place) = self.peers.iter().position(|known| known.id == peer) else { return };
        let gone = self.peers.swap_remove(place);
        for (key, heard) in gone.heard {
            let Some(slot) = self.sessions.find(key) else { continue };
            self.sessions.at_mut(slot).heard_from -= 1;
            if heard.active {
                let stale = self.deactivate(slot);
                self.rank(self.sessions.at(slot).subnet, stale);
            }
        }
    }

    /// The next report for the other front-ends, if reports are wanted. Idle sessions are forgotten only when their
    /// reports have been taken.
    pub fn next_report(&mut self) -> Option<Report> {
        let slot = self.reports.pop_front()?;
        if let Some(later) = self.reports.get(4) {
            self.subnets.prefetch_ledger(self.sessions.at(*later).subnet);
        }
        let session = self.sessions.at_mut(slot);
        session.dirty = false;
        Some(Report {
            session: SessionKey(session.key),
            subnet: SubnetKey(self.subnets.ledger(session.subnet).key),
            life: session.life,
            served: Work::from_tag(session.served),
            active: session.is_here(),
        })
    }

    /// Whether reports are left to be taken.
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Everything is to be reported again, because another front-end has come or come back.
    pub fn report_all(&mut self) {
        for slot in 0..self.sessions.slots() {
            if !self.sessions.is_vacant(slot) {
                self.note(slot);
            }
        }
    }

    /// Notes that there is news of a session.
    #[inline]
    pub(super) fn note(&mut self, slot: u32) {
        let session = self.sessions.at_mut(slot);
        if self.settings.report && session.local && !session.dirty {
            session.dirty = true;
            self.reports.push_back(slot);
        }
    }

    fn peer(&mut self, id: PeerId) -> Result<usize, FairRefusal> {
        if let Some(place) = self.peers.iter().position(|known| known.id == id) {
            return Ok(place);
        }
        if self.peers.len() >= usize::from(self.settings.peers_max) {
            return Err(FairRefusal::TooManyPeers);
        }
        self.peers.push(Peer { id, heard: KeyMap::default() });
        Ok(self.peers.len() - 1)
    }
}
