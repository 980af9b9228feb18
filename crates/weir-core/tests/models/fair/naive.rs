//! The scheduler of the thesis (Figures 3-4 to 3-10), literally: O(N) for everything, exact fractions.
//!
//! Start and finish times S and F in virtual time are kept for each session and rescaled one by one
//! whenever a weight R changes. What the thesis leaves open is as in `docs/algorithms/fair.md`: T advances by
//! W / ΣR over those who wait, or were served ahead of their time, and is a whole number with a carried rest; debt is capped and survives
//! idleness; a charge for service elsewhere comes from sets of reports; C slots. A finish time is rounded
//! up to a whole unit where sessions of different subnets are compared.

use super::ratio::Ratio;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const ONE: i128 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: usize,
    /// Estimate, then what was charged; in tag units.
    pub(super) tags: i128,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) subnet: u64,
    pub(super) queue: VecDeque<Request>,
    pub(super) running: Vec<Request>,
    start: Ratio,
    finish: Ratio,
    rate: i128,
    /// Waits for nothing, but T had not reached its start when that was last looked at.
    lingers: bool,
    /// Every report heard of it: peer → (number, served, active).
    heard: BTreeMap<u64, BTreeSet<(u64, u64, bool)>>,
    total: i128,
    /// The highest that `total` has been.
    pub(super) served: i128,
}

#[derive(Clone, Debug)]
pub(super) struct Naive {
    pub(super) slots: usize,
    pub(super) debt_cap: i128,
    pub(super) time: i128,
    carried: i128,
    pub(super) sessions: BTreeMap<u64, Session>,
    /// Histories, in units of 1/ONE of the average.
    profile: BTreeMap<u64, i128>,
    /// What each subnet has taken up of the profile.
    taken_up: BTreeMap<u64, i128>,
}

impl Naive {
    pub(super) fn new(slots: usize, debt_cap: i128) -> Naive {
        Naive {
            slots,
            debt_cap,
            time: 0,
            carried: 0,
            sessions: BTreeMap::new(),
            profile: BTreeMap::new(),
            taken_up: BTreeMap::new(),
        }
    }

    /// NEW-REQUEST.
    pub(super) fn arrive(&mut self, session: u64, subnet: u64, request: Request) {
        self.know(session, subnet);
        let now = Ratio::whole(self.time);
        let entry = self.session(session);
        entry.queue.push_back(request);
        if entry.queue.len() == 1 {
            entry.start = entry.start.max(now);
            entry.finish = entry.start + Ratio::new(request.tags, entry.rate);
            entry.lingers = false;
            self.touch(subnet);
        }
        self.rescale();
    }

    /// SELECT-REQUEST; the name of the request, if a slot is free and one waits.
    pub(super) fn dispatch(&mut self) -> Option<usize> {
        let running: usize = self.sessions.values().map(|s| s.running.len()).sum();
        if running >= self.slots || self.backlogged().next().is_none() {
            return None;
        }
        let id = self.select();
        let weight = self.weight();
        let entry = self.session(id);
        let request = entry.queue.pop_front().expect("backlogged");
        entry.running.push(request);
        entry.start = entry.finish;
        if let Some(next) = entry.queue.front() {
            entry.finish = entry.start + Ratio::new(next.tags, entry.rate);
        }
        entry.serve(request.tags);
        self.advance(request.tags, weight);
        self.linger(id);
        Some(request.name)
    }

    /// Whoever waits for nothing lingers until T reaches its start.
    fn linger(&mut self, id: u64) {
        let now = Ratio::whole(self.time);
        let entry = self.session(id);
        entry.lingers = entry.queue.is_empty() && entry.start > now;
    }

    fn select(&mut self) -> u64 {
        loop {
            let now = Ratio::whole(self.time);
            self.sessions.values_mut().for_each(|s| s.lingers &= s.start > now);
            self.rescale();
            let eligible: Vec<&u64> = self.backlogged().filter(|id| self.sessions[*id].start <= now).collect();
            let of = |id: &u64| &self.sessions[id];
            // Every request is ranked as if it cost as much as one may be charged.
            let end = |id: &u64| of(id).start + Ratio::new(self.debt_cap, of(id).rate);
            let Some(least) = eligible.iter().map(|id| end(id)).min() else {
                // Who lingers no longer changes the weights of others, and so when they begin.
                let seated = self.sessions.values().filter(|s| s.lingers || !s.queue.is_empty());
                let first = seated.map(|s| s.start).min().expect("somebody waits");
                (self.time, self.carried) = (first.ceil(), 0);
                continue;
            };
            // The first of each subnet, exactly; then the first of those, in whole units.
            let leads = eligible.iter().filter(|id| {
                let rank = |id: &u64| (end(id), of(id).queue[0].name);
                let rivals = eligible.iter().filter(|other| of(other).subnet == of(id).subnet);
                rivals.map(|other| rank(other)).min() == Some(rank(id))
            });
            let best = leads.min_by_key(|id| (end(id).ceil(), of(id).queue[0].name));
            let best = **best.expect("somebody is eligible");
            assert!(end(&best) < least + Ratio::whole(1), "rounding may cost no more than a unit");
            let (subnet, before) = (of(&best).subnet, of(&best).rate);
            self.touch(subnet);
            if self.sessions[&best].rate == before {
                return best;
            }
        }
    }

