//! The 64 run queues with their bit vector (section 5): `add`, `del` and `choose`.
//!
//! One list a queue cannot be FIFO, free of head-of-line blocking and O(1) at once. So a run queue holds a
//! FIFO for each (needs class, submitter), its *lane*; the lanes of a class stand in a ring in order of
//! their turns; and `choose` looks only at the front of each ring whose class somebody can serve.
//!
//! Invariants: a bit is set exactly if its queue has samples; a lane exists exactly if it has samples; a ring
//! is in order of turns. Cost: `add` and `del` O(lanes of that submitter in the queue), `choose`
//! O(queues + classes), none of them dependent on how many samples wait, none allocating once the tables
//! have grown. Who can serve what is the caller's knowledge.

use super::class_set::ClassSet;
use super::lane::{Lanes, Turn};
use super::list::List;
use super::needs_class::ClassId;
use super::priority::QUEUES;
use super::sample::{Place, Sample};
use super::slab::{Key, NONE, Slab};
use crate::time::Instant;
use alloc::vec::Vec;
use core::time::Duration;

/// The run queues of a lab.
#[derive(Clone, Debug)]
pub struct RunQueues {
    bits: u64,
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
    /// Classes that have samples here.
    classes: ClassSet,
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
    /// Classes that some machine has time for while it has nothing else.
    pub idle: ClassSet,
    /// The first run queue of the idle class.
    pub idle_from: u8,
    /// If set, each queue number above another counts as this much waiting less (row 13 of the notes: a flood
    /// of real-time samples must not starve everybody).
    pub ageing: Option<Duration>,
}

impl Servable {
    fn in_queue(&self, queue: u8) -> &ClassSet {
        if queue >= self.idle_from { &self.idle } else { &self.ordinary }
    }
}

impl Default for RunQueues {
    fn default() -> Self {
        let queues = (0..QUEUES).map(|_| RunQueue::default()).collect();
        RunQueues { bits: 0, queues, lanes: Lanes::default(), turn: 0, ticket: 0, len: 0 }
    }
}

impl RunQueues {
    /// Puts a sample at the tail of its run queue (`runq_add`). False if it is in a list already, or unknown.
    pub fn add(&mut self, samples: &mut Slab<Sample>, key: Key, now: Instant) -> bool {
        let Some(sample) = samples.get_mut(key).filter(|sample| sample.place == Place::Nowhere) else { return false };
        self.ticket += 1;
        let (queue, class) = (sample.directory.queue(), sample.class);
        let (lane, is_new) = self.lanes.find_or_make(queue, class, sample.submitter);
        sample.place = Place::Queued { lane };
        (sample.queued_at, sample.ticket) = (now, self.ticket);
        self.lanes.lanes[lane].fifo.push_back(samples, key.index);
        if is_new {
            self.enter_ring(lane);
        }
        self.queues[usize::from(queue)].len += 1;
        self.bits |= 1 << queue;
        self.len += 1;
        true
    }

    /// Removes a sample from wherever in its run queue it is (`runq_del`). False if it is not in one.
    pub fn del(&mut self, samples: &mut Slab<Sample>, key: Key) -> bool {
        let Some(sample) = samples.get_mut(key) else { return false };
        let Place::Queued { lane } = sample.place else { return false };
        sample.place = Place::Nowhere;
        self.lanes.lanes[lane].fifo.remove(samples, key.index);
        let queue = self.lanes.lanes[lane].queue;
        if self.lanes.lanes[lane].fifo.is_empty() {
            self.leave_ring(lane);
            self.lanes.drop_lane(lane);
        }
        self.queues[usize::from(queue)].len -= 1;
        if self.queues[usize::from(queue)].len == 0 {
            self.bits &= !(1 << queue);
        }
        self.len -= 1;
        true
    }

    /// Takes the next sample that can be served (`runq_choose`): the first of the lane whose turn it is, in the
    /// lowest run queue that has one; or with ageing in the queue that has waited longest for its number.
    pub fn choose(&mut self, samples: &mut Slab<Sample>, servable: &Servable) -> Option<Key> {
        let lane = match servable.ageing {
            None => self.nonempty().find_map(|queue| self.front(queue, servable.in_queue(queue)))?,
            Some(step) => self.longest_waiting(samples, servable, step)?,
        };
        let key = samples.key(self.lanes.lanes[lane].fifo.head()?);
        self.move_submitter_back(lane);
        self.del(samples, key);
        Some(key)
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
        self.lanes_of(queue).filter_map(|lane| self.lanes.lanes[lane].fifo.head()).map(|i| samples[i].queued_at).min()
    }

    /// All samples of a class, in no order.
    pub(super) fn of_class<'a>(&'a self, samples: &'a Slab<Sample>, class: ClassId) -> impl Iterator<Item = u32> + 'a {
        let rings = self.queues.iter().filter_map(move |queue| queue.rings.get(class.index()));
        let lanes = rings.flat_map(|ring| ring.lanes.iter(&self.lanes.lanes));
        lanes.flat_map(|lane| self.lanes.lanes[lane].fifo.iter(samples))
    }

    /// How many samples stand before this one in its lane, counting no further than `max`.
    pub(super) fn ahead_in_lane(&self, samples: &Slab<Sample>, index: u32, max: usize) -> usize {
        let Place::Queued { lane } = samples[index].place else { return 0 };
        let head = self.lanes.lanes[lane].fifo.head();
        let back = core::iter::successors(Some(index), |i| (Some(*i) != head).then(|| samples[*i].links.prev));
        back.take(max + 1).count() - 1
    }

