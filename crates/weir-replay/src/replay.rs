//! Runs past mail through the throttle: who would have been delayed, by how much, who would have been stopped, and when.
//!
//! Each user is run alone, as the experiments do; the figures are those of [`weir_sim::throttle`], with what only real
//! mail has beside them: dates, and the mail that would have stopped the user.

use super::caps::{self, OutlyingDay, ProposedCaps, UserDay};
use super::{PastMail, Skipped};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_core::throttle::Params;
use weir_core::time::Instant;
use weir_sim::input::InputError;
use weir_sim::throttle::{Habits, Journal, Outbox, UserReport, UserRun, by_user_with};

/// What the throttle would have done.
#[derive(Debug, Clone, Serialize)]
pub struct Replay {
    /// By user.
    pub users: BTreeMap<String, UserReplay>,
    /// The date of the first mail.
    pub first_at: String,
    /// The date of the last mail.
    pub last_at: String,
    /// What could not be replayed, by reason.
    pub skipped: Skipped,
    /// Caps by the day that none of these users has met, but those who would have been stopped anyway, and but on days that were far
    /// outside of what is usual.
    pub proposed: Option<ProposedCaps>,
    /// These days.
    pub outlying: Vec<OutlyingDay>,
    /// How these users mail: the paper's Figures 1 and 2.
    pub habits: Habits,
    /// The delay queues of the users who were worst off, worst first.
    #[serde(skip)]
    pub queues: Vec<QueueLine>,
}

/// What the throttle would have done to one user.
#[derive(Debug, Clone, Serialize)]
pub struct UserReplay {
    /// The same figures as in a simulation.
    #[serde(flatten)]
    pub report: UserReport,
    /// Mails that the user sent in truth.
    pub sent_mails: u64,
    /// Recipients of these.
    pub sent_recipients: u64,
    /// The longest that a mail would have waited, of those that would have gone in the end.
    pub longest_delay_s: f64,
    /// The date of the user's first mail.
    pub first_at: String,
    /// The date of the user's last mail.
    pub last_at: String,
    /// The most mails on one day.
    pub most_mails_a_day: u64,
    /// The most recipients on one day who were never written to before and are no colleagues.
    pub most_strangers_a_day: u64,
    /// Each day on which the user sent mail.
    #[serde(skip)]
    pub days: Vec<UserDay>,
    /// When the user would have been stopped first.
    pub stopped_at: Option<String>,
    /// The mail that would have done it.
    pub stopped_by: Option<StoppedBy>,
}

/// The mail that would have stopped a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoppedBy {
    /// The file that it is in.
    pub source: String,
    /// The queue id, the file name, or the line where it begins.
    pub name: String,
    /// Its first recipient.
    pub to: String,
    /// How many recipients it had.
    pub recipients: usize,
}

/// The length of one user's delay queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueLine {
    /// Whose it is.
    pub user: String,
    /// Time in seconds, and the length from then on.
    pub points: Vec<(f64, f64)>,
}

/// At most this many delay queues are kept for a picture.
const QUEUES_MAX: usize = 6;

/// Runs past mail through the throttle. With `review_after`, somebody releases all held mail so long after each
/// stop; without, a stop is for ever.
pub fn replay(past: &PastMail, params: Params, review_after: Option<Duration>) -> Result<Replay, InputError> {
    replay_at(past, params, review_after, |_| false)
}

/// The same at a site whose people are those of whom `is_colleague` says so.
pub fn replay_at(
    past: &PastMail,
    params: Params,
    review_after: Option<Duration>,
    is_colleague: impl Fn(&str) -> bool,
) -> Result<Replay, InputError> {
    let mut replay = Replay::empty(past);
    let mut places = places_by_user(past);
    let outboxes = by_user_with(&past.mails, is_colleague);
    replay.habits = Habits::of(outboxes.values());
    for (user, outbox) in outboxes {
        let run = UserMail { past, places: places.remove(user).unwrap_or_default(), outbox };
        let (result, journal) = run.through(params, review_after)?;
        replay.keep_queue(user, &result, &journal);
        replay.users.insert(user.into(), result);
    }
    // Users who would have been stopped have no say.
    let ordinary = replay.users.iter().filter(|(_, user)| user.stopped_at.is_none());
    let days = ordinary.map(|(name, user)| (name.as_str(), user.days.as_slice())).collect();
    (replay.proposed, replay.outlying) = caps::propose(&days);
    Ok(replay)
}

