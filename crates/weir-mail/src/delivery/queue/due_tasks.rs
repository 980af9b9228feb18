//! Tasks that become due at a certain time: reports to senders, warnings of a delay, and giving up messages whose time is over.
//!
//! A report is handed out, and counts as made only when [`Queue::reported`] is told that it is stored; otherwise it is handed out again
//! later. Failures of one message are gathered into one report while others of its recipients are being tried.

use std::sync::Arc;
use std::time::Duration;

use weir_core::time::Instant;

use super::job::{RecipientState, wants};
use super::{DeliveryOutcome, DeliveryProgress, OutgoingMessage, ParcelId, Queue, Settlement, Slot, Status};

/// A report that could not be made is tried again after this.
const REPORT_AGAIN: Duration = Duration::from_secs(60);
/// How often a message whose time is over, and which waits for its last attempt, is looked at.
const LAST_LOOK: Duration = Duration::from_secs(60);

/// Something to do.
#[derive(Debug)]
pub enum DueTask {
    /// Tell the sender, then call [`Queue::reported`].
    Report(SenderReport),
    /// Write this down.
    Settle(Settlement),
}

/// What to tell the sender of a message.
#[derive(Clone, Debug)]
pub struct SenderReport {
    slot: Slot,
    /// The message.
    pub message: Arc<OutgoingMessage>,
    /// What it is about.
    pub kind: ReportKind,
    /// The recipients that it is about.
    pub recipients: Vec<Reported>,
    /// Until when we try.
    pub until: Instant,
}

/// What a report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportKind {
    /// It is over for these recipients.
    Final,
    /// It takes longer.
    Delay,
}

/// One recipient of a report.
#[derive(Clone, Debug)]
pub struct Reported {
    /// Its place in the message.
    pub place: usize,
    /// What happened.
    pub action: Action,
    /// The answer that decided it.
    pub outcome: Arc<DeliveryOutcome>,
}

/// What happened to a recipient (RFC 3464 section 2.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It will never be delivered.
    Failed,
    /// It has not been delivered yet.
    Delayed,
    /// It has arrived.
    Delivered,
    /// It was passed on to a host that does not report.
    Relayed,
}

/// A task before it is handed out.
#[derive(Debug)]
pub(super) enum Todo {
    Report(Slot),
    Warn(Slot),
    Settle(Settlement),
}

