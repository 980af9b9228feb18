//! The fair queue: enqueue + dispatch + finish at random sessions, key look-up included.
//!
//! Each cycle a request arrives at a session drawn at random, the one dispatched 16 cycles ago finishes at a
//! cost that differs from its estimate, and the next is dispatched. Reports for the other front-ends are
//! drained. A session keeps at most two requests waiting (a draw that hits a full one is repeated), and as many
//! wait in all as keep nine sessions in ten backlogged; the rows say how many are at the end. Two mixes: eight
//! sessions a subnet, and a subnet for each session. The headline is the slower of the two. Beside it the
//! thesis's O(N) scheduler, which is spared the look-up of keys, the reports and the differing cost. It is
//! shown at a thousand and ten thousand sessions: to fill it with a hundred thousand alone takes more than a minute.

use crate::table::{Table, interleaved};
use std::collections::{BTreeMap, VecDeque};
use weir_core::fair::{Fair, Profile, SessionKey, Settings, SubnetKey, Ticket, Work};
use weir_sim::fair::{Naive, Subnet};
use weir_sim::rng::Rng;

const SLOTS: usize = 16;
const WAITING_MAX: u8 = 2;
/// Sessions that start with one request waiting, and with two.
const ONE: f64 = 0.36;
const TWO: f64 = 0.54;
const ROUNDS: usize = 7;
const CYCLES: u64 = 300_000;

pub(crate) fn run(table: &mut Table) {
    let mut costs = Vec::new();
    for sessions in [1_000, 100_000, 1_000_000] {
        let (mut eight, mut alone) = (Driver::new(sessions, 8), Driver::new(sessions, 1));
        let nanos = interleaved(ROUNDS, CYCLES, &mut [&mut |n| eight.cycles(n), &mut |n| alone.cycles(n)]);
        for (nanos, (mix, driver)) in nanos.iter().zip([("8 sessions", &eight), ("1 session", &alone)]) {
            let remark = format!("{mix} a subnet, {:.0} % backlogged", driver.backlogged() * 100.0);
            table.row(format!("fair: enqueue+dispatch+finish, {sessions} sessions"), *nanos, remark);
        }
        costs.push(nanos[0].max(nanos[1]));
    }
    [1_000, 10_000].into_iter().for_each(|sessions| naive_row(table, sessions));
    table.figure("fair_cycles_per_s_100k", 1e9 / costs[1]);
    table.ratio("fair_cost_1m_to_1k", costs[2] / costs[0]);
}

/// The same cycle with the thesis's scheduler.
fn naive_row(table: &mut Table, sessions: usize) {
    let mut rng = Rng::new(1);
    let subnets: Vec<Subnet> = (0..sessions).map(|i| Subnet::V4(i as u32 / 8)).collect();
    let mut naive = Naive::new(SLOTS as u32, &subnets, &BTreeMap::new());
    let mut number = 0;
    let mut arrive = |naive: &mut Naive, session: u64| {
        number += 1;
        naive.arrive(session as usize, number, 1.0);
    };
    (0..sessions as u64).filter(|i| i % 10 != 0).for_each(|i| arrive(&mut naive, i));
    let mut running: VecDeque<usize> = (0..SLOTS).filter_map(|_| naive.dispatch()).map(|next| next.0).collect();
    let cycles = 10_000_000 / sessions as u64;
    let nanos = interleaved(
        1,
        cycles,
        &mut [&mut |cycles| {
            for _ in 0..cycles {
                arrive(&mut naive, rng.below(sessions as u64));
                running.pop_front().into_iter().for_each(|oldest| naive.finish(oldest));
                running.extend(naive.dispatch().map(|next| next.0));
            }
        }],
    );
    table.row(format!("fair: the thesis's O(N) scheduler, {sessions} sessions"), nanos[0], "8 sessions a subnet");
}

/// Keeps one scheduler busy.
struct Driver {
    fair: Fair,
    rng: Rng,
    per_subnet: usize,
    /// Requests of each session that wait.
    waiting: Vec<u8>,
    /// The session of each request, by the index of its ticket.
    owners: Vec<u32>,
    running: VecDeque<Ticket>,
}

impl Driver {
    fn new(sessions: usize, per_subnet: usize) -> Driver {
        let bound = 2 * sessions as u32;
        let settings = Settings { slots: SLOTS as u32, waiting_max: bound, sessions_max: bound, ..Settings::default() };
        let mut driver = Driver {
            fair: Fair::new(settings, Profile::default()),
            rng: Rng::new(sessions as u64),
            per_subnet,
            waiting: vec![0; sessions],
            owners: vec![0; 2 * sessions],
            running: VecDeque::new(),
        };
        driver.fill();
        driver
    }

    fn fill(&mut self) {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        self.rng.shuffle(&mut order);
        for session in order {
            let draw = self.rng.unit();
            let requests = if draw < TWO { 2 } else { usize::from(draw < ONE + TWO) };
            (0..requests).for_each(|_| self.arrive(session));
        }
        (0..SLOTS).for_each(|_| self.dispatch());
        self.cycles(self.waiting.len() as u64);
    }

    fn cycles(&mut self, count: u64) {
        for cycle in 0..count {
            let session = self.session_with_room();
            self.arrive(session);
            if let Some(oldest) = self.running.pop_front() {
                let actual = self.cost();
                self.fair.finish(oldest, actual);
            }
            self.dispatch();
            if cycle % 64 == 0 {
                while self.fair.next_report().is_some() {}
            }
        }
    }

    fn session_with_room(&mut self) -> usize {
        loop {
            let session = self.rng.below(self.waiting.len() as u64) as usize;
            if self.waiting[session] < WAITING_MAX {
                return session;
            }
        }
    }

    fn arrive(&mut self, session: usize) {
        let cost = self.cost();
        let (key, subnet) = (hashed(session), hashed(session / self.per_subnet + (1 << 40)));
        if let Ok(ticket) = self.fair.arrive(SessionKey(key), SubnetKey(subnet), cost) {
            self.waiting[session] += 1;
            self.owners[ticket.index()] = session as u32;
        }
    }

    fn dispatch(&mut self) {
        if let Some(ticket) = self.fair.dispatch() {
            self.waiting[self.owners[ticket.index()] as usize] -= 1;
            self.running.push_back(ticket);
        }
    }

    /// Around a millisecond of slot time.
    fn cost(&mut self) -> Work {
        Work(self.rng.between(500_000, 1_500_000))
    }

    fn backlogged(&self) -> f64 {
        self.waiting.iter().filter(|waiting| **waiting > 0).count() as f64 / self.waiting.len() as f64
    }
}

/// The key of a session or subnet, as a shell would hash its cookie or address: SplitMix64.
fn hashed(number: usize) -> u64 {
    let z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
