//! A synthetic population of mail users, in place of the paper's 22, whose mail was not published.
//!
//! A user sits down to mail a few times on a working day. Each mail may be followed by another in the same
//! sitting, after a few minutes of writing; the chance of that is what the paper's Figure 1 shows. A mail has
//! one recipient or several; addresses are partly those of the last mails, partly drawn from a list of
//! contacts, the first ones most often (Figure 2). The habits of the 22 are spread evenly over their ranges,
//! each in another order, so that the sums come out alike for every seed. Two are the paper's special cases: an
//! administrative assistant who writes to everybody once a month, and a member of the IT staff with a script.
//! Tests compare the whole with what the paper says of its data. It is a stand-in, not the data.

use super::outbox::{Outbox, Sending};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::time::Duration;
use weir_core::throttle::RecipientKey;
use weir_core::time::Instant;

/// How many users the paper had.
pub const PAPER_USERS: usize = 22;
/// How many days each of them, for 18.2 years in all.
pub const PAPER_DAYS: u32 = 302;

const DAY_S: f64 = 86_400.0;
/// Which of each 22 users is the administrative assistant.
const ASSISTANT: usize = 3;
/// Which of each 22 users is the member of the IT staff with a script.
const IT_STAFF: usize = 8;
/// Writing a mail takes this long in the middle, and so spread (log-normal).
const WRITING_S: f64 = 150.0;
const WRITING_SPREAD: f64 = 0.8;
/// How likely it is that a mail written like that follows within 5 minutes.
const SOON: f64 = 0.81;
/// Mail on a day of the weekend, compared to a working day.
const WEEKEND: f64 = 0.06;
/// A list of addresses that are written to all at once begins here.
const EVERYBODY: u64 = 1 << 40;

