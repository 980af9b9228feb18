//! Runs one user's throttle under a virtual clock, and keeps statistics.

use super::outbox::{COLLEAGUE, WROTE_FIRST};
use super::report::UserReport;
use std::collections::HashSet;
use std::time::Duration;
use weir_core::throttle::{
    Class, Decision, Held, Mail, MailDecision, Params, ParamsError, Recipient, RecipientKey, Recipients, Throttle,
};
use weir_core::time::Instant;

/// A run of one user's mail through the throttle.
#[derive(Debug)]
pub struct UserRun {
    throttle: Throttle,
    review_after: Option<Duration>,
    mails: Vec<MailRecord>,
    /// Which mail an entry belongs to; entries are numbered from 0.
    mail_of_entry: Vec<u32>,
    report: UserReport,
    journal: Journal,
    /// Whom mail was let go to; where recipients are alike, all whom the user has tried to write to.
    known: HashSet<RecipientKey>,
    telling: Telling,
    today: Today,
}

/// When the user would be told, as the shell does it.
#[derive(Debug, Default)]
struct Telling {
    from: Option<Duration>,
    /// 1 of a delay, 2 of half a threshold, 3 of a stop; until nothing waits.
    told: u8,
    notices: u64,
}

/// Strangers and mails of a day, and the most of any day.
#[derive(Debug, Default)]
struct Today {
    day: u64,
    now: (u64, u64),
    most: (u64, u64),
    /// Each day with mail: its first one, and strangers and mails.
    days: Vec<(Instant, u64, u64)>,
}

/// What happened when, for pictures.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// Changes of the delay queue's length.
    pub queue_changes: Vec<(Instant, i64)>,
    /// When mails were accepted, and their recipients.
    pub sent: Vec<(Instant, u64)>,
    /// When copies went, in order, and how many.
    pub passes: Vec<(Instant, u64)>,
    /// When the user was stopped.
    pub stops: Vec<Instant>,
}

#[derive(Debug)]
struct MailRecord {
    at: Instant,
    waiting: u32,
    delayed: bool,
    delay: Duration,
}

impl UserRun {
    /// A user first seen at `first_seen`. With `review_after`, somebody releases all held mail so long after
    /// each stop; without, a stop is for ever.
    pub fn new(params: Params, first_seen: Instant, review_after: Option<Duration>) -> Result<UserRun, ParamsError> {
        Ok(UserRun {
            throttle: Throttle::new(params, first_seen)?,
            review_after,
            mails: Vec::new(),
            mail_of_entry: Vec::new(),
            report: UserReport::default(),
            journal: Journal::default(),
            known: HashSet::new(),
            telling: Telling::default(),
            today: Today::default(),
        })
    }

    /// The same user, who has written to these people before.
    pub fn knowing(mut self, known: &[RecipientKey]) -> UserRun {
        self.known.extend(known);
        self
    }

    /// The same user, who is told of delays from this length on.
    pub fn telling_from(mut self, delay: Duration) -> UserRun {
        self.telling.from = Some(delay);
        self
    }

    /// How often the user was told something.
    pub fn notices(&self) -> u64 {
        self.telling.notices
    }

    /// The most strangers outside the working set, and the most mails, on one day.
    pub fn most_a_day(&self) -> (u64, u64) {
        self.today.most
    }

    /// Each day on which the user sent mail: the first mail of it, strangers and mails.
    pub fn days(&self) -> &[(Instant, u64, u64)] {
        &self.today.days
    }

    /// A mail of the user's own to a new address, which is not in the books: it takes the slack away.
    pub fn spend_slack(&mut self, at: Instant) {
        self.throttle.submit(at, &[RecipientKey(u64::MAX)]);
    }

    /// The user sends a mail. Times must not go back.
    pub fn send(&mut self, at: Instant, to: &[RecipientKey]) {
        self.catch_up(at);
        let classed: Vec<Recipient> =
            to.iter().map(|key| Recipient { key: *key, class: self.class_of(*key) }).collect();
        self.count(at, &classed);
        let decision = match self.throttle.params().recipients {
            Recipients::Alike => self.throttle.submit(at, to),
            Recipients::Classed => self.submit_classed(at, &classed),
        };
        self.known.extend(to.iter().filter(|_| self.throttle.params().recipients == Recipients::Alike));
        match decision {
            Decision::Refused => self.report.refused += 1,
            Decision::Accepted { at_once, held, stopped } => {
                self.enter(at, at_once, &held);
                if stopped.is_some() {
                    self.journal.stops.push(at);
                }
                self.tell(at, &held);
            }
        }
    }

    fn submit_classed(&mut self, at: Instant, to: &[Recipient]) -> Decision {
        match self.throttle.submit_mail(at, &Mail { to, from: None }) {
            MailDecision::Refused => Decision::Refused,
            MailDecision::Accepted { fates, stopped } => {
                let going = to.iter().zip(&fates).filter(|(_, fate)| fate.is_none());
                self.known.extend(going.map(|(to, _)| to.key));
                let held: Vec<Held> = fates.into_iter().flatten().collect();
                Decision::Accepted { at_once: to.len() - held.len(), held, stopped }
            }
        }
    }

