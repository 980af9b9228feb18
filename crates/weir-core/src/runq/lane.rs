//! The lanes of the run queues: one FIFO for each (run queue, needs class, submitter).
//!
//! Each lane remembers when its next turn is. When one lane of a submitter is served, all its lanes in that run queue move behind those of
//! the others, so a submitter gains nothing by spreading over classes. A lane that has become empty is kept, because the same submitter is
//! likely to come again. Beyond a few thousand lanes those unused for longest are removed, one or two at a time, so memory follows what is
//! queued.

use super::list::{Linked, Links, List};
use super::needs_class::ClassId;
use super::pool::Pool;
use super::sample::SubmitterId;
use super::slab::NONE;
use hashbrown::HashTable;

/// Empty lanes are kept while there are no more lanes than this.
const LANES_KEPT: usize = 4096;

/// It has a cache line of its own.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Lane {
    links: Links,
    /// Its samples.
    pub(super) fifo: List,
    /// The lane with the lowest turn goes first.
    pub(super) turn: Turn,
    pub(super) submitter: SubmitterId,
    pub(super) class: ClassId,
    member: u32,
    /// The next lane of the same submitter in the same run queue.
    pub(super) sibling: u32,
    pub(super) queue: u8,
    /// Whether it was used since the sweep last examined it.
    used: bool,
    /// Whether its slot is in use at all.
    live: bool,
}

/// When a lane was served, in order of serving; getting a first sample counts as that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Turn {
    /// When its submitter was last served from this run queue, or when the lane got its first sample after that.
    pub(super) submitter: u64,
    /// When the lane itself was served: the lanes of one submitter take turns too.
    pub(super) lane: u64,
}

impl Turn {
    pub(super) const NEVER: Turn = Turn { submitter: u64::MAX, lane: u64::MAX };

    /// The same order in one number.
    #[inline]
    pub(super) fn number(self) -> u128 {
        u128::from(self.submitter) << 64 | u128::from(self.lane)
    }
}

impl Linked for Lane {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A submitter that has lanes in a run queue.
#[derive(Clone, Debug)]
struct LaneMember {
    submitter: SubmitterId,
    first: u32,
    /// How many of its lanes have samples.
    active: u32,
    queue: u8,
}

/// All lanes, found by run queue, submitter and class.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    pub(super) lanes: Pool<Lane>,
    by_class: HashTable<u32>,
    members: Pool<LaneMember>,
    by_submitter: HashTable<u32>,
    /// The slot that the sweep examines next.
    hand: u32,
}

impl Lanes {
    /// The lane; it may be empty (and then it is in no ring).
    pub(super) fn find_or_make(&mut self, queue: u8, class: ClassId, submitter: SubmitterId) -> u32 {
        let lanes = &self.lanes;
        let wanted = |lane: &u32| {
            let lane = &lanes[*lane];
            lane.submitter == submitter && lane.class == class && lane.queue == queue
        };
        match self.by_class.find(hash(queue, class, submitter), wanted) {
            Some(lane) => *lane,
            None => self.make(queue, class, submitter),
        }
    }

    /// A lane has become empty and left its ring.
    pub(super) fn park(&mut self, lane: u32) {
        let Lane { used, member, .. } = &mut self.lanes[lane];
        *used = true;
        self.members[*member].active -= 1;
        if self.lanes.len() > LANES_KEPT {
            self.sweep();
            self.sweep();
        }
    }

    /// A lane has got its first sample.
    pub(super) fn unpark(&mut self, lane: u32) {
        let member = self.lanes[lane].member;
        self.members[member].active += 1;
    }

    /// How many lanes with samples `lane`'s submitter has in its run queue, and the first of all its lanes there.
    pub(super) fn siblings(&self, lane: u32) -> (u32, u32) {
        let LaneMember { active, first, .. } = self.members[self.lanes[lane].member];
        (active, first)
    }

    /// The turn of the first lane of a ring; if it has none, one that never comes.
    pub(super) fn front_turn(&self, ring: &List) -> Turn {
        ring.head().map_or(Turn::NEVER, |lane| self.lanes[lane].turn)
    }