/// What user `number` of the population of `seed` sends in `days` days, from a Monday at midnight on.
pub fn user(seed: u64, number: usize, days: u32) -> Outbox {
    let mut seeds = Rng::new(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut writer = Writer::new(Habits::of(number), seeds.fork());
    (0..days).for_each(|day| writer.day(day));
    let mut mails = writer.mails;
    mails.sort_by_key(|mail| mail.at);
    Outbox { mails }
}

/// How one user mails.
#[derive(Debug, Clone, Copy)]
struct Habits {
    mails_a_day: f64,
    /// How likely a single mail follows a single one, a multiple a multiple, within the same sitting.
    single_follows: f64,
    multi_follows: f64,
    /// How likely a sitting begins with a mail to several.
    multi_first: f64,
    /// Recipients of a mail to several, beyond the first: median and spread (log-normal).
    size_median: f64,
    size_spread: f64,
    /// How likely an address is one of the last few.
    recent: f64,
    contacts: f64,
    /// Whether every fourth Tuesday brings a mail to everybody.
    to_everybody: bool,
    /// Whether every fourth Tuesday brings a run of the script.
    script: bool,
}

impl Habits {
    fn of(number: usize) -> Habits {
        let place = number % PAPER_USERS;
        // Each habit takes the 22 steps of its range in another order.
        let step = |stride: usize| ((place * stride + stride / 2) % PAPER_USERS) as f64 / (PAPER_USERS - 1) as f64;
        let between = |stride: usize, low: f64, high: f64| low + (high - low) * step(stride);
        let assistant = place == ASSISTANT;
        Habits {
            mails_a_day: 4.28 * (0.9 * (2.0 * step(5) - 1.0)).exp(),
            single_follows: between(7, 0.13, 0.31) / SOON,
            multi_follows: between(9, 0.08, 0.105) / SOON,
            multi_first: between(13, 0.16, 0.32),
            size_median: if assistant { 5.5 } else { between(15, 1.9, 3.0) },
            size_spread: if assistant { 0.72 } else { between(17, 0.65, 1.1) },
            recent: between(3, 0.1, 0.5),
            contacts: between(19, 60.0, 240.0),
            to_everybody: assistant,
            script: place == IT_STAFF,
        }
    }

    /// How many mails a sitting brings on average, by the chain of its kinds.
    fn mails_a_sitting(&self) -> f64 {
        let (s, m, sm, ms) = (self.single_follows, self.multi_follows, CROSS_TO_MULTI, CROSS_TO_SINGLE);
        let determinant = (1.0 - s) * (1.0 - m) - sm * ms;
        let after_single = (1.0 - m + sm) / determinant;
        let after_multi = (1.0 - s + ms) / determinant;
        (1.0 - self.multi_first) * after_single + self.multi_first * after_multi
    }
}

/// How likely a mail of the other kind follows within a sitting.
const CROSS_TO_MULTI: f64 = 0.03;
const CROSS_TO_SINGLE: f64 = 0.1;

/// A user at work.
struct Writer {
    habits: Habits,
    sittings_a_workday: f64,
    rng: Rng,
    recent_single: VecDeque<RecipientKey>,
    recent_multi: VecDeque<RecipientKey>,
    mails: Vec<Sending>,
}

impl Writer {
    fn new(habits: Habits, rng: Rng) -> Writer {
        let a_workday = habits.mails_a_day * 7.0 / (5.0 + 2.0 * WEEKEND);
        Writer {
            sittings_a_workday: a_workday / habits.mails_a_sitting(),
            habits,
            rng,
            recent_single: VecDeque::new(),
            recent_multi: VecDeque::new(),
            mails: Vec::new(),
        }
    }

    fn day(&mut self, day: u32) {
        let weekend = day % 7 >= 5;
        let mean = self.sittings_a_workday * if weekend { WEEKEND } else { 1.0 };
        let start = f64::from(day) * DAY_S;
        for _ in 0..poisson(&mut self.rng, mean) {
            let time = self.time_of_day();
            self.sitting(start + time, start + DAY_S - 1.0);
        }
        let fourth_tuesday = day % 28 == 8;
        if fourth_tuesday && self.habits.to_everybody {
            let time = self.rng.normal(10.0, 1.0).clamp(8.0, 17.0) * 3600.0;
            self.mail_to_everybody(start + time);
        }
        if fourth_tuesday && self.habits.script {
            let time = self.rng.normal(14.0, 2.0).clamp(8.0, 20.0) * 3600.0;
            self.script(start + time);
        }
    }

    /// Around half past ten and around three, between seven and eight.
    fn time_of_day(&mut self) -> f64 {
        let middle_h = if self.rng.chance(0.5) { 10.5 } else { 15.0 };
        self.rng.normal(middle_h, 1.6).clamp(7.0, 20.0) * 3600.0
    }

    fn sitting(&mut self, from_s: f64, until_s: f64) {
        let mut time_s = from_s + self.rng.unit() * 60.0;
        let mut single = !self.rng.chance(self.habits.multi_first);
        while time_s < until_s {
            let to = if single { vec![self.one_address()] } else { self.several_addresses() };
            self.send(time_s, to);
            time_s += WRITING_S * (self.rng.normal(0.0, WRITING_SPREAD)).exp();
            let (same, other) = match single {
                true => (self.habits.single_follows, CROSS_TO_MULTI),
                false => (self.habits.multi_follows, CROSS_TO_SINGLE),
            };
            match self.rng.unit() {
                u if u < same => {}
                u if u < same + other => single = !single,
                _ => return,
            }
        }
    }

    fn mail_to_everybody(&mut self, time_s: f64) {
        let recipients = self.rng.between(36, 80);
        self.send(time_s, (0..recipients).map(|n| RecipientKey(EVERYBODY + n)).collect());
    }

    fn script(&mut self, time_s: f64) {
        for n in 0..10 {
            let recipients = self.rng.between(2, 3);
            let first = EVERYBODY + 1_000 + 3 * n;
            self.send(time_s + 3.0 * n as f64, (first..first + recipients).map(RecipientKey).collect());
        }
    }

    fn one_address(&mut self) -> RecipientKey {
        let key = self.address(self.habits.recent, self.habits.contacts, true);
        remember(&mut self.recent_single, key);
        key
    }

    fn several_addresses(&mut self) -> Vec<RecipientKey> {
        let beyond = self.habits.size_median * (self.rng.normal(0.0, self.habits.size_spread)).exp();
        let wanted = 1 + (beyond.round() as usize).clamp(1, 120);
        let mut to = Vec::with_capacity(wanted);
        let mut tries = 0u64;
        while to.len() < wanted {
            tries += 1;
            // A list of contacts may be too short for a large mail: then the rest are strangers.
            let widened = self.habits.contacts * 4.0 + tries as f64;
            let key = self.address(self.habits.recent / 3.0, widened, false);
            if !to.contains(&key) {
                to.push(key);
            }
        }
        to.iter().for_each(|key| remember(&mut self.recent_multi, *key));
        to
    }

    /// One of the last few, or one of the contacts: the nth of them as likely as 1/n.
    fn address(&mut self, recent: f64, contacts: f64, single: bool) -> RecipientKey {
        let last = if single { &self.recent_single } else { &self.recent_multi };
        if !last.is_empty() && self.rng.chance(recent) {
            return last[self.rng.below(last.len() as u64) as usize];
        }
        RecipientKey(contacts.powf(self.rng.unit()) as u64)
    }

    fn send(&mut self, time_s: f64, to: Vec<RecipientKey>) {
        let at = Instant::ZERO + Duration::from_secs_f64(time_s);
        self.mails.push(Sending { at, to });
    }
}

fn remember(recent: &mut VecDeque<RecipientKey>, key: RecipientKey) {
    recent.retain(|k| *k != key);
    recent.push_back(key);
    if recent.len() > 5 {
        recent.pop_front();
    }
}

/// By multiplying: the mean here is a handful.
fn poisson(rng: &mut Rng, mean: f64) -> u32 {
    let limit = (-mean).exp();
    let mut product = rng.unit();
    let mut count = 0;
    while product > limit {
        product *= rng.unit();
        count += 1;
    }
    count
}