    fn class_of(&self, key: RecipientKey) -> Class {
        match key.0 {
            key if key & COLLEAGUE != 0 => Class::Colleague,
            bits if bits & WROTE_FIRST != 0 || self.known.contains(&key) => Class::Correspondent,
            _ => Class::Stranger,
        }
    }

    fn count(&mut self, at: Instant, to: &[Recipient]) {
        let day = at.0 / 86_400_000_000_000;
        if day != self.today.day {
            (self.today.day, self.today.now) = (day, (0, 0));
        }
        if self.today.now == (0, 0) {
            self.today.days.push((at, 0, 0));
        }
        let strangers = to.iter().filter(|to| to.class == Class::Stranger).count() as u64;
        self.today.now = (self.today.now.0 + strangers, self.today.now.1 + 1);
        if let Some((_, strangers, mails)) = self.today.days.last_mut() {
            (*strangers, *mails) = self.today.now;
        }
        self.today.most = (self.today.most.0.max(self.today.now.0), self.today.most.1.max(self.today.now.1));
    }

    /// Counts a notice if the user would get one after a mail of which these recipients wait.
    fn tell(&mut self, at: Instant, held: &[Held]) {
        let Some(from) = self.telling.from else { return };
        let last = held.iter().filter_map(|held| held.expected_at).max();
        let long = last.is_some_and(|last| last.since(at) >= from);
        let kind = match self.throttle.stopped() {
            Some(_) => 3,
            None if long && self.throttle.is_half_full() => 2,
            None if long => 1,
            None => 0,
        };
        if kind > self.telling.told {
            (self.telling.told, self.telling.notices) = (kind, self.telling.notices + 1);
        }
    }

    /// Whether the user is stopped.
    pub fn stopped(&self) -> bool {
        self.throttle.stopped().is_some()
    }

    /// Lets the queue drain (unless the user is stopped) and closes the books.
    pub fn finish(mut self) -> (UserReport, Journal) {
        self.catch_up(Instant::NEVER);
        let report = &mut self.report;
        report.held = self.throttle.held_count() as u64;
        report.passed = report.sent_at_once + report.released;
        report.stops = self.journal.stops.len() as u64;
        report.stopped_at_s = self.journal.stops.first().map(|at| at.as_secs_f64());
        let delayed = self.mails.iter().filter(|mail| mail.delayed).count();
        let gone = || self.mails.iter().filter(|mail| mail.waiting == 0);
        let total: Duration = gone().map(|mail| mail.delay).sum();
        report.delayed_percent = 100.0 * ratio(delayed as f64, self.mails.len());
        report.mean_delay_s = ratio(total.as_secs_f64(), gone().count());
        report.mean_delay_of_delayed_s = ratio(total.as_secs_f64(), gone().filter(|mail| mail.delayed).count());
        (self.report, self.journal)
    }

    fn enter(&mut self, at: Instant, at_once: usize, held: &[Held]) {
        let number = self.mails.len() as u32;
        let waiting = held.len() as u32;
        self.mails.push(MailRecord { at, waiting, delayed: waiting > 0, delay: Duration::ZERO });
        self.mail_of_entry.extend(held.iter().map(|_| number));
        self.report.mails += 1;
        self.journal.sent.push((at, (at_once + held.len()) as u64));
        self.report.recipients += (at_once + held.len()) as u64;
        self.report.sent_at_once += at_once as u64;
        if at_once > 0 {
            self.journal.passes.push((at, at_once as u64));
        }
        if waiting > 0 {
            self.journal.queue_changes.push((at, i64::from(waiting)));
        }
    }

    fn catch_up(&mut self, now: Instant) {
        let review = self.throttle.stopped().and_then(|stop| Some(stop.since + self.review_after?));
        if let Some(at) = review.filter(|at| *at <= now) {
            self.review(at);
        }
        for released in self.throttle.advance(now) {
            self.known.insert(released.recipient);
            self.leave(released.entry.0, released.at);
        }
        if self.throttle.held_count() == 0 {
            self.telling.told = 0;
        }
    }

    fn review(&mut self, at: Instant) {
        let held: Vec<_> = self.throttle.held().map(|held| held.entry).collect();
        for entry in held {
            self.known.extend(self.throttle.entry(entry).map(|(recipient, _)| recipient));
            self.throttle.release(at, entry);
            self.leave(entry.0, at);
        }
    }

    fn leave(&mut self, entry: u64, at: Instant) {
        let mail = self.mail_of_entry.get(entry as usize).and_then(|number| self.mails.get_mut(*number as usize));
        if let Some(mail) = mail {
            mail.waiting -= 1;
            mail.delay = mail.delay.max(at.since(mail.at));
            self.report.released += 1;
            self.journal.queue_changes.push((at, -1));
            self.journal.passes.push((at, 1));
        }
    }
}

fn ratio(sum: f64, count: usize) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}
