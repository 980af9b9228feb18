//! The 64 run queues with their bit vector (section 5): `add`, `del` and `choose`.
//!
//! A single list per queue cannot be FIFO, free of head-of-line blocking and O(1) all at once. So a run queue holds a FIFO for each (needs
//! class, submitter), its *lane*; the lanes of a class stand in a ring in order of their turns; and `choose` looks only at the front of
//! each ring whose class somebody can serve. Beside the paper's bit vector of nonempty queues there is one for each class, so that queues
//! that hold nothing servable are not even looked at.
//!
//! Invariants: a bit is set exactly if its queue has samples (of that class); a lane is in
//! its class's ring exactly if it has samples; a ring is in order of turns. Cost: `add` and `del` O(1), `choose`
//! O(classes), with ageing O(queues · classes); none depends on how many samples wait, none allocates once the
//! tables have grown. The caller knows who can serve what.

use super::class_set::ClassSet;
use super::lane::{Lanes, Turn};
use super::list::List;
use super::needs_class::ClassId;
use super::priority::QUEUES;
use super::sample::{Sample, SampleState};
use super::slab::{NONE, Slab, SlabKey};
use crate::time::Instant;
use alloc::vec::Vec;
use core::hint::select_unpredictable;
use core::time::Duration;

/// The run queues of a lab.
#[derive(Clone, Debug)]
pub struct RunQueues {
    bits: u64,
    /// By class: the bit vector of queues that have samples of it.
    class_bits: Vec<u64>,
    queues: Vec<RunQueue>,
    lanes: Lanes,
    /// The last turn given out.
    turn: u64,
    /// The last ticket given out.
    ticket: u64,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct RunQueue {
    len: usize,
    /// By class: its lanes in order of turns.
    rings: Vec<Ring>,
}

#[derive(Clone, Debug)]
struct Ring {
    lanes: List,
    /// The turn of its first lane.
    front: Turn,
}

/// What can be served at this moment.
#[derive(Clone, Debug, Default)]
pub struct Servable {
    /// Classes that some machine has room for.
    pub ordinary: ClassSet,
    /// Classes for which some machine has time, because it has nothing else to do.
    pub idle: ClassSet,
    /// The first run queue of the idle class.
    pub idle_from: u8,
    /// If set, this much waiting time is subtracted for each queue number that a sample is behind another, so that a flood of
    /// real-time samples does not starve everybody else.
    pub ageing: Option<Duration>,
}

impl Servable {
    /// The urgency of a sample that has been in `queue` since then; the lowest goes first.
    pub(super) fn urgency(&self, queue: u8, since: Instant) -> Instant {
        match self.ageing {
            None => Instant(u64::from(queue)),
            Some(step) => since + step.saturating_mul(u32::from(queue)),
        }
    }

    fn in_queue(&self, queue: u8) -> &ClassSet {
        if queue >= self.idle_from { &self.idle } else { &self.ordinary }
    }

    /// The bits of the idle class's queues.
    fn idle_bits(&self) -> u64 {
        u64::MAX.checked_shl(u32::from(self.idle_from)).unwrap_or(0)
    }
}

impl Default for RunQueues {
    fn default() -> Self {
        let queues = (0..QUEUES).map(|_| RunQueue::default()).collect();
        RunQueues { bits: 0, class_bits: Vec::new(), queues, lanes: Lanes::default(), turn: 0, ticket: 0, len: 0 }
    }
}

impl RunQueues {
    /// Puts a sample at the tail of its run queue (`runq_add`). False if it is in a list already, or unknown.
    pub fn add(&mut self, samples: &mut Slab<Sample>, key: SlabKey, now: Instant) -> bool {
        let Some(sample) = samples.get_mut(key).filter(|sample| sample.place == SampleState::Nowhere) else {
            return false;
        };
        self.ticket += 1;
        let (queue, class) = (sample.directory.queue(), sample.class);
        let lane = self.lanes.find_or_make(queue, class, sample.submitter);
        sample.place = SampleState::Queued { lane };
        (sample.queued_at, sample.ticket) = (now, self.ticket);
        let entry = &mut self.lanes.lanes[lane];
        entry.fifo.push_back(samples, key.index);
        if entry.fifo.len() == 1 {
            self.lanes.unpark(lane);
            self.enter_ring(lane);
        }
        self.queues[usize::from(queue)].len += 1;
        self.bits |= 1 << queue;
        self.len += 1;
        true
    }

    /// Removes a sample from wherever in its run queue it is (`runq_del`). False if it is not in one.
    pub fn del(&mut self, samples: &mut Slab<Sample>, key: SlabKey) -> bool {
        let Some(sample) = samples.get_mut(key) else { return false };
        let SampleState::Queued { lane } = sample.place else { return false };
        sample.place = SampleState::Nowhere;
        self.lanes.lanes[lane].fifo.remove(samples, key.index);
        self.count_removal(samples, lane);
        true
    }

