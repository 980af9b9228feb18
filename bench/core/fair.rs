//! The fair queue: enqueue + dispatch + finish at random sessions, key look-up included.
//!
//! Each cycle a request arrives at a session drawn at random, the next request is dispatched, and the one
//! dispatched 16 cycles ago finishes at a cost that differs from its estimate. Reports for the other
//! front-ends are drained. Nine sessions in ten are backlogged; with arrivals at random that state keeps
//! itself only if queue lengths are geometric with mean nine, so that is how it starts. Two mixes: eight
//! sessions a subnet, and a subnet for each session. The headline is the slower of the two.

use crate::table::{Table, interleaved};
use std::collections::VecDeque;
use weir_core::fair::{Fair, Profile, SessionKey, Settings, SubnetKey, Ticket, Work};
use weir_sim::rng::Rng;

const SLOTS: usize = 16;
const BACKLOGGED: f64 = 0.9;

pub(crate) fn run(table: &mut Table) {
    let mut costs = Vec::new();
    for sessions in [1_000u64, 100_000, 1_000_000] {
        let (mut eight, mut alone) = (Driver::new(sessions, 8), Driver::new(sessions, 1));
        let cycles = 300_000;
        let nanos = interleaved(7, cycles, &mut [&mut |n| eight.cycles(n), &mut |n| alone.cycles(n)]);
        for (nanos, mix) in nanos.iter().zip(["8 sessions a subnet", "1 session a subnet"]) {
            table.row(format!("fair: enqueue+dispatch+finish, {sessions} sessions"), *nanos, mix);
        }
        costs.push(nanos[0].max(nanos[1]));
        let backlogged = eight.fair.waiting();
        eprintln!("{sessions}: waiting {backlogged}");
    }
    table.figure("fair_cycles_per_s_100k", 1e9 / costs[1]);
    table.ratio("fair_cost_1m_to_1k", costs[2] / costs[0]);
}

/// Keeps one scheduler busy.
struct Driver {
    fair: Fair,
    rng: Rng,
    /// Key and subnet key of each session, as a shell would have hashed them.
    keys: Vec<(SessionKey, SubnetKey)>,
    running: VecDeque<Ticket>,
}

impl Driver {
    fn new(sessions: u64, per_subnet: usize) -> Driver {
        let mut rng = Rng::new(sessions);
        let subnets: Vec<u64> = (0..=sessions as usize / per_subnet).map(|_| rng.next_u64()).collect();
        let keys = (0..sessions as usize)
            .map(|i| (SessionKey(rng.next_u64()), SubnetKey(subnets[i / per_subnet])))
            .collect();
        let settings =
            Settings { slots: SLOTS as u32, waiting_max: 1 << 28, sessions_max: 1 << 21, ..Settings::default() };
        let mut driver = Driver { fair: Fair::new(settings, Profile::default()), rng, keys, running: VecDeque::new() };
        driver.fill();
        driver
    }

    /// Queues of geometric length, in rounds, so that arrival order says nothing of sessions.
    fn fill(&mut self) {
        let mut open: Vec<usize> = (0..self.keys.len()).collect();
        self.rng.shuffle(&mut open);
        while !open.is_empty() {
            open.retain(|_| self.rng.chance(BACKLOGGED));
            open.iter().for_each(|session| self.arrive(*session));
        }
        (0..SLOTS).for_each(|_| self.dispatch());
        self.cycles(self.keys.len() as u64);
    }

    fn cycles(&mut self, count: u64) {
        for cycle in 0..count {
            let session = self.rng.below(self.keys.len() as u64) as usize;
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

    fn arrive(&mut self, session: usize) {
        let ((session, subnet), cost) = (self.keys[session], self.cost());
        let taken = self.fair.arrive(session, subnet, cost);
        assert!(taken.is_ok(), "the table is large enough");
    }

    fn dispatch(&mut self) {
        self.running.extend(self.fair.dispatch());
    }

    /// Around a millisecond of slot time.
    fn cost(&mut self) -> Work {
        Work(self.rng.between(500_000, 1_500_000))
    }
}
