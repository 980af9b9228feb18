//! The lanes of the run queues: one FIFO for each (run queue, needs class, submitter) that has samples.
//!
//! A lane knows its turn. All lanes of a submitter in a run queue move behind the others' when one of them
//! was served, so a submitter gains nothing by spreading over classes. Lanes come and go with their
//! samples; both tables keep their memory.

use super::list::{Linked, Links, List};
use super::needs_class::ClassId;
use super::sample::SubmitterId;
use super::slab::{NONE, Slab};
use crate::time::Instant;
use hashbrown::HashTable;

#[derive(Clone, Debug)]
pub(super) struct Lane {
    links: Links,
    /// Its samples.
    pub(super) fifo: List,
    /// Since when the first of them has been in the run queue. Looking it up when the one before leaves also
    /// fetches that sample into the cache well before its turn: with a million of them it would not be there.
    pub(super) since: Instant,
    pub(super) queue: u8,
    pub(super) class: ClassId,
    /// The lane with the lowest turn goes first.
    pub(super) turn: Turn,
    pub(super) member: u32,
    /// The next lane of the same submitter in the same run queue.
    pub(super) sibling: u32,
}

/// When a lane was served, in order of serving; coming into being counts as that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Turn {
    /// When its submitter was last served from this run queue, or the lane came into being after that.
    pub(super) submitter: u64,
    /// When the lane itself was: a submitter's own lanes take turns too.
    pub(super) lane: u64,
}

impl Turn {
    pub(super) const NEVER: Turn = Turn { submitter: u64::MAX, lane: u64::MAX };
}

impl Linked for Lane {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A submitter that has samples in a run queue.
#[derive(Clone, Debug)]
struct Member {
    queue: u8,
    submitter: SubmitterId,
    first: u32,
}

/// All lanes, found by run queue, submitter and class.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    pub(super) lanes: Slab<Lane>,
    members: Slab<Member>,
    table: HashTable<u32>,
}

impl Lanes {
    /// The lane, and whether it is new (and so in no ring yet).
    pub(super) fn find_or_make(&mut self, queue: u8, class: ClassId, submitter: SubmitterId) -> (u32, bool) {
        let member = self.find_or_make_member(queue, submitter);
        let mut lane = self.members[member].first;
        while lane != NONE {
            if self.lanes[lane].class == class {
                return (lane, false);
            }
            lane = self.lanes[lane].sibling;
        }
        let sibling = self.members[member].first;
        let made = Lane {
            links: Links::LOOSE,
            fifo: List::EMPTY,
            since: Instant::NEVER,
            queue,
            class,
            turn: Turn::default(),
            member,
            sibling,
        };
        let lane = self.lanes.insert(made).expect("there are fewer lanes than samples").index;
        self.members[member].first = lane;
        (lane, true)
    }

    /// Forgets a lane that has no samples and is in no ring.
    pub(super) fn drop_lane(&mut self, lane: u32) {
        let Lane { member, sibling, .. } = self.lanes[lane];
        let first = self.members[member].first;
        if first == lane {
            self.members[member].first = sibling;
        } else {
            let mut before = first;
            while self.lanes[before].sibling != lane {
                before = self.lanes[before].sibling;
            }
            self.lanes[before].sibling = sibling;
        }
        self.lanes.remove(self.lanes.key(lane));
        if self.members[member].first == NONE {
            self.drop_member(member);
        }
    }

    /// The first of the lanes that `lane`'s submitter has in its run queue.
    pub(super) fn first_sibling(&self, lane: u32) -> u32 {
        self.members[self.lanes[lane].member].first
    }

    /// The turn of the first lane of a ring; never, if it has none.
    pub(super) fn front_turn(&self, ring: &List) -> Turn {
        ring.head().map_or(Turn::NEVER, |lane| self.lanes[lane].turn)
    }

    pub(super) fn submitter(&self, lane: u32) -> SubmitterId {
        self.members[self.lanes[lane].member].submitter
    }

    pub(super) fn members_len(&self) -> (usize, usize) {
        (self.members.len(), self.table.len())
    }

    fn find_or_make_member(&mut self, queue: u8, submitter: SubmitterId) -> u32 {
        let members = &self.members;
        let wanted = |member: &u32| members[*member].submitter == submitter && members[*member].queue == queue;
        if let Some(member) = self.table.find(hash(queue, submitter), wanted) {
            return *member;
        }
        let made = Member { queue, submitter, first: NONE };
        let member = self.members.insert(made).expect("there are fewer submitters than samples").index;
        let members = &self.members;
        self.table.insert_unique(hash(queue, submitter), member, |m| hash(members[*m].queue, members[*m].submitter));
        member
    }

    fn drop_member(&mut self, member: u32) {
        let Member { queue, submitter, .. } = self.members[member];
        if let Ok(entry) = self.table.find_entry(hash(queue, submitter), |m| *m == member) {
            entry.remove();
        }
        self.members.remove(self.members.key(member));
    }
}

/// Spreads an id that is already a keyed hash, and the queue, over all bits.
fn hash(queue: u8, submitter: SubmitterId) -> u64 {
    let mixed = (submitter.0 ^ u64::from(queue)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
