//! What can be asked of somebody's throttle, and what comes back.

use super::correspondents::KnownCorrespondents;
use super::{LOOKED_AT_WITHIN, ThrottlingError};
use std::time::Duration;
use weir_core::throttle::{
    Class, EntryId, Held, LaneId, Mail, MailDecision, MailKind, NetworkKey, Params, Recipient, RecipientKey,
    Recipients, StopReason, Throttle,
};
use weir_core::time::Instant;
use weir_store::records::{Changes, Fate, HeldRow, Learned, ThrottleRow};

/// How long a queue that cannot be read is left alone before it is tried again.
const UNREADABLE_RESTS: Duration = Duration::from_secs(600);

/// A mail that asks to go.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Whose throttle: a login, or a client address.
    pub identity: String,
    /// The parameters in force for it.
    pub params: Params,
    /// The recipients as keyed hashes of canonical addresses. Equal ones stand together: they are one, and share what is said.
    pub recipients: Vec<RecipientKey>,
    /// Who they are, in the same order, as far as the addresses say it: whoever is no colleague may be a correspondent.
    pub classes: Vec<Class>,
    /// The network that the client is in; nothing where that says nothing about the user.
    pub network: Option<NetworkKey>,
    /// The address of ours that it is sent as, in canonical form; empty if letters to it do not count.
    pub sent_as: String,
    /// What to remember of a held recipient; recipient, place and entry are filled in here.
    pub template: HeldRow,
    /// The recipients' addresses, in the same order.
    pub addresses: Vec<String>,
    /// Their places in the envelope, in the same order; recipients that need no asking may stand between them.
    pub places: Vec<usize>,
    /// Only learn what would have happened: everything goes at once.
    pub learn_only: bool,
    /// Somebody is told of a delay if the last of it has to wait this long.
    pub tell_delays_over: Duration,
    /// It may have been acknowledged before a kill: if the user is stopped, it waits for a decision like the rest.
    pub taken_before: bool,
}

impl Submission {
    /// The recipients, each once, with the class that `known` gives those who are no colleagues.
    fn distinct(&self, known: &KnownCorrespondents<'_>) -> Vec<Recipient> {
        let recipients =
            self.recipients.iter().zip(self.classes.iter().copied().chain(std::iter::repeat(Class::Stranger)));
        let mut distinct: Vec<Recipient> = Vec::with_capacity(self.recipients.len());
        for (key, class) in recipients {
            if distinct.last().is_some_and(|last| last.key == *key) {
                continue;
            }
            let correspondent = class == Class::Stranger
                && self.params.recipients == Recipients::Classed
                && known.is_correspondent(*key);
            distinct.push(Recipient { key: *key, class: if correspondent { Class::Correspondent } else { class } });
        }
        distinct
    }

    /// How many addresses each of the recipients has.
    fn addresses_of_each(&self) -> impl Iterator<Item = usize> {
        self.recipients.chunk_by(PartialEq::eq).map(<[RecipientKey]>::len)
    }
}

/// What became of a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// Which recipients go now, and what was held.
    Accepted {
        /// Recipients that go now, as places in the question, in order.
        at_once: Vec<usize>,
        /// Recipients that wait.
        held: usize,
        /// When the first and the last of them will go; unknown once the user is stopped.
        expected: Option<(Instant, Instant)>,
        /// How many entries wait in all now.
        queue: usize,
        /// This mail stopped the user.
        stopped: Option<StopReason>,
        /// Who should be told what.
        notice: Option<NoticeKind>,
    },
    /// The user is stopped.
    Refused {
        /// Since when.
        since: Instant,
        /// Entries that wait for a decision.
        queue: usize,
    },
}

/// What people are told, each once an episode (until the queue is empty again).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    /// Mail was delayed for the first time.
    FirstDelay = 1,
    /// The delay queue is half full.
    HalfFull = 2,
    /// The user was stopped.
    Stopped = 3,
}

impl NoticeKind {
    /// The notice of this number, as the records keep it.
    pub fn of(number: i64) -> Option<NoticeKind> {
        [NoticeKind::FirstDelay, NoticeKind::HalfFull, NoticeKind::Stopped]
            .into_iter()
            .find(|kind| *kind as i64 == number)
    }
}

/// What a person or the clock asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottleCommand {
    /// The clock: let go what is due.
    Drain,
    /// Let these entries go now.
    Release(Vec<i64>),
    /// Drop these entries.
    Delete(Vec<i64>),
    /// An order by mail: decide about the entries that its notice showed.
    DecideShown(ShownEntries),
    /// A person locked the user: let nothing go by itself.
    Stop,
    /// End the stop.
    Unlock,
    /// Use these parameters from now on.
    Reparameterise(Params),
}