    /// Takes the next sample that can be served (`runq_choose`): the first of the lane whose turn it is, in the
    /// lowest run queue that has one; with ageing, in the queue whose first sample has waited longest in relation to its number.
    pub fn choose(&mut self, samples: &mut Slab<Sample>, servable: &Servable) -> Option<SlabKey> {
        let bits = self.servable_bits(servable);
        let lane = match servable.ageing {
            None if bits == 0 => None,
            None => self.front(bits.trailing_zeros() as u8, servable),
            Some(_) => self.most_urgent(samples, bits, servable),
        }?;
        self.turn += 1;
        let entry = &mut self.lanes.lanes[lane];
        entry.turn.lane = self.turn;
        let first = entry.fifo.pop_front(samples)?;
        samples[first].place = SampleState::Nowhere;
        self.count_removal(samples, lane);
        self.move_submitter_back(lane);
        Some(samples.key(first))
    }

    /// The bit vector: bit i is set if run queue i has samples.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// How many samples wait in all run queues.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many samples wait in run queue `queue`.
    pub fn queue_len(&self, queue: u8) -> usize {
        self.queues.get(usize::from(queue)).map_or(0, |queue| queue.len)
    }

    /// Since when the oldest sample of run queue `queue` has been in it. Costs O(lanes).
    pub fn oldest(&self, samples: &Slab<Sample>, queue: u8) -> Option<Instant> {
        let firsts = self.lanes_of(queue).filter_map(|lane| self.lanes.lanes[lane].fifo.head());
        firsts.map(|index| samples[index].queued_at).min()
    }

    /// All samples of a class, in no order.
    pub(super) fn of_class<'a>(&'a self, samples: &'a Slab<Sample>, class: ClassId) -> impl Iterator<Item = u32> + 'a {
        let rings = self.queues.iter().filter_map(move |queue| queue.rings.get(class.index()));
        let lanes = rings.flat_map(|ring| ring.lanes.iter(&self.lanes.lanes));
        lanes.flat_map(|lane| self.lanes.lanes[lane].fifo.iter(samples))
    }

    /// How many samples stand before this one in its lane, counting no further than `max`.
    pub(super) fn ahead_in_lane(&self, samples: &Slab<Sample>, index: u32, max: usize) -> usize {
        let SampleState::Queued { lane } = samples[index].place else { return 0 };
        let head = self.lanes.lanes[lane].fifo.head();
        let back = core::iter::successors(Some(index), |i| (Some(*i) != head).then(|| samples[*i].links.prev));
        back.take(max + 1).count() - 1
    }

    /// Checks all invariants; returns the first that does not hold.
    pub(super) fn audit(&self, samples: &Slab<Sample>) -> Result<(), &'static str> {
        let mut total = 0;
        for queue in 0..QUEUES as u8 {
            let mut len = 0;
            for lane in self.lanes_of(queue) {
                let fifo = self.lanes.lanes[lane].fifo;
                ensure(!fifo.is_empty(), "a lane without samples")?;
                ensure(fifo.iter(samples).count() == fifo.len(), "a lane's length is wrong")?;
                let tickets = fifo.iter(samples).map(|i| samples[i].ticket);
                ensure(tickets.is_sorted(), "a lane is not first in, first out")?;
                let placed = |i| samples[i].place == SampleState::Queued { lane } && self.belongs(&samples[i], lane);
                ensure(fifo.iter(samples).all(placed), "a sample is in a lane that is not its own")?;
                len += fifo.len();
            }
            ensure(self.rings_are_in_order(queue), "a ring is not in order of turns")?;
            ensure(len == self.queue_len(queue), "a run queue's length is wrong")?;
            ensure((len > 0) == (self.bits >> queue & 1 == 1), "the bit vector is not emptiness")?;
            total += len;
        }
        ensure(self.lanes.audit(samples.len()), "lanes or submitters are left over")?;
        ensure(total == self.len, "the length of all run queues is wrong")
    }

    /// A sample has gone from a lane.
    #[inline]
    fn count_removal(&mut self, samples: &Slab<Sample>, lane: u32) {
        let entry = &self.lanes.lanes[lane];
        let queue = entry.queue;
        match entry.fifo.head() {
            Some(first) => samples.prefetch(first),
            None => {
                self.leave_ring(lane);
                self.lanes.park(lane);
            }
        }
        let left = &mut self.queues[usize::from(queue)].len;
        *left -= 1;
        // Without a branch, because a processor cannot predict whether a queue becomes empty.
        self.bits = self.bits & !(1 << queue) | u64::from(*left > 0) << queue;
        self.len -= 1;
    }

    /// The queues that have samples which somebody can serve.
    fn servable_bits(&self, servable: &Servable) -> u64 {
        let any = |classes: &ClassSet| {
            let mut bits = 0;
            classes.for_each(|class| bits |= self.class_bits.get(class.index()).copied().unwrap_or(0));
            bits
        };
        let idle = servable.idle_bits();
        (any(&servable.ordinary) & !idle) | (if self.bits & idle == 0 { 0 } else { any(&servable.idle) & idle })
    }