impl Queue {
    /// The next thing to do besides delivering. Ask until there is none.
    pub fn due_task(&mut self, now: Instant) -> Option<DueTask> {
        while let Some((at, slot)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, slot));
            self.ring(slot, now);
        }
        while let Some(todo) = self.due_tasks.pop_front() {
            let task = match todo {
                Todo::Report(slot) => self.final_report(slot).map(DueTask::Report),
                Todo::Warn(slot) => self.warning(slot).map(DueTask::Report),
                Todo::Settle(settlement) => Some(DueTask::Settle(settlement)),
            };
            if task.is_some() {
                return task;
            }
        }
        None
    }

    /// A report is safe, or could not be made now.
    pub fn reported(&mut self, report: &SenderReport, safe: bool, now: Instant) -> Option<Settlement> {
        let slot = report.slot;
        let entry = self.jobs.get_mut(slot)?;
        match report.kind {
            ReportKind::Delay => {
                entry.warned = safe;
                if !safe {
                    self.set_alarm(slot, now + REPORT_AGAIN);
                }
                let progress = if safe { vec![DeliveryProgress::Warned] } else { Vec::new() };
                self.review(slot, progress, now)
            }
            ReportKind::Final => {
                entry.reporting = false;
                if safe {
                    let progress = self.close(report);
                    return self.review(slot, progress, now);
                }
                self.set_alarm(slot, now + REPORT_AGAIN);
                None
            }
        }
    }

    /// Something of a message is due.
    fn ring(&mut self, slot: Slot, now: Instant) {
        let Some(entry) = self.jobs.get_mut(slot) else { return };
        let retry = &self.settings.retry;
        let (end, warn_at) = (retry.end(entry.message.accepted_at), retry.warn_at(entry.message.accepted_at));
        if now >= warn_at && now < end && !entry.warned {
            entry.warned = true;
            self.due_tasks.push_back(Todo::Warn(slot));
        }
        if entry.has_news() && !std::mem::replace(&mut entry.reporting, true) {
            self.due_tasks.push_back(Todo::Report(slot));
        }
        let warned = entry.warned;
        let next = if now >= end {
            if self.expire(slot) { now + LAST_LOOK } else { Instant::NEVER }
        } else if warned {
            end
        } else {
            end.min(warn_at)
        };
        if let Some(entry) = self.jobs.get_mut(slot) {
            entry.alarm = next;
        }
        self.alarms.insert((next, slot));
        if let Some(settlement) = self.review(slot, Vec::new(), now) {
            self.due_tasks.push_back(Todo::Settle(settlement));
        }
    }

    /// The time of a message is over. What goes where nobody answers is given up; the rest is tried once more, now, and ends when that
    /// is settled. So nothing comes back that this process has not tried, however long it was down. Whether something is left.
    fn expire(&mut self, slot: Slot) -> bool {
        let parcels: Vec<_> = self.jobs.get(slot).into_iter().flat_map(|entry| entry.parcels.iter()).collect();
        for parcel in parcels {
            let destination = self.scheduler.load(parcel).map(|load| load.destination);
            match destination.and_then(|destination| self.troubles.get(&destination).cloned()) {
                Some(trouble) => self.give_up(slot, parcel, &trouble),
                None => self.scheduler.hasten(parcel),
            }
        }
        self.jobs.get(slot).is_some_and(|entry| !entry.parcels.is_empty())
    }

    /// Gives up a parcel, unless it is under way: then it ends when it is settled.
    fn give_up(&mut self, slot: Slot, parcel: ParcelId, trouble: &Arc<DeliveryOutcome>) {
        let Some(load) = self.scheduler.remove(parcel) else { return };
        if let Some(entry) = self.jobs.get_mut(slot) {
            self.totals.failed += entry.waiting(load.stretch()).count() as u64;
            entry.give_up(load.stretch(), entry.condemned, Some(trouble));
        }
        self.parcel_gone(slot, parcel, &load.target);
    }

    fn close(&mut self, report: &SenderReport) -> Vec<DeliveryProgress> {
        let Some(entry) = self.jobs.get_mut(report.slot) else { return Vec::new() };
        let mut failed = Vec::new();
        for reported in &report.recipients {
            let Some(held) = entry.recipients.get_mut(reported.place) else { continue };
            *held = RecipientState::Done;
            let index = entry.message.recipients.get(reported.place).map(|recipient| recipient.index);
            failed.extend(index.filter(|_| reported.action == Action::Failed));
        }
        if failed.is_empty() { Vec::new() } else { vec![DeliveryProgress::Failed(failed.into())] }
    }

    fn final_report(&self, slot: Slot) -> Option<SenderReport> {
        self.report(slot, ReportKind::Final, |_, held| match held {
            RecipientState::Failed(outcome) => Some((Action::Failed, Arc::clone(outcome))),
            RecipientState::Delivered(outcome, arrived) => {
                let action = if *arrived { Action::Delivered } else { Action::Relayed };
                Some((action, Arc::clone(outcome)))
            }
            RecipientState::Waiting(_) | RecipientState::Done => None,
        })
    }

    fn warning(&self, slot: Slot) -> Option<SenderReport> {
        let entry = self.jobs.get(slot)?;
        if entry.condemned || !entry.message.has_sender() {
            return None;
        }
        let mut troubles = vec![None; entry.recipients.len()];
        for load in entry.parcels.iter().filter_map(|parcel| self.scheduler.load(parcel)) {
            let trouble = self.troubles.get(&load.destination);
            troubles.get_mut(load.stretch()).into_iter().flatten().for_each(|place| *place = trouble.cloned());
        }
        let unknown = || Arc::new(DeliveryOutcome::temporary(Status(4, 4, 7), "its turn has not come yet"));
        self.report(slot, ReportKind::Delay, |place, held| {
            let wanted = wants(entry.message.recipients.get(place)?.to.notify, |notify| notify.delay);
            match held {
                RecipientState::Waiting(last) if wanted => {
                    let known = last.clone().or_else(|| troubles.get(place).cloned().flatten());
                    Some((Action::Delayed, known.unwrap_or_else(unknown)))
                }
                _ => None,
            }
        })
    }

    fn report(
        &self,
        slot: Slot,
        kind: ReportKind,
        pick: impl Fn(usize, &RecipientState) -> Option<(Action, Arc<DeliveryOutcome>)>,
    ) -> Option<SenderReport> {
        let entry = self.jobs.get(slot)?;
        let picked =
            entry.recipients.iter().enumerate().filter_map(|(place, held)| {
                pick(place, held).map(|(action, outcome)| Reported { place, action, outcome })
            });
        let recipients: Vec<_> = picked.collect();
        let until = self.settings.retry.end(entry.message.accepted_at);
        let message = Arc::clone(&entry.message);
        (!recipients.is_empty()).then_some(SenderReport { slot, message, kind, recipients, until })
    }
}
