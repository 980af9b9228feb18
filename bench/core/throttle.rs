//! One decision of the throttle as the mail gate makes it: find the user, take what is due, submit a mail.
//!
//! 50 000 users at random, so that nearly every decision misses the caches; six mails in ten go to a known
//! address. The clock moves so that each user mails every 50 s: slack grows, queues fill and drain. Users,
//! recipients and networks come as keys that the shell has hashed. The parameters are the default ones; a second
//! row has classes of recipients and new networks switched on: known addresses are correspondents, and one mail in
//! sixteen to others comes from a network of its own. Beside them the paper's rules as one would write them first:
//! names and addresses as strings, every period ended one by one.

use crate::table::{Table, interleaved};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::time::Duration;
use weir_core::throttle::{Class, Mail, NetworkKey, Params, Recipient, RecipientKey, Recipients, Throttle};
use weir_core::time::Instant;
use weir_sim::rng::Rng;

const USERS: u64 = 50_000;
const ADDRESSES: u64 = 100_000;
/// Addresses that everybody writes to.
const KNOWN: u64 = 4;
const MAILS: u64 = 500_000;
/// A round takes each user ten times on average.
const ROUND: u64 = 500_000;
const ROUNDS: usize = 9;
const MINUTE_NS: u64 = 60_000_000_000;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(crate) fn run(table: &mut Table) {
    let mails = mails();
    let classed = Params { recipients: Recipients::Classed, new_networks: 2, ..Params::default() };
    let (mut ours, mut classed, mut naive) = (Ours::new(Params::default()), Ours::new(classed), Naive::new());
    // Once through everything: working sets and queues are as they stay.
    ours.run(&mails, MAILS);
    classed.run(&mails, MAILS);
    naive.run(&mails, MAILS);
    let nanos = interleaved(
        ROUNDS,
        ROUND,
        &mut [&mut |n| ours.run(&mails, n), &mut |n| classed.run(&mails, n), &mut |n| naive.run(&mails, n)],
    );
    table.row("throttle: one decision, 50 000 users at random", nanos[0], "user look-up included");
    table.row("throttle: with classes and new networks", nanos[1], "the same mails");
    table.row("throttle, naive: strings, period by period", nanos[2], "the same mails, the paper's rules");
    let idle = interleaved(5, 1_000, &mut [&mut |n| ours.run_after_a_year(n), &mut |_| naive.run_after_a_year()]);
    table.row("throttle: the first decision after a year", idle[0], "525 600 periods passed");
    table.row("throttle, naive: the same", idle[1] * 1_000.0, "one by one");
    table.figure("throttle_ns", nanos[0]);
}

/// Which user, which address.
type UserAndAddress = (u64, u64);

fn mails() -> Vec<UserAndAddress> {
    let mut rng = Rng::new(1);
    let one = |_| {
        let to = if rng.chance(0.6) { rng.below(KNOWN) } else { rng.below(ADDRESSES) };
        (rng.below(USERS), to)
    };
    (0..MAILS).map(one).collect()
}

/// 50 s of each user's time between two of its mails.
fn step(now: &mut Instant) -> Instant {
    *now += Duration::from_nanos(50_000_000_000 / USERS);
    *now
}

struct Ours {
    done: usize,
    now: Instant,
    users: HashMap<u64, Throttle, BuildHasherDefault<Hashed>>,
}

impl Ours {
    fn new(params: Params) -> Ours {
        let throttle = Throttle::new(params, Instant::ZERO).expect("sound parameters");
        Ours { done: 0, now: Instant::ZERO, users: (0..USERS).map(|user| (key(user), throttle.clone())).collect() }
    }

    fn run(&mut self, mails: &[UserAndAddress], decisions: u64) {
        for _ in 0..decisions {
            let now = step(&mut self.now);
            let (user, to) = mails[self.done % mails.len()];
            self.done += 1;
            self.decide(user, to, now);
        }
    }

    fn run_after_a_year(&mut self, decisions: u64) {
        self.now += YEAR;
        (0..decisions).for_each(|user| self.decide(user, user, self.now));
    }

    fn decide(&mut self, user: u64, to: u64, now: Instant) {
        let Some(throttle) = self.users.get_mut(&key(user)) else { return };
        let class = if to < KNOWN { Class::Correspondent } else { Class::Stranger };
        let network = if to % 16 == 15 { to } else { user };
        let to = [Recipient { key: RecipientKey(key(to)), class }];
        let mail = Mail { to: &to, from: Some(NetworkKey(key(network) as u32)) };
        black_box(throttle.advance_past(now, &[]));
        black_box(throttle.submit_mail(now, &mail));
        // A stopped user would only be refused from then on, which costs nothing.
        throttle.unlock(now);
    }
}

/// A number as a keyed hash would look.
fn key(number: u64) -> u64 {
    (number ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Keys are hashed already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Naive {
    done: usize,
    now: Instant,
    names: Vec<String>,
    addresses: Vec<String>,
    users: HashMap<String, NaiveUser>,
}

#[derive(Default)]
struct NaiveUser {
    minutes: u64,
    slack: u32,
    known: Vec<String>,
    queue: VecDeque<String>,
    refused: bool,
}

impl Naive {
    fn new() -> Naive {
        let names: Vec<String> = (0..USERS).map(|n| format!("user-{n}@example.org")).collect();
        Naive {
            done: 0,
            now: Instant::ZERO,
            users: names.iter().map(|name| (name.clone(), NaiveUser::default())).collect(),
            names,
            addresses: (0..ADDRESSES).map(|n| format!("address-{n}@example.net")).collect(),
        }
    }

    fn run(&mut self, mails: &[UserAndAddress], decisions: u64) {
        for _ in 0..decisions {
            let now = step(&mut self.now);
            let (user, to) = mails[self.done % mails.len()];
            self.done += 1;
            self.decide(user, to, now);
        }
    }

    /// One decision: it takes as long as it takes.
    fn run_after_a_year(&mut self) {
        self.now += YEAR;
        self.decide(0, 0, self.now);
    }

    fn decide(&mut self, user: u64, to: u64, now: Instant) {
        let (name, to) = (&self.names[user as usize], self.addresses[to as usize].clone());
        let Some(user) = self.users.get_mut(name) else { return };
        user.catch_up(now.0 / MINUTE_NS);
        black_box(user.submit(to));
    }
}

impl NaiveUser {
    fn catch_up(&mut self, minutes: u64) {
        while self.minutes < minutes {
            self.minutes += 1;
            match self.queue.pop_front() {
                Some(to) => self.learn(to),
                // Kept from being folded into one addition, as the real thing does by hand.
                None => self.slack = black_box(self.slack + 1).min(1),
            }
        }
    }

    fn submit(&mut self, to: String) -> bool {
        if self.known.contains(&to) {
            return true;
        }
        if self.slack > 0 {
            self.slack -= 1;
            self.learn(to);
            return true;
        }
        self.queue.push_back(to);
        self.refused = self.queue.len() > 20;
        false
    }

    fn learn(&mut self, to: String) {
        if !self.known.contains(&to) {
            self.known.push(to);
        }
        if self.known.len() > 5 {
            self.known.remove(0);
        }
    }
}