/// Which entries a notice showed, and in which situation; what is to be done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownEntries {
    /// The newest entry that waited then; none waited if this is negative.
    pub up_to: i64,
    /// The situation of the throttle then ([`Throttle::situation`]).
    pub situation: u32,
    /// What becomes of them.
    pub fate: Fate,
    /// Only these of them; all, if there is nothing here.
    pub only: Option<Vec<i64>>,
    /// Whether that is right also while the user is stopped.
    pub while_stopped: bool,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// A stop has begun or ended since the notice was written.
    OtherSituation,
    /// The user is stopped, and this has to be asked again.
    Stopped,
}

/// What a command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Entries that go now.
    pub going: usize,
    /// Entries that were dropped.
    pub dropped: usize,
    /// Entries that still wait.
    pub queue: usize,
    /// The stop ended.
    pub unlocked: bool,
    /// Why nothing was done, if that is so.
    pub not_done: Option<NotDone>,
}

/// The throttle of one identity while a batch is decided: its row, and what the requests so far have made of it. It is read
/// when it is first asked for and written at the end, however many requests are about it.
pub(super) struct BatchedThrottle<'a> {
    row: &'a mut ThrottleRow,
    /// Entries whose relay is down: the queue passes over them.
    absent: &'a [EntryId],
    throttle: Option<Throttle>,
    learned: Option<Learned>,
}

impl<'a> BatchedThrottle<'a> {
    pub(super) fn new(row: &'a mut ThrottleRow, absent: &'a [EntryId]) -> BatchedThrottle<'a> {
        BatchedThrottle { row, absent, throttle: None, learned: None }
    }

    /// Writes into the row and the changes what became of it.
    pub(super) fn close(self, changes: &mut Changes) {
        if let Some(throttle) = &self.throttle {
            self.row.state = super::state::write(throttle);
        }
        changes.learned.extend(self.learned);
    }
}

/// One request about one identity's throttle. The rules are the core's; here its answers become rows.
pub(super) struct Operation<'a, 'b> {
    pub(super) of: &'a mut BatchedThrottle<'b>,
    pub(super) changes: &'a mut Changes,
    /// Whom mail was let go to that has to be remembered.
    pub(super) sent: &'a mut Vec<(String, RecipientKey)>,
    /// What is known of past mail.
    pub(super) known: KnownCorrespondents<'a>,
    pub(super) now: Instant,
    /// No other relay, whose clock may show another time, decides on these throttles.
    pub(super) alone: bool,
}

impl Operation<'_, '_> {
    pub(super) fn submit(&mut self, submission: &Submission) -> Result<SubmitOutcome, ThrottlingError> {
        let mut throttle = self.load(Some(submission.params))?;
        let to = submission.distinct(&self.known);
        let mail = Mail { to: &to, from: submission.network };
        let outcome = if submission.learn_only {
            self.learn(&mut throttle, submission, &mail)
        } else {
            match throttle.submit_mail(self.now, &mail) {
                MailDecision::Refused if submission.taken_before => self.enqueue_all(&mut throttle, submission, &to),
                MailDecision::Refused => SubmitOutcome::Refused {
                    since: throttle.stopped().map_or(self.now, |stop| stop.since),
                    queue: throttle.held_count(),
                },
                MailDecision::Accepted { fates, .. } => self.accept(&mut throttle, submission, &to, &fates),
            }
        };
        self.save(throttle);
        Ok(outcome)
    }

    pub(super) fn command(&mut self, command: &ThrottleCommand) -> Result<Done, ThrottlingError> {
        let params = match command {
            ThrottleCommand::Reparameterise(params) => Some(*params),
            _ => None,
        };
        let waiting = self.changes.decide.len();
        let mut throttle = self.load(params)?;
        let (now, mut done) = (self.now, Done::default());
        match command {
            ThrottleCommand::Drain | ThrottleCommand::Reparameterise(_) => {}
            ThrottleCommand::Release(entries) => self.release_all(&mut throttle, entries),
            ThrottleCommand::Delete(entries) => self.decide_all(entries, Fate::Drop, |e| throttle.delete(now, e)),
            ThrottleCommand::DecideShown(shown) => done.not_done = self.decide_shown(&mut throttle, shown),
            ThrottleCommand::Stop => {
                throttle.stop(now);
            }
            ThrottleCommand::Unlock => {
                done.unlocked = throttle.unlock(now);
                // If what waits stops the user again, that is to be told again.
                self.of.row.notified = self.of.row.notified.min(NoticeKind::HalfFull as i64);
            }
        }
        self.let_go(&mut throttle);
        let decided = &self.changes.decide[waiting..];
        done.dropped = decided.iter().filter(|(_, _, fate)| *fate == Fate::Drop).count();
        done.going = decided.len() - done.dropped;
        self.save(throttle);
        done.queue = self.of.row.held as usize;
        Ok(done)
    }