    /// Whether everything is as the invariants say; the first thing that is not.
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
                let placed = |i| samples[i].place == Place::Queued { lane } && self.belongs(&samples[i], lane);
                ensure(fifo.iter(samples).all(placed), "a sample is in a lane that is not its own")?;
                len += fifo.len();
            }
            ensure(self.rings_are_in_order(queue), "a ring is not in order of turns")?;
            ensure(len == self.queue_len(queue), "a run queue's length is wrong")?;
            ensure((len > 0) == (self.bits >> queue & 1 == 1), "the bit vector is not emptiness")?;
            total += len;
        }
        let (members, table) = self.lanes.members_len();
        ensure(members == table && (members == 0) == self.lanes.lanes.is_empty(), "submitters are left over")?;
        ensure(total == self.len, "the length of all run queues is wrong")
    }

    fn nonempty(&self) -> impl Iterator<Item = u8> + use<> {
        let mut bits = self.bits;
        core::iter::from_fn(move || {
            let queue = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(queue as u8)
        })
    }

    /// The lane in `queue` whose turn it is among those of `classes`.
    fn front(&self, queue: u8, classes: &ClassSet) -> Option<u32> {
        let queue = &self.queues[usize::from(queue)];
        let mut best = (Turn::NEVER, None);
        queue.classes.for_each_in_both(classes, |class| {
            let ring = &queue.rings[class.index()];
            if ring.front < best.0 {
                best = (ring.front, ring.lanes.head());
            }
        });
        best.1
    }

    fn longest_waiting(&self, samples: &Slab<Sample>, servable: &Servable, step: Duration) -> Option<u32> {
        let fronts = self.nonempty().filter_map(|q| Some((q, self.front(q, servable.in_queue(q))?)));
        let (_, lane) = fronts.min_by_key(|(queue, lane)| {
            let since = self.lanes.lanes[*lane].fifo.head().map_or(Instant::NEVER, |i| samples[i].queued_at);
            (since + step.saturating_mul(u32::from(*queue)), *queue)
        })?;
        Some(lane)
    }

    /// All lanes of a submitter in a run queue go behind the others', the one that was served behind its own.
    fn move_submitter_back(&mut self, served: u32) {
        self.turn += 1;
        self.lanes.lanes[served].turn.lane = self.turn;
        let mut lane = self.lanes.first_sibling(served);
        while lane != NONE {
            self.move_back(lane);
            lane = self.lanes.lanes[lane].sibling;
        }
    }

    /// Puts a lane at the end of its class's ring, with the latest turn.
    fn move_back(&mut self, lane: u32) {
        let entry = &mut self.lanes.lanes[lane];
        entry.turn.submitter = self.turn;
        let ring = &mut self.queues[usize::from(entry.queue)].rings[entry.class.index()];
        if ring.lanes.len() > 1 {
            ring.lanes.remove(&mut self.lanes.lanes, lane);
            ring.lanes.push_back(&mut self.lanes.lanes, lane);
        }
        ring.front = self.lanes.front_turn(&ring.lanes);
    }

    fn enter_ring(&mut self, lane: u32) {
        self.turn += 1;
        let entry = &mut self.lanes.lanes[lane];
        entry.turn = Turn { submitter: self.turn, lane: self.turn };
        let (queue, class) = (&mut self.queues[usize::from(entry.queue)], entry.class);
        if queue.rings.len() <= class.index() {
            queue.rings.resize(class.index() + 1, Ring { lanes: List::EMPTY, front: Turn::default() });
        }
        let ring = &mut queue.rings[class.index()];
        if ring.lanes.is_empty() {
            ring.front = entry.turn;
            queue.classes.set(class, true);
        }
        ring.lanes.push_back(&mut self.lanes.lanes, lane);
    }

    fn leave_ring(&mut self, lane: u32) {
        let entry = &self.lanes.lanes[lane];
        let (queue, class) = (&mut self.queues[usize::from(entry.queue)], entry.class);
        let ring = &mut queue.rings[class.index()];
        ring.lanes.remove(&mut self.lanes.lanes, lane);
        if ring.lanes.is_empty() {
            queue.classes.set(class, false);
        } else {
            ring.front = self.lanes.front_turn(&ring.lanes);
        }
    }

    fn lanes_of(&self, queue: u8) -> impl Iterator<Item = u32> + '_ {
        let rings = self.queues.get(usize::from(queue)).into_iter().flat_map(|queue| &queue.rings);
        rings.flat_map(|ring| ring.lanes.iter(&self.lanes.lanes))
    }

    fn belongs(&self, sample: &Sample, lane: u32) -> bool {
        let entry = &self.lanes.lanes[lane];
        (sample.directory.queue(), sample.class, sample.submitter)
            == (entry.queue, entry.class, self.lanes.submitter(lane))
    }

    fn rings_are_in_order(&self, queue: u8) -> bool {
        let queue = &self.queues[usize::from(queue)];
        queue.rings.iter().enumerate().all(|(class, ring)| {
            let turns = || ring.lanes.iter(&self.lanes.lanes).map(|lane| self.lanes.lanes[lane].turn);
            queue.classes.contains(ClassId(class as u32)) != ring.lanes.is_empty()
                && turns().is_sorted()
                && turns().next().is_none_or(|turn| turn == ring.front)
        })
    }
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
