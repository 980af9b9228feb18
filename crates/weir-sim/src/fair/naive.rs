//! The scheduler of the thesis as its pseudocode has it (Figures 3-4 to 3-10), for comparison.
//!
//! Every session's start and finish time is rescaled when a weight changes, which is O(N) per request. Debt has no bound, and service
//! elsewhere is charged only while the session has requests here. Weights are not normalised, so T advances by W / ΣR over the sessions
//! that wait (Table 3.1's ΣR = 1 contradicts RATE).

use super::subnet::{Subnet, weight};
use std::collections::{BTreeMap, VecDeque};

/// The scheduler of one front-end.
#[derive(Debug, Clone)]
pub struct Naive {
    slots: u32,
    running: u32,
    time: f64,
    history: BTreeMap<Subnet, f64>,
    sessions: Vec<NaiveSession>,
}

#[derive(Debug, Clone)]
struct NaiveSession {
    subnet: Subnet,
    /// Number and work of each request that waits.
    waiting: VecDeque<(usize, f64)>,
    running: u32,
    /// Requests at other front-ends.
    elsewhere: u32,
    start: f64,
    finish: f64,
    rate: f64,
}

impl NaiveSession {
    fn is_local(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }

    fn is_active(&self) -> bool {
        self.elsewhere > 0 || self.is_local()
    }
}

impl Naive {
    /// A front-end; session `i` belongs to `subnets[i]`.
    pub fn new(slots: u32, subnets: &[Subnet], history: &BTreeMap<Subnet, f64>) -> Naive {
        let session = |subnet: &Subnet| NaiveSession {
            subnet: *subnet,
            waiting: VecDeque::new(),
            running: 0,
            elsewhere: 0,
            start: 0.0,
            finish: 0.0,
            rate: weight(history, *subnet, 1),
        };
        let sessions = subnets.iter().map(session).collect();
        Naive { slots, running: 0, time: 0.0, history: history.clone(), sessions }
    }

    /// NEW-REQUEST.
    pub fn arrive(&mut self, session: usize, number: usize, work: f64) {
        let time = self.time;
        let entry = &mut self.sessions[session];
        let was_active = entry.is_active();
        entry.waiting.push_back((number, work));
        if entry.waiting.len() == 1 {
            entry.start = time.max(entry.finish);
            entry.finish = entry.start + work / entry.rate;
        }
        if !was_active {
            self.rescale(session);
        }
    }

    /// SELECT-REQUEST: session, number and work of the next request, if a slot is free and one waits.
    pub fn dispatch(&mut self) -> Option<(usize, usize, f64)> {
        if self.running >= self.slots {
            return None;
        }
        let backlogged = || self.sessions.iter().enumerate().filter(|(_, s)| !s.waiting.is_empty());
        self.time = self.time.max(backlogged().map(|(_, s)| s.start).reduce(f64::min)?);
        let eligible = backlogged().filter(|(_, s)| s.start <= self.time);
        let rank = |s: &NaiveSession| (s.finish, s.waiting[0].0);
        let (next, _) = eligible.min_by(|(_, a), (_, b)| rank(a).partial_cmp(&rank(b)).expect("finite"))?;
        let total: f64 = backlogged().map(|(_, s)| s.rate).sum();
        let entry = &mut self.sessions[next];
        let (number, work) = entry.waiting.pop_front()?;
        entry.running += 1;
        if let Some((_, after)) = entry.waiting.front() {
            entry.start = entry.finish;
            entry.finish = entry.start + after / entry.rate;
        }
        self.running += 1;
        self.time += work / total;
        Some((next, number, work))
    }

    /// FINISHED-REQUEST, after service.
    pub fn finish(&mut self, session: usize) {
        self.running -= 1;
        self.sessions[session].running -= 1;
        self.left(session);
    }

    /// FINISHED-REQUEST for all that waits, when the client has gone. Returns how many there were.
    pub fn abandon(&mut self, session: usize) -> usize {
        let entry = &mut self.sessions[session];
        let gone = entry.waiting.len();
        if gone > 0 {
            // Never selected, so never charged.
            entry.finish = entry.start;
            entry.waiting.clear();
            self.left(session);
        }
        gone
    }

    /// NEW-REMOTE-REQUEST.
    pub fn hear_arrived(&mut self, session: usize) {
        self.sessions[session].elsewhere += 1;
        self.rescale(session);
    }

    /// REMOTE-SELECT-REQUEST.
    pub fn hear_selected(&mut self, session: usize, work: f64) {
        let entry = &mut self.sessions[session];
        if entry.is_local() {
            entry.start += work / entry.rate;
            entry.finish += work / entry.rate;
        }
    }

    /// FINISHED-REMOTE-REQUEST.
    pub fn hear_finished(&mut self, session: usize) {
        let entry = &mut self.sessions[session];
        entry.elsewhere = entry.elsewhere.saturating_sub(1);
        self.rescale(session);
    }

    fn left(&mut self, session: usize) {
        if !self.sessions[session].is_active() {
            self.rescale(session);
        }
        if !self.sessions.iter().any(NaiveSession::is_local) {
            self.time = 0.0;
            for entry in &mut self.sessions {
                (entry.start, entry.finish) = (0.0, 0.0);
            }
        }
    }

    /// Gives the sessions of this one's subnet the weight of RATE and rescales their times from T on.
    fn rescale(&mut self, session: usize) {
        let subnet = self.sessions[session].subnet;
        let active = self.sessions.iter().filter(|s| s.subnet == subnet && s.is_active()).count();
        let (rate, time) = (weight(&self.history, subnet, active), self.time);
        for entry in self.sessions.iter_mut().filter(|s| s.subnet == subnet && s.rate != rate) {
            let scale = entry.rate / rate;
            entry.start = time + (entry.start - time) * scale;
            entry.finish = time + (entry.finish - time) * scale;
            entry.rate = rate;
        }
    }
}
