//! People of a site and what they send: office, sales, assistants, a helpdesk, and a newsletter that somebody sends by hand.
//!
//! None of it is real mail. The numbers below say how each role mails, and docs/algorithms/throttle.md explains them. A
//! user sits down a few times on a working day and writes one mail after the other. Each recipient is a colleague, somebody
//! written to before, or somebody new; of those who are new, some have written first. Now and then there is a round: mail to
//! many within minutes, as real roles have it.

use super::outbox::{COLLEAGUE, Outbox, Sending, WROTE_FIRST};
use crate::rng::Rng;
use std::time::Duration;
use weir_core::throttle::RecipientKey;
use weir_core::time::Instant;

/// A role in a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Ordinary people.
    Office,
    /// People who write to prospects.
    Sales,
    /// People who write to everybody.
    Assistants,
    /// People who answer whoever writes.
    Helpdesk,
    /// One mail to each of 400 subscribers, once a week, from a person's account.
    Newsletter,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] = [Role::Office, Role::Sales, Role::Assistants, Role::Helpdesk, Role::Newsletter];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Office => "office",
            Role::Sales => "sales",
            Role::Assistants => "assistants",
            Role::Helpdesk => "helpdesk",
            Role::Newsletter => "newsletter",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    fn habits(self) -> Habits {
        let office = Habits {
            mails_a_day: 22.0,
            mails_a_sitting: 2.2,
            writing_s: 150.0,
            several: 0.25,
            others: (2.0, 0.8),
            colleagues: 0.62,
            new: 0.06,
            wrote_first: 0.5,
            contacts: 120.0,
            staff: 200.0,
            round: None,
        };
        match self {
            Role::Office => office,
            Role::Sales => Habits {
                mails_a_day: 40.0,
                mails_a_sitting: 3.0,
                writing_s: 170.0,
                several: 0.15,
                colleagues: 0.25,
                new: 0.2,
                wrote_first: 0.6,
                contacts: 400.0,
                round: Some(Round { every_days: 7, size: (6, 12), apart_s: 90.0, to: Whom::New, together: false }),
                ..office
            },
            Role::Assistants => Habits {
                mails_a_day: 36.0,
                several: 0.45,
                others: (5.0, 0.75),
                colleagues: 0.75,
                new: 0.04,
                round: Some(Round {
                    every_days: 7,
                    size: (20, 45),
                    apart_s: 0.0,
                    to: Whom::Colleagues,
                    together: true,
                }),
                ..office
            },
            Role::Helpdesk => Habits {
                mails_a_day: 70.0,
                mails_a_sitting: 8.0,
                writing_s: 180.0,
                several: 0.04,
                colleagues: 0.12,
                new: 0.5,
                wrote_first: 0.97,
                contacts: 600.0,
                ..office
            },
            Role::Newsletter => Habits {
                mails_a_day: 4.0,
                round: Some(Round {
                    every_days: 7,
                    size: (400, 400),
                    apart_s: 1.0,
                    to: Whom::Contacts,
                    together: false,
                }),
                contacts: 400.0,
                ..office
            },
        }
    }
}

/// How people of a role mail.
#[derive(Debug, Clone, Copy)]
struct Habits {
    mails_a_day: f64,
    mails_a_sitting: f64,
    /// Writing a mail takes so long in the middle.
    writing_s: f64,
    /// How many mails have several recipients, and how many others there are then: median and spread (log-normal).
    several: f64,
    others: (f64, f64),
    /// How many recipients are colleagues, and how many somebody new.
    colleagues: f64,
    new: f64,
    /// How many of those who are new have written first.
    wrote_first: f64,
    /// People outside whom the user knows, and colleagues: the nth as likely as 1/n.
    contacts: f64,
    staff: f64,
    round: Option<Round>,
}

/// Mail to many within minutes.
#[derive(Debug, Clone, Copy)]
struct Round {
    every_days: u32,
    size: (u64, u64),
    apart_s: f64,
    to: Whom,
    /// In one mail, or in one each.
    together: bool,
}

#[derive(Debug, Clone, Copy)]
enum Whom {
    New,
    Colleagues,
    Contacts,
}

const DAY_S: f64 = 86_400.0;
/// Numbers of people: contacts from here, those who are new from there.
const CONTACTS: u64 = 1 << 20;
const NEWCOMERS: u64 = 1 << 40;