    /// FINISHED-REQUEST of the `which`-th running request, which took `actual`.
    pub(super) fn finish(&mut self, name: usize, actual: i128) {
        let id = self.owner(name);
        let entry = self.session(id);
        let place = entry.running.iter().position(|r| r.name == name).expect("it runs");
        let difference = actual - entry.running[place].tags;
        self.true_up(id, difference);
        self.session(id).running.remove(place);
        self.left(id);
    }

    pub(super) fn overrun(&mut self, name: usize, extra: i128) {
        let id = self.owner(name);
        let request = self.session(id).running.iter_mut().find(|r| r.name == name).expect("it runs");
        request.tags += extra;
        self.true_up(id, extra);
    }

    fn true_up(&mut self, id: u64, tags: i128) {
        if tags != 0 {
            self.session(id).serve(tags);
            self.charge(id, tags);
            self.linger(id);
            let weight = self.weight();
            if weight > 0 {
                self.advance(tags, weight);
            }
        }
    }

    pub(super) fn cancel(&mut self, name: usize) {
        let id = self.owner(name);
        let entry = self.session(id);
        let place = entry.queue.iter().position(|r| r.name == name).expect("it waits");
        entry.queue.remove(place);
        if place > 0 {
            return;
        }
        if let Some(next) = entry.queue.front() {
            entry.finish = entry.start + Ratio::new(next.tags, entry.rate);
        }
        let subnet = entry.subnet;
        self.touch(subnet);
        self.linger(id);
        self.left(id);
    }

    /// A session whose request has gone; all returns to zero if it was the last.
    fn left(&mut self, id: u64) {
        if !self.is_active(id) {
            let subnet = self.sessions[&id].subnet;
            self.touch(subnet);
        }
        self.rescale();
        if self.sessions.values().all(|s| s.queue.is_empty() && s.running.is_empty()) {
            (self.time, self.carried) = (0, 0);
            self.sessions.values_mut().for_each(|s| (s.start, s.lingers) = (Ratio::whole(0), false));
            self.rescale();
        }
    }

    /// NEW-REMOTE-REQUEST, REMOTE-SELECT-REQUEST and FINISHED-REMOTE-REQUEST in one report.
    pub(super) fn hear(&mut self, peer: u64, number: u64, session: u64, subnet: u64, (served, active): (u64, bool)) {
        self.know(session, subnet);
        self.touch(subnet);
        let heard = self.session(session).heard.entry(peer).or_default();
        let span = |heard: &BTreeSet<(u64, u64, bool)>| {
            let totals = || heard.iter().map(|(_, served, _)| *served);
            totals().max().unwrap_or(0) - totals().min().unwrap_or(0)
        };
        let before = span(heard);
        // Of two reports with one number the first counts, as far as activity goes.
        if heard.iter().any(|(n, ..)| *n == number) {
            let known = heard.iter().find(|(n, ..)| *n == number).expect("just seen").2;
            heard.insert((number, served, known));
        } else {
            heard.insert((number, served, active));
        }
        let service = span(heard) - before;
        self.rescale();
        if service > 0 {
            self.charge(session, i128::from(service) << 14);
        }
    }