    /// The lane in `queue` whose turn it is among those that somebody can serve.
    fn front(&self, queue: u8, servable: &Servable) -> Option<u32> {
        let rings = &self.queues[usize::from(queue)].rings;
        let (mut turn, mut ring) = (Turn::NEVER.number(), None);
        servable.in_queue(queue).for_each(|class| {
            if let Some(other) = rings.get(class.index()) {
                // Without a branch, because a processor cannot predict whose turn it is.
                let sooner = other.front.number() < turn;
                turn = select_unpredictable(sooner, other.front.number(), turn);
                ring = select_unpredictable(sooner, Some(other), ring);
            }
        });
        ring?.lanes.head()
    }

    fn most_urgent(&self, samples: &Slab<Sample>, mut bits: u64, servable: &Servable) -> Option<u32> {
        let mut best = (Instant::NEVER, None);
        while bits != 0 {
            let queue = bits.trailing_zeros() as u8;
            bits &= bits - 1;
            let Some(lane) = self.front(queue, servable) else { continue };
            let Some(first) = self.lanes.lanes[lane].fifo.head() else { continue };
            let urgency = servable.urgency(queue, samples[first].queued_at);
            if urgency < best.0 || best.1.is_none() {
                best = (urgency, Some(lane));
            }
        }
        best.1
    }

    /// All lanes of a submitter in a run queue go behind those of others, and the one that was served goes behind the others of its submitter.
    fn move_submitter_back(&mut self, served: u32) {
        let (mut active, mut lane) = self.lanes.siblings(served);
        while active > 0 && lane != NONE {
            if !self.lanes.lanes[lane].fifo.is_empty() {
                self.move_back(lane);
                active -= 1;
            }
            lane = self.lanes.lanes[lane].sibling;
        }
    }

    /// Puts a lane at the end of its class's ring, with the latest turn.
    fn move_back(&mut self, lane: u32) {
        let entry = &mut self.lanes.lanes[lane];
        entry.turn.submitter = self.turn;
        let ring = &mut self.queues[usize::from(entry.queue)].rings[entry.class.index()];
        ring.lanes.move_back(&mut self.lanes.lanes, lane);
        ring.front = self.lanes.front_turn(&ring.lanes);
    }

    fn enter_ring(&mut self, lane: u32) {
        self.turn += 1;
        let entry = &mut self.lanes.lanes[lane];
        entry.turn = Turn { submitter: self.turn, lane: self.turn };
        let (queue, class) = (&mut self.queues[usize::from(entry.queue)], entry.class);
        if queue.rings.len() <= class.index() {
            queue.rings.resize(class.index() + 1, Ring { lanes: List::EMPTY, front: Turn::NEVER });
        }
        if self.class_bits.len() <= class.index() {
            self.class_bits.resize(class.index() + 1, 0);
        }
        let ring = &mut queue.rings[class.index()];
        if ring.lanes.is_empty() {
            ring.front = entry.turn;
            self.class_bits[class.index()] |= 1 << entry.queue;
        }
        ring.lanes.push_back(&mut self.lanes.lanes, lane);
    }

    fn leave_ring(&mut self, lane: u32) {
        let entry = &self.lanes.lanes[lane];
        let (queue, class) = (entry.queue, entry.class);
        let ring = &mut self.queues[usize::from(queue)].rings[class.index()];
        ring.lanes.remove(&mut self.lanes.lanes, lane);
        ring.front = self.lanes.front_turn(&ring.lanes);
        if ring.lanes.is_empty() {
            self.class_bits[class.index()] &= !(1 << queue);
        }
    }

    fn lanes_of(&self, queue: u8) -> impl Iterator<Item = u32> + '_ {
        let rings = self.queues.get(usize::from(queue)).into_iter().flat_map(|queue| &queue.rings);
        rings.flat_map(|ring| ring.lanes.iter(&self.lanes.lanes))
    }

    fn belongs(&self, sample: &Sample, lane: u32) -> bool {
        let entry = &self.lanes.lanes[lane];
        (sample.directory.queue(), sample.class, sample.submitter) == (entry.queue, entry.class, entry.submitter)
    }

    fn rings_are_in_order(&self, queue: u8) -> bool {
        let rings = &self.queues[usize::from(queue)].rings;
        rings.iter().zip(&self.class_bits).all(|(ring, bits)| {
            let turns = || ring.lanes.iter(&self.lanes.lanes).map(|lane| self.lanes.lanes[lane].turn);
            (bits >> queue & 1 == 0) == ring.lanes.is_empty()
                && turns().is_sorted()
                && turns().next().unwrap_or(Turn::NEVER) == ring.front
        })
    }
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