    /// The throttle as this batch has left it so far, with `params`, at `now`. What its queue gave out on the way is
    /// already on its way.
    fn load(&mut self, params: Option<Params>) -> Result<Throttle, ThrottlingError> {
        let mut throttle = match self.of.throttle.take() {
            Some(throttle) => throttle,
            None => self.read(params)?,
        };
        if let Some(params) = params.filter(|params| params != throttle.params())
            && let Err(error) = throttle.reparameterise(params)
        {
            // What others were told in this batch still counts.
            self.of.throttle = Some(throttle);
            return Err(self.unreadable(&error.to_string()));
        }
        self.let_go(&mut throttle);
        Ok(throttle)
    }

    /// The throttle of the row, with its times moved to where the clock is if that was set or stood still. One that cannot be read is not
    /// due again for a while: it must not be looked at all the time, nor keep others from being looked at.
    fn read(&mut self, params: Option<Params>) -> Result<Throttle, ThrottlingError> {
        let mut throttle = match super::state::read(&self.of.row.state, params, self.now) {
            Ok(throttle) => throttle,
            Err(error) => {
                let again = (self.now + UNREADABLE_RESTS).0 as i64;
                self.of.row.next_deadline = self.of.row.next_deadline.map(|_| again);
                self.of.row.updated_at = self.now.0 as i64;
                return Err(self.unreadable(&error));
            }
        };
        if self.alone {
            throttle.turn_back(self.now, LOOKED_AT_WITHIN);
        }
        throttle.mind_gap(self.now, LOOKED_AT_WITHIN);
        Ok(throttle)
    }

    fn unreadable(&self, error: &str) -> ThrottlingError {
        ThrottlingError::Records(format!("the throttle of {:?} cannot be read: {error}", self.of.row.identity))
    }

    fn let_go(&mut self, throttle: &mut Throttle) {
        for released in throttle.advance_past(self.now, self.of.absent) {
            self.changes.decide.push((self.of.row.identity.clone(), released.entry.0 as i64, Fate::Go));
            self.was_sent(throttle, released.recipient, released.lane);
        }
    }

    /// Mail to somebody was let go: that makes a correspondent of a stranger. Colleagues are known by their domain.
    fn was_sent(&mut self, throttle: &Throttle, to: RecipientKey, lane: LaneId) {
        let classed = throttle.params().recipients == Recipients::Classed;
        if classed && lane != LaneId::Colleagues && self.known.is_news(to) {
            self.sent.push((self.of.row.identity.clone(), to));
        }
    }

    fn release_all(&mut self, throttle: &mut Throttle, entries: &[i64]) {
        let now = self.now;
        for entry in entries {
            let held = throttle.entry(EntryId(*entry as u64));
            self.decide_all(&[*entry], Fate::Go, |entry| throttle.release(now, entry));
            if let Some((recipient, lane)) = held {
                self.was_sent(throttle, recipient, lane);
            }
        }
    }

    fn decide_all(&mut self, entries: &[i64], fate: Fate, mut decide: impl FnMut(EntryId) -> bool) {
        for entry in entries {
            if decide(EntryId(*entry as u64)) {
                self.changes.decide.push((self.of.row.identity.clone(), *entry, fate));
            }
        }
    }

    /// Decides about what a notice showed, unless its permission has died with the situation that it was given in.
    fn decide_shown(&mut self, throttle: &mut Throttle, shown: &ShownEntries) -> Option<NotDone> {
        if throttle.situation() != shown.situation {
            return Some(NotDone::OtherSituation);
        }
        if throttle.stopped().is_some() && !shown.while_stopped {
            return Some(NotDone::Stopped);
        }
        let meant = |entry: &i64| *entry <= shown.up_to && shown.only.as_ref().is_none_or(|only| only.contains(entry));
        let entries = throttle.held().map(|held| held.entry.0 as i64).filter(meant).collect::<Vec<_>>();
        let now = self.now;
        match shown.fate {
            Fate::Drop => self.decide_all(&entries, Fate::Drop, |entry| throttle.delete(now, entry)),
            _ => self.release_all(throttle, &entries),
        }
        None
    }

    fn hold(&mut self, submission: &Submission, asked: usize, entry: EntryId) {
        self.changes.hold.push(HeldRow {
            identity: self.of.row.identity.clone(),
            entry: entry.0 as i64,
            recipient: submission.addresses.get(asked).cloned().unwrap_or_default(),
            place: submission.places.get(asked).map_or(-1, |place| *place as i64),
            ..submission.template.clone()
        });
    }