    /// Whether every submitter is found, and the number of lanes without samples is bounded.
    pub(super) fn audit(&self, samples: usize) -> bool {
        self.members.len() == self.by_submitter.len()
            && self.lanes.len() == self.by_class.len()
            && self.lanes.len() <= 2 * (LANES_KEPT + samples) + 2
    }

    /// Examines one lane: if it is empty and was not used since the last time, it is removed.
    fn sweep(&mut self) {
        self.hand = if self.hand + 1 < self.lanes.slots() { self.hand + 1 } else { 0 };
        let lane = &mut self.lanes[self.hand];
        if !lane.live || !lane.fifo.is_empty() {
            return;
        }
        if core::mem::replace(&mut lane.used, false) {
            return;
        }
        self.drop_lane(self.hand);
    }

    fn make(&mut self, queue: u8, class: ClassId, submitter: SubmitterId) -> u32 {
        let member = self.find_or_make_member(queue, submitter);
        let lane = self.lanes.insert(Lane {
            links: Links::LOOSE,
            fifo: List::EMPTY,
            turn: Turn::NEVER,
            submitter,
            class,
            member,
            sibling: self.members[member].first,
            queue,
            used: true,
            live: true,
        });
        self.members[member].first = lane;
        let lanes = &self.lanes;
        self.by_class.insert_unique(hash(queue, class, submitter), lane, |lane| lanes[*lane].hash());
        lane
    }

    fn drop_lane(&mut self, lane: u32) {
        let Lane { member, sibling, .. } = self.lanes[lane];
        let mut before = self.members[member].first;
        if before == lane {
            self.members[member].first = sibling;
        } else {
            while self.lanes[before].sibling != lane {
                before = self.lanes[before].sibling;
            }
            self.lanes[before].sibling = sibling;
        }
        if let Ok(entry) = self.by_class.find_entry(self.lanes[lane].hash(), |other| *other == lane) {
            entry.remove();
        }
        self.lanes[lane].live = false;
        self.lanes.remove(lane);
        if self.members[member].first == NONE {
            self.drop_member(member);
        }
    }

    fn find_or_make_member(&mut self, queue: u8, submitter: SubmitterId) -> u32 {
        let members = &self.members;
        let wanted = |member: &u32| members[*member].submitter == submitter && members[*member].queue == queue;
        if let Some(member) = self.by_submitter.find(LaneMember::hash_of(queue, submitter), wanted) {
            return *member;
        }
        let member = self.members.insert(LaneMember { queue, submitter, first: NONE, active: 0 });
        let members = &self.members;
        let hash = LaneMember::hash_of(queue, submitter);
        self.by_submitter.insert_unique(hash, member, |member| members[*member].hash());
        member
    }

    fn drop_member(&mut self, member: u32) {
        if let Ok(entry) = self.by_submitter.find_entry(self.members[member].hash(), |other| *other == member) {
            entry.remove();
        }
        self.members.remove(member);
    }
}

impl Lane {
    fn hash(&self) -> u64 {
        hash(self.queue, self.class, self.submitter)
    }
}

impl LaneMember {
    fn hash(&self) -> u64 {
        LaneMember::hash_of(self.queue, self.submitter)
    }

    fn hash_of(queue: u8, submitter: SubmitterId) -> u64 {
        hash(queue, ClassId::NOTHING, submitter)
    }
}

/// Spreads over all bits an id that is already a keyed hash, and numbers that are known to be small.
fn hash(queue: u8, class: ClassId, submitter: SubmitterId) -> u64 {
    let small = (u64::from(class.0) << 8 | u64::from(queue)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (submitter.0 ^ small).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lanes_are_found_again_but_do_not_pile_up() {
        let mut lanes = Lanes::default();
        let class = ClassId::numbered(1);
        let first = lanes.find_or_make(40, class, SubmitterId(0));
        lanes.unpark(first);
        lanes.park(first);
        assert_eq!(lanes.find_or_make(40, class, SubmitterId(0)), first);
        for n in 0..100_000 {
            let lane = lanes.find_or_make(40, class, SubmitterId(n));
            lanes.unpark(lane);
            lanes.park(lane);
        }
        assert!(lanes.lanes.len() <= 2 * LANES_KEPT && lanes.audit(0), "{}", lanes.lanes.len());
    }
}
