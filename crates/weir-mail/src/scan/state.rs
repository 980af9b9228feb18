//! The letters that the scan has: those that wait, those being scanned, and those to be tried again later.

use super::ScanError;
use super::asked_file::WaitingFile;
use super::figures::Figures;
use super::settings::Settings;
use crate::letter::{Allowed, Letter};
use crate::pipeline::Transit;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use weir_core::feeds::{Dispatch, MessageId as Number, Opening, Outage, Started, WorkerId};
use weir_core::time::Instant;
use weir_store::spool::MessageId;

/// A letter: Waiting in the feeds → under way → gone, or → retried → waiting. While no scanner answers: waiting → parked →
/// under way.
#[derive(Debug)]
pub(super) struct State {
    pub(super) dispatch: Dispatch,
    /// Says when limits give way; none if they hold whatever they cost.
    pub(super) opening: Option<Opening>,
    /// Every letter that is here, by number.
    pub(super) letters: HashMap<u64, WaitingLetter>,
    /// Files that other programs ask about and that wait, by number.
    pub(super) streams: HashMap<u64, WaitingFile>,
    next_number: u64,
    /// Letters that are tried again, and when.
    pub(super) retry: BTreeSet<(Instant, u64)>,
    pub(super) outage: Outage,
    /// Workers with a letter that may not begin, because no scanner answers.
    pub(super) parked: Vec<RunningScan>,
    /// What each busy worker scans.
    pub(super) running: BTreeMap<usize, (u64, AbortHandle)>,
    pub(super) figures: Figures,
    pub(super) stopping: bool,
}

/// A letter that is here.
#[derive(Debug, Clone)]
pub(super) struct WaitingLetter {
    pub(super) id: MessageId,
    /// None if it must be read from the spool again.
    pub(super) letter: Option<Arc<Letter>>,
    /// What stages before this one added, if the letter is not here.
    pub(super) added: Box<str>,
    /// Why a person is to look at it; empty while the letter is there.
    pub(super) hold: Option<Box<str>>,
    /// Whether its sender is allowed, as the stage before this one has found out; none while the letter is there.
    pub(super) allowed: Option<Box<Allowed>>,
    pub(super) places: Box<[usize]>,
    /// Whose turn it takes.
    pub(super) sender: Box<str>,
    pub(super) size: u64,
    /// When it was accepted.
    pub(super) at: Instant,
    /// Attempts that failed.
    pub(super) attempts: u32,
    /// Attempts that the end of the process interrupted.
    pub(super) interrupted: u32,
}

/// A worker with its letter.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningScan {
    pub(super) worker: WorkerId,
    pub(super) number: u64,
    pub(super) waited: Duration,
}

impl From<Started> for RunningScan {
    fn from(started: Started) -> RunningScan {
        RunningScan { worker: started.worker, number: started.message.id.0, waited: started.waited }
    }
}

impl State {
    pub(super) fn new(settings: &Settings, now: Instant) -> Result<State, ScanError> {
        let (plan, machine) = (settings.plan_in_force(), settings.machine());
        let mut dispatch = machine.dispatch(plan.clone(), usize::MAX)?;
        let opening = if plan.opens { Some(Opening::new(&plan, &machine, now)?) } else { None };
        if let Some(opening) = &opening {
            dispatch.put_in_force(opening.in_force(), now);
        }
        Ok(State {
            dispatch,
            opening,
            letters: HashMap::new(),
            streams: HashMap::new(),
            next_number: 0,
            retry: BTreeSet::new(),
            outage: Outage::default(),
            parked: Vec::new(),
            running: BTreeMap::new(),
            figures: Figures::new(settings.plan.limits.feeds(), &settings.bound, now),
            stopping: false,
        })
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// The size of what has this number, and who sent it.
    pub(super) fn asking(&self, number: u64) -> Option<(u64, &str)> {
        let letter = self.letters.get(&number).map(|waiting| (waiting.size, &*waiting.sender));
        letter.or_else(|| self.streams.get(&number).map(|stream| (stream.content.length(), &*stream.client)))
    }

    /// Whether its scan may begin now. While no scanner answers, letters wait; a program that asks about a file is told so.
    pub(super) fn may_begin(&mut self, number: u64, now: Instant) -> bool {
        self.streams.contains_key(&number) || self.outage.may_begin(number, now)
    }

    /// The next letter whose time to be tried again has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        let (at, _) = self.retry.first()?;
        if *at > now || self.stopping { None } else { self.retry.pop_first().map(|(_, number)| number) }
    }

    /// Puts as much of the limits in force as saves waiting; the letters that begin by it.
    pub(super) fn weigh_limits(&mut self, now: Instant) -> Vec<RunningScan> {
        let Some(opening) = &mut self.opening else { return Vec::new() };
        let in_force = opening.look(now);
        let started = self.dispatch.put_in_force(in_force, now);
        started.into_iter().map(RunningScan::from).collect()
    }

    /// Everything that is tried again later is tried now.
    pub(super) fn retry_all(&mut self, now: Instant) {
        let all = std::mem::take(&mut self.retry);
        self.retry = all.into_iter().map(|(_, number)| (now, number)).collect();
    }

    /// Takes a letter out of whatever it waits in; nothing if it is under way.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<WaitingLetter> {
        let busy = self.running.values().any(|(running, _)| *running == number)
            || self.parked.iter().any(|begun| begun.number == number);
        if busy {
            return None;
        }
        self.dispatch.withdraw(Number(number));
        self.retry.retain(|(_, other)| *other != number);
        self.letters.remove(&number)
    }

    /// Letters that were accepted before `then` and are not under way.
    pub(super) fn accepted_before(&self, then: Instant) -> Vec<u64> {
        self.letters.iter().filter(|(_, waiting)| waiting.at <= then).map(|(number, _)| *number).collect()
    }
}

impl WaitingLetter {
    pub(super) fn new(transit: Transit) -> WaitingLetter {
        let Transit { id, letter, places } = transit;
        WaitingLetter {
            id,
            // A login or a network: both have to be owned. An envelope sender is a claim, and a new one costs nothing.
            sender: letter.owner.as_str().into(),
            at: Instant(letter.at),
            letter: Some(letter),
            added: "".into(),
            hold: None,
            allowed: None,
            places: places.into(),
            size: 0,
            attempts: 0,
            interrupted: 0,
        }
    }

    /// Keeps only what the spool does not know.
    pub(super) fn forget_letter(&mut self) {
        if let Some(letter) = self.letter.take() {
            self.added = letter.added.as_str().into();
            self.hold = letter.hold.as_deref().map(Into::into);
            self.allowed = letter.allowed.clone().map(Box::new);
        }
    }

    /// The letter as the spool has it becomes the one that was handed in.
    pub(super) fn remembered(&self, mut letter: Letter) -> Arc<Letter> {
        letter.added = self.added.to_string();
        letter.hold = self.hold.as_deref().map(str::to_owned);
        letter.allowed = self.allowed.as_deref().cloned();
        Arc::new(letter)
    }
}