    /// A mail whose recipients have these fates. A recipient may have several addresses: all of them go, or each waits as an entry
    /// of its own, so that people can decide on each.
    fn accept(
        &mut self,
        throttle: &mut Throttle,
        submission: &Submission,
        to: &[Recipient],
        fates: &[Option<Held>],
    ) -> SubmitOutcome {
        let (mut at_once, mut others, mut asked) = (Vec::new(), Vec::new(), 0);
        for ((recipient, fate), addresses) in to.iter().zip(fates).zip(submission.addresses_of_each()) {
            match fate {
                None => {
                    at_once.extend(asked..asked + addresses);
                    self.was_sent(throttle, recipient.key, recipient.class.into());
                }
                Some(held) => {
                    self.hold(submission, asked, held.entry);
                    others.extend((asked + 1..asked + addresses).map(|asked| (asked, *recipient)));
                }
            }
            asked += addresses;
        }
        let more = self.enqueue(throttle, submission, &others);
        let stop = throttle.stopped();
        let times = || fates.iter().flatten().chain(&more).filter_map(|held| held.expected_at);
        let expected = times().min().zip(times().max());
        SubmitOutcome::Accepted {
            held: submission.recipients.len() - at_once.len(),
            at_once,
            expected: expected.filter(|_| stop.is_none()),
            queue: throttle.held_count(),
            stopped: stop.map(|stop| stop.reason),
            notice: self.notice(throttle, expected.map(|(_, last)| last), submission.tell_delays_over),
        }
    }

    /// Lets these addresses wait in the lanes of their classes, whatever slack there is.
    fn enqueue(&mut self, throttle: &mut Throttle, submission: &Submission, asked: &[(usize, Recipient)]) -> Vec<Held> {
        if asked.is_empty() {
            return Vec::new();
        }
        let recipients: Vec<Recipient> = asked.iter().map(|(_, recipient)| *recipient).collect();
        let kind = if submission.addresses_of_each().count() == 1 { MailKind::Single } else { MailKind::Multi };
        let held = throttle.enqueue_mail(self.now, &recipients, kind);
        asked.iter().zip(&held).for_each(|((asked, _), held)| self.hold(submission, *asked, held.entry));
        held
    }

    /// All recipients join the lines of a stopped user.
    fn enqueue_all(&mut self, throttle: &mut Throttle, submission: &Submission, to: &[Recipient]) -> SubmitOutcome {
        let each = to.iter().zip(submission.addresses_of_each());
        let recipients = each.flat_map(|(recipient, addresses)| std::iter::repeat_n(*recipient, addresses));
        self.enqueue(throttle, submission, &recipients.enumerate().collect::<Vec<_>>());
        let (held, queue) = (submission.recipients.len(), throttle.held_count());
        SubmitOutcome::Accepted { at_once: Vec::new(), held, expected: None, queue, stopped: None, notice: None }
    }

    /// Everything goes at once; what would have happened is noted.
    fn learn(&mut self, throttle: &mut Throttle, submission: &Submission, mail: &Mail<'_>) -> SubmitOutcome {
        let would = throttle.learn_mail(self.now, mail);
        mail.to.iter().for_each(|to| self.was_sent(throttle, to.key, to.class.into()));
        let learned = self.of.learned.get_or_insert_with(|| Learned {
            identity: self.of.row.identity.clone(),
            day: (self.now.0 / 86_400_000_000_000) as i64,
            mails: 0,
            recipients: 0,
            would_hold: 0,
            would_stop: 0,
        });
        learned.mails += 1;
        learned.recipients += submission.recipients.len() as i64;
        learned.would_hold += would.held as i64;
        learned.would_stop += i64::from(would.stopped);
        let at_once = (0..submission.recipients.len()).collect();
        SubmitOutcome::Accepted { at_once, held: 0, expected: None, queue: 0, stopped: None, notice: None }
    }

    /// What people are told after a mail of which the last recipient is expected to go at `last`, if one waits.
    fn notice(&mut self, throttle: &Throttle, last: Option<Instant>, tell_delays_over: Duration) -> Option<NoticeKind> {
        let waits_long = last.is_some_and(|at| at.since(self.now) >= tell_delays_over);
        let half = throttle.is_half_full();
        let kind = match throttle.stopped() {
            Some(_) => NoticeKind::Stopped,
            None if !waits_long => return None,
            None if half => NoticeKind::HalfFull,
            None => NoticeKind::FirstDelay,
        };
        let new = self.of.row.notified < kind as i64;
        self.of.row.notified = self.of.row.notified.max(kind as i64);
        new.then_some(kind)
    }

    fn save(&mut self, throttle: Throttle) {
        self.of.row.next_deadline = throttle.next_deadline().map(|at| at.0 as i64);
        self.of.row.held = throttle.held_count() as i64;
        self.of.row.stopped_at = throttle.stopped().map(|stop| stop.since.0 as i64);
        self.of.row.updated_at = self.now.0 as i64;
        if self.of.row.held == 0 {
            self.of.row.notified = 0;
        }
        self.of.throttle = Some(throttle);
    }
}