/// What person `number` of a role sends in `days` days, from a Monday at midnight on. Contacts are known from before: mail of the
/// weeks before the first day is not in it, so `known` names those whom the user has written to then.
pub fn person(seed: u64, role: Role, number: u32, days: u32) -> Person {
    let mut rng = Rng::new(seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (role as u64) << 56);
    let habits = role.habits();
    let mut writer = Writer { habits, rng: rng.fork(), newcomers: NEWCOMERS, mails: Vec::new() };
    (0..days).filter(|day| day % 7 < 5).for_each(|day| writer.day(day));
    let mut mails = writer.mails;
    mails.sort_by_key(|mail| mail.at);
    let known = (0..habits.contacts as u64).map(|n| RecipientKey(CONTACTS + n)).collect();
    Person { outbox: Outbox { mails }, known }
}

/// One person's mail.
#[derive(Debug, Clone)]
pub struct Person {
    /// What the person sends.
    pub outbox: Outbox,
    /// Whom the person has written to before.
    pub known: Vec<RecipientKey>,
}

struct Writer {
    habits: Habits,
    rng: Rng,
    newcomers: u64,
    mails: Vec<Sending>,
}

impl Writer {
    fn day(&mut self, day: u32) {
        let start_s = f64::from(day) * DAY_S;
        // People have busy days and quiet ones.
        let busy = self.rng.normal(0.0, 0.35).exp();
        let mut left = (self.habits.mails_a_day * busy).round() as i64;
        while left > 0 {
            let sitting = self.rng.exponential(self.habits.mails_a_sitting).ceil().max(1.0) as i64;
            let middle_h = if self.rng.chance(0.5) { 10.5 } else { 15.0 };
            let from_s = start_s + self.rng.normal(middle_h, 1.7).clamp(7.0, 20.0) * 3600.0;
            self.sitting(from_s, sitting.min(left));
            left -= sitting;
        }
        if let Some(round) = self.habits.round.filter(|round| day % round.every_days == 1) {
            let from_s = start_s + self.rng.normal(11.0, 1.0).clamp(8.0, 17.0) * 3600.0;
            self.round(round, from_s);
        }
    }

    fn sitting(&mut self, from_s: f64, mails: i64) {
        let mut time_s = from_s;
        for _ in 0..mails {
            let to = self.recipients();
            self.send(time_s, to);
            time_s += self.habits.writing_s * self.rng.normal(0.0, 0.8).exp();
        }
    }

    fn recipients(&mut self) -> Vec<RecipientKey> {
        let mut to = vec![self.somebody()];
        if self.rng.chance(self.habits.several) {
            let (median, spread) = self.habits.others;
            let others = (median * self.rng.normal(0.0, spread).exp()).round().clamp(1.0, 100.0) as usize;
            for _ in 0..others {
                let key = self.somebody();
                if !to.contains(&key) {
                    to.push(key);
                }
            }
        }
        to
    }

    fn somebody(&mut self) -> RecipientKey {
        match self.rng.unit() {
            u if u < self.habits.colleagues => self.one(Whom::Colleagues),
            u if u < self.habits.colleagues + self.habits.new => self.one(Whom::New),
            _ => self.one(Whom::Contacts),
        }
    }

    fn one(&mut self, whom: Whom) -> RecipientKey {
        match whom {
            Whom::Colleagues => RecipientKey(COLLEAGUE | self.habits.staff.powf(self.rng.unit()) as u64),
            Whom::Contacts => RecipientKey(CONTACTS + self.habits.contacts.powf(self.rng.unit()) as u64 - 1),
            Whom::New => {
                self.newcomers += 1;
                let wrote = if self.rng.chance(self.habits.wrote_first) { WROTE_FIRST } else { 0 };
                RecipientKey(self.newcomers | wrote)
            }
        }
    }

    fn round(&mut self, round: Round, from_s: f64) {
        let size = self.rng.between(round.size.0, round.size.1);
        let to: Vec<RecipientKey> = (0..size)
            .map(|n| match round.to {
                Whom::New => {
                    self.newcomers += 1;
                    RecipientKey(self.newcomers)
                }
                Whom::Colleagues => RecipientKey(COLLEAGUE | (n + 1)),
                Whom::Contacts => RecipientKey(CONTACTS + n),
            })
            .collect();
        if round.together {
            return self.send(from_s, to);
        }
        let mut time_s = from_s;
        for key in to {
            self.send(time_s, vec![key]);
            let apart = if round.apart_s > 5.0 { self.rng.normal(0.0, 0.4).exp() } else { 1.0 };
            time_s += round.apart_s * apart;
        }
    }

    fn send(&mut self, time_s: f64, to: Vec<RecipientKey>) {
        self.mails.push(Sending { at: Instant::ZERO + Duration::from_secs_f64(time_s), to });
    }
}