/// For each user, where in `past.mails` the user's mails are, in order.
fn places_by_user(past: &PastMail) -> BTreeMap<&str, Vec<usize>> {
    let mut places = BTreeMap::<&str, Vec<usize>>::new();
    for (place, mail) in past.mails.iter().enumerate() {
        places.entry(&mail.user).or_default().push(place);
    }
    places
}

impl Replay {
    /// The users, worst off first: those who would have been stopped, then by mean delay.
    pub fn worst_first(&self) -> Vec<(&str, &UserReplay)> {
        let mut users: Vec<_> = self.users.iter().map(|(user, replay)| (user.as_str(), replay)).collect();
        users.sort_by(|a, b| b.1.badness().total_cmp(&a.1.badness()));
        users
    }

    fn empty(past: &PastMail) -> Replay {
        let date =
            |mail: Option<&weir_sim::trace::Mail>| mail.map_or_else(String::new, |m| past.wall(m.at).to_rfc3339());
        Replay {
            users: BTreeMap::new(),
            first_at: date(past.mails.first()),
            last_at: date(past.mails.last()),
            skipped: past.skipped.clone(),
            proposed: None,
            outlying: Vec::new(),
            habits: Habits::default(),
            queues: Vec::new(),
        }
    }

    /// Keeps the delay queue of a user who is among the worst so far.
    fn keep_queue(&mut self, user: &str, result: &UserReplay, journal: &Journal) {
        if journal.queue_changes.is_empty() {
            return;
        }
        let badness = |line: &QueueLine| self.users.get(&line.user).map_or(0.0, UserReplay::badness);
        let place = self.queues.iter().position(|line| badness(line) < result.badness()).unwrap_or(self.queues.len());
        if place < QUEUES_MAX {
            self.queues.insert(place, QueueLine { user: user.into(), points: lengths(journal) });
            self.queues.truncate(QUEUES_MAX);
        }
    }
}

impl UserReplay {
    /// A stop is worse than any delay.
    fn badness(&self) -> f64 {
        let stopped = if self.stopped_at.is_some() { 1e15 } else { 0.0 };
        stopped + self.report.mean_delay_s
    }
}

struct UserMail<'a> {
    past: &'a PastMail,
    /// Where the user's mails are in `past.mails`.
    places: Vec<usize>,
    outbox: Outbox,
}

impl UserMail<'_> {
    fn through(&self, params: Params, review_after: Option<Duration>) -> Result<(UserReplay, Journal), InputError> {
        let run = UserRun::new(params, self.outbox.first_seen(), review_after);
        let mut run = run.map_err(|error| {
            let problem = format!("{} is out of bounds", error.name);
            InputError::new("throttle parameters", problem, format!("it must be {}", error.kind))
        })?;
        let mut stopping = None;
        for (number, mail) in self.outbox.mails.iter().enumerate() {
            let before = run.stopped();
            run.send(mail.at, &mail.to);
            if stopping.is_none() && !before && run.stopped() {
                stopping = Some(number);
            }
        }
        let (most, days) = (run.most_a_day(), run.days().to_vec());
        let (report, journal) = run.finish();
        let days = days.into_iter().map(|(at, strangers, mails)| {
            let date = self.past.wall(at).to_rfc3339();
            UserDay { date: date.split('T').next().unwrap_or_default().to_owned(), mails, strangers }
        });
        let days = days.collect();
        Ok((UserReplay { days, ..self.result(report, &journal, stopping, most) }, journal))
    }

    fn result(&self, report: UserReport, journal: &Journal, stopping: Option<usize>, most: (u64, u64)) -> UserReplay {
        let mails = &self.outbox.mails;
        let date = |at: Instant| self.past.wall(at).to_rfc3339();
        UserReplay {
            report,
            sent_mails: mails.len() as u64,
            sent_recipients: mails.iter().map(|mail| mail.to.len() as u64).sum(),
            longest_delay_s: longest_delay(journal).as_secs_f64(),
            first_at: mails.first().map(|mail| date(mail.at)).unwrap_or_default(),
            last_at: mails.last().map(|mail| date(mail.at)).unwrap_or_default(),
            most_mails_a_day: most.1,
            most_strangers_a_day: most.0,
            days: Vec::new(),
            stopped_at: stopping.and_then(|number| Some(date(mails.get(number)?.at))),
            stopped_by: stopping.and_then(|number| self.stopped_by(*self.places.get(number)?)),
        }
    }

    fn stopped_by(&self, place: usize) -> Option<StoppedBy> {
        let (mail, origin) = (self.past.mails.get(place)?, self.past.origins.get(place)?);
        Some(StoppedBy {
            source: self.past.sources.get(origin.source)?.clone(),
            name: origin.name.to_string(),
            to: mail.to.first().cloned().unwrap_or_default(),
            recipients: mail.to.len(),
        })
    }
}