    pub(super) fn forget_peer(&mut self, peer: u64) {
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            let was = self.is_active(id);
            self.session(id).heard.remove(&peer);
            if was && !self.is_active(id) {
                let subnet = self.sessions[&id].subnet;
                self.touch(subnet);
            }
        }
        self.rescale();
    }

    pub(super) fn set_profile(&mut self, profile: BTreeMap<u64, i128>) {
        self.profile = profile;
    }

    /// The scheduler has forgotten this session; it must have been worth forgetting.
    pub(super) fn forget_session(&mut self, id: u64) -> Result<(), String> {
        if self.is_active(id) || self.debt(id) > 0 {
            return Err(format!("session {id} was forgotten with requests or debt"));
        }
        let entry = self.session(id);
        entry.lingers = false;
        entry.heard.clear();
        (entry.total, entry.served) = (0, 0);
        self.rescale();
        Ok(())
    }

    /// RATE, in units of 1/ONE.
    pub(super) fn rate(&self, subnet: u64) -> i128 {
        let claims = |session: &&Session| session.subnet == subnet && (session.lingers || self.is_busy(session));
        let concurrent = (self.sessions.values().filter(claims).count() as i128).max(1);
        (self.taken_up.get(&subnet).copied().unwrap_or(ONE).max(ONE) / concurrent).clamp(1, ONE)
    }

    pub(super) fn active(&self, subnet: u64) -> i128 {
        let of_subnet = |id: &&u64| self.sessions[*id].subnet == subnet;
        self.sessions.keys().filter(of_subnet).filter(|id| self.is_active(**id)).count() as i128
    }

    /// Debt in whole units of work.
    pub(super) fn debt(&self, id: u64) -> i128 {
        let entry = &self.sessions[&id];
        (entry.start - Ratio::whole(self.time)).times(entry.rate).floor().max(0) >> 14
    }

    fn charge(&mut self, id: u64, tags: i128) {
        let (now, cap) = (Ratio::whole(self.time), self.debt_cap);
        let subnet = self.sessions[&id].subnet;
        self.touch(subnet);
        let entry = self.session(id);
        if entry.queue.is_empty() {
            entry.start = entry.start.max(now);
        }
        let limit = now + Ratio::new(cap, entry.rate);
        entry.start = (entry.start + Ratio::new(tags, entry.rate)).min(limit);
        if let Some(first) = entry.queue.front() {
            entry.finish = entry.start + Ratio::new(first.tags, entry.rate);
        }
    }

    fn advance(&mut self, tags: i128, weight: i128) {
        self.carried += tags;
        if self.carried >= weight {
            self.time += self.carried / weight;
            self.carried %= weight;
        }
    }

    /// Lines 7–13 of NEW-REQUEST and 5–11 of FINISHED-REQUEST, for whoever has another weight now.
    fn rescale(&mut self) {
        let now = Ratio::whole(self.time);
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            let new = self.rate(self.sessions[&id].subnet);
            let entry = self.session(id);
            let old = std::mem::replace(&mut entry.rate, new);
            if old == new {
                continue;
            }
            match entry.queue.front() {
                Some(first) if entry.start < now => {
                    let left = (entry.finish - now).times(old);
                    entry.finish = now + left.over(new);
                    entry.start = entry.finish - Ratio::new(first.tags, new);
                }
                first => {
                    let delay = (entry.start - now).times(old);
                    entry.start = now + delay.over(new);
                    entry.finish = entry.start + Ratio::new(first.map_or(0, |r| r.tags), new);
                }
            }
        }
    }

    fn know(&mut self, session: u64, subnet: u64) {
        let start = Ratio::whole(self.time);
        let rate = self.rate(subnet);
        self.sessions.entry(session).or_insert_with(|| Session {
            subnet,
            queue: VecDeque::new(),
            running: Vec::new(),
            start,
            finish: start,
            rate,
            lingers: false,
            heard: BTreeMap::new(),
            total: 0,
            served: 0,
        });
    }

    fn touch(&mut self, subnet: u64) {
        let history = self.profile.get(&subnet).copied().unwrap_or(ONE);
        self.taken_up.insert(subnet, history);
        self.rescale();
    }

    fn is_active(&self, id: u64) -> bool {
        self.is_busy(&self.sessions[&id])
    }

    /// Whether it has a request at any front-end.
    fn is_busy(&self, entry: &Session) -> bool {
        let elsewhere = || entry.heard.values().any(|reports| reports.iter().max().is_some_and(|r| r.2));
        !entry.queue.is_empty() || !entry.running.is_empty() || elsewhere()
    }

    fn backlogged(&self) -> impl Iterator<Item = &u64> {
        self.sessions.iter().filter(|(_, s)| !s.queue.is_empty()).map(|(id, _)| id)
    }

    fn weight(&self) -> i128 {
        self.sessions.values().filter(|s| s.lingers || !s.queue.is_empty()).map(|s| s.rate).sum()
    }

    fn owner(&self, name: usize) -> u64 {
        let has = |s: &Session| s.queue.iter().chain(&s.running).any(|r| r.name == name);
        *self.sessions.iter().find(|(_, s)| has(s)).expect("somebody's").0
    }

    fn session(&mut self, id: u64) -> &mut Session {
        self.sessions.get_mut(&id).expect("known")
    }
}

impl Session {
    fn serve(&mut self, tags: i128) {
        self.total += tags;
        self.served = self.served.max(self.total);
    }
}