/// The queue is first in, first out, so its arrivals and departures can be paired.
fn longest_delay(journal: &Journal) -> Duration {
    let (mut waiting, mut longest) = (VecDeque::new(), Duration::ZERO);
    for (at, change) in &journal.queue_changes {
        match u64::try_from(*change) {
            Ok(arrived) => waiting.push_back((*at, arrived)),
            Err(_) => {
                let Some((since, left)) = waiting.front_mut() else { continue };
                longest = longest.max(at.since(*since));
                *left -= 1;
                if *left == 0 {
                    waiting.pop_front();
                }
            }
        }
    }
    longest
}

fn lengths(journal: &Journal) -> Vec<(f64, f64)> {
    let mut length = 0;
    let point = |(at, change): &(Instant, i64)| {
        length += change;
        (at.as_secs_f64(), length as f64)
    };
    journal.queue_changes.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reader, SourceKind, Wanted, now};
    use std::path::Path;

    /// A log in which each (second, user, recipient) is one mail.
    fn log(mails: &[(u32, &str, String)]) -> PastMail {
        let mut text = String::new();
        for (i, (second, user, to)) in mails.iter().enumerate() {
            let (day, second) = (second / 86_400, second % 86_400 + 12 * 3_600);
            let stamp = format!(
                "2024-03-{:02}T{:02}:{:02}:{:02}Z mail",
                1 + day + second / 86_400,
                second / 3_600 % 24,
                second / 60 % 60,
                second % 60
            );
            text += &format!("{stamp} postfix/smtpd[1]: {i:05X}A: client=pc[10.0.0.1], sasl_username={user}\n");
            text += &format!("{stamp} postfix/smtp[1]: {i:05X}A: to=<{to}>, relay=mx, status=sent (ok)\n");
        }
        let mut reader = Reader::new(Some(SourceKind::Postfix), None, Wanted::default());
        reader.stream(Path::new("log"), text.as_bytes(), now()).unwrap();
        reader.finish().unwrap()
    }

    #[test]
    fn the_mail_that_stops_is_named_even_within_one_second() {
        let past = log(&(0..30).map(|i| (7, "eve", format!("w{i}@y.org"))).collect::<Vec<_>>());
        let replay = replay(&past, Params::default(), None).unwrap();
        let eve = &replay.users["eve"];
        let by = StoppedBy { source: "log".into(), name: "00015A".into(), to: "w21@y.org".into(), recipients: 1 };
        assert_eq!(eve.stopped_by, Some(by), "one by slack, twenty wait, the next is one too many");
        assert_eq!((eve.report.mails, eve.report.refused, eve.report.held), (22, 8, 21));
        assert_eq!((eve.sent_mails, eve.sent_recipients), (30, 30));
        assert_eq!(eve.stopped_at.as_deref(), Some("2024-03-01T12:00:07Z"));
        assert_eq!(replay.queues[0].points.last(), Some(&(0.0, 21.0)));
    }

    #[test]
    fn the_longest_delay_is_that_of_the_unluckiest_mail() {
        let sent = [(0, "b"), (1, "c"), (2, "d"), (130, "e")];
        let mails: Vec<_> = sent.iter().map(|(at, to)| (*at, "ann", format!("{to}@y.org"))).collect();
        let result = replay(&log(&mails), Params::default(), None).unwrap();
        let ann = &result.users["ann"];
        // c waits from 1 s to 60 s, d from 2 s to 120 s, e from 130 s to 180 s.
        assert!((ann.longest_delay_s - 118.0).abs() < 1e-6, "{ann:?}");
        assert!((ann.report.mean_delay_s - (59.0 + 118.0 + 50.0) / 4.0).abs() < 1e-6, "{ann:?}");
        assert_eq!(ann.stopped_by, None);
    }

    #[test]
    fn caps_are_proposed_above_what_anybody_did_who_was_not_stopped() {
        let mut mails: Vec<_> = (0..40).map(|i| (i, "eve", format!("w{i}@y.org"))).collect();
        mails.extend((0..30).map(|i| (60 * i, "ann", format!("c{}@y.org", i % 28))));
        let replay = replay(&log(&mails), Params::default(), None).unwrap();
        let ann = &replay.users["ann"];
        assert_eq!((ann.most_mails_a_day, ann.most_strangers_a_day), (30, 28));
        let proposed = ProposedCaps { messages_a_day: 200, new_recipients_a_day: 100 };
        assert_eq!(replay.proposed, Some(proposed), "eve, a worm, has no say");
    }

    /// Somebody who sent a stranger a mail every few minutes in another's name was not stopped, and is not what is usual.
    #[test]
    fn a_quiet_thief_has_no_say_in_the_caps_and_is_named() {
        let day = 86_400;
        let mut mails = Vec::new();
        for number in 0..30 {
            for user in ["ann", "ben", "eve"] {
                mails.extend((0..6).map(|i| (number * day + 900 * i, user, format!("{user}{}@y.org", i + number % 3))));
            }
        }
        // From the 20th day on, all day long.
        for number in 20..24 {
            mails.extend((0..700).map(|i| (number * day + 10_000 + 90 * i, "eve", format!("s{number}.{i}@z.org"))));
        }
        mails.sort_by_key(|mail| mail.0);
        let replay = replay(&log(&mails), Params { stop_at: 1_000, ..Params::default() }, None).unwrap();
        assert_eq!(replay.users["eve"].stopped_at, None);
        let proposed = ProposedCaps { messages_a_day: 200, new_recipients_a_day: 50 };
        assert_eq!(replay.proposed, Some(proposed));
        let named: Vec<_> = replay.outlying.iter().map(|out| (out.user.as_str(), out.day.date.as_str())).collect();
        assert_eq!(named, ["2024-03-21", "2024-03-22", "2024-03-23", "2024-03-24"].map(|date| ("eve", date)));
        assert_eq!((replay.outlying[0].usual_mails, replay.outlying[0].day.mails), (Some(6), 706));
    }

    #[test]
    fn absurd_parameters_are_refused() {
        let params = Params { stop_at: 0, ..Params::default() };
        let error = replay(&log(&[(0, "ann", "b@y.org".into())]), params, None).unwrap_err();
        assert!(error.problem.contains("stop_at") && error.hint.contains("between 1"), "{error}");
    }

    #[test]
    fn the_worst_off_come_first() {
        let mut mails: Vec<_> = (0..40).map(|i| (i, "eve", format!("w{i}@y.org"))).collect();
        mails.extend([(0, "ann", "a@y.org".into()), (100, "ben", "a@y.org".into()), (101, "ben", "b@y.org".into())]);
        let replay = replay(&log(&mails), Params::default(), None).unwrap();
        let order: Vec<&str> = replay.worst_first().iter().map(|(user, _)| *user).collect();
        assert_eq!(order, ["eve", "ben", "ann"]);
        let drawn: Vec<&str> = replay.queues.iter().map(|line| line.user.as_str()).collect();
        assert_eq!(drawn, ["eve", "ben"]);
    }
}
