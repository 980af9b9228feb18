//! Slots of requests that another proxy carries, by the name that the proxy gave each.
//!
//! A slot ends when the proxy's log names its request, or when its time is over. Log lines and questions come on different paths, so a line
//! may arrive before the question that it ends. So names that have ended are remembered for a while, and a waiting request that has ended
//! gets no slot. A name holds one slot at most, however often it is asked for, and ends once. Memory: the slots, those who wait, and
//! [`ENDED_MOST`] hashes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::log_line::RequestEnd;
use super::question::RequestId;
use crate::admission::Permit;

/// Ends that are remembered although nobody had asked yet.
const ENDED_MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    inner: Mutex<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    requests: HashMap<RequestId, Held>,
    /// Hashes of names that ended before they were asked for, the oldest first.
    ended: VecDeque<u64>,
    is_ended: HashSet<u64>,
}

#[derive(Debug)]
enum Held {
    /// It waits for a slot.
    Waiting,
    /// It has one until then, at the latest.
    Slot(Permit, Instant),
    /// The proxy has said that it is over, and its slot is kept until then.
    Left(#[expect(dead_code, reason = "it is held")] Permit, Instant),
}

/// What becomes of a question.
#[derive(Debug)]
pub(super) enum QuestionStatus {
    /// It may wait for a slot.
    New(WaitingPlace),
    /// The same request has a slot already: proxies may ask again after an internal redirect.
    Again,
    /// The same request waits already, or it is over.
    Stale,
}

/// A request that waits for its slot, until it has one or this is dropped.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    slots: Arc<HeldSlots>,
    id: Option<RequestId>,
}

/// What a line of the log did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotEffect {
    /// A slot is free, or will be in a moment.
    Slot,
    /// It had none (yet).
    NoSlot,
}

impl HeldSlots {
    pub(super) fn begin(self: &Arc<HeldSlots>, id: RequestId) -> QuestionStatus {
        let hash = self.hasher.hash_one(&id);
        let mut inner = self.lock();
        match inner.requests.get(&id) {
            Some(Held::Slot(..)) => return QuestionStatus::Again,
            Some(Held::Waiting | Held::Left(..)) => return QuestionStatus::Stale,
            None if inner.is_ended.contains(&hash) => return QuestionStatus::Stale,
            None => {}
        }
        inner.requests.insert(id.clone(), Held::Waiting);
        drop(inner);
        QuestionStatus::New(WaitingPlace { slots: Arc::clone(self), id: Some(id) })
    }

    /// The proxy says that a request is over. If its client left early, the application may work on: the slot is kept for as long as such requests
    /// usually take, since otherwise whoever asks and leaves at once would have more of the application than others.
    pub(super) fn end(&self, RequestEnd { id, early }: &RequestEnd) -> SlotEffect {
        let hash = self.hasher.hash_one(id);
        let mut inner = self.lock();
        inner.remember(hash);
        let held = match inner.requests.remove(id) {
            Some(Held::Slot(permit, until)) if *early && Instant::now() < usual_end(&permit) => {
                let until = until.min(usual_end(&permit));
                inner.requests.insert(id.clone(), Held::Left(permit, until));
                return SlotEffect::Slot;
            }
            held => held,
        };
        drop(inner);
        // A permit is dropped here, after the lock.
        if matches!(held, Some(Held::Slot(..))) { SlotEffect::Slot } else { SlotEffect::NoSlot }
    }

    /// Ends the slots whose time is over, and returns of how many the proxy has said nothing.
    pub(super) fn expire(&self, now: Instant) -> u64 {
        let mut inner = self.lock();
        let is_over = |held: &Held| matches!(held, Held::Slot(_, until) | Held::Left(_, until) if *until <= now);
        let over: Vec<(RequestId, Held)> = inner.requests.extract_if(|_, held| is_over(held)).collect();
        drop(inner);
        over.iter().filter(|(_, held)| matches!(held, Held::Slot(..))).count() as u64
    }

    /// How many slots are held.
    pub(super) fn count(&self) -> u64 {
        self.lock().requests.values().filter(|held| !matches!(held, Held::Waiting)).count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When such a request is usually over.
fn usual_end(permit: &Permit) -> Instant {
    permit.since().into_std() + permit.usual_cost()
}

impl Inner {
    fn remember(&mut self, hash: u64) {
        if !self.is_ended.insert(hash) {
            return;
        }
        self.ended.push_back(hash);
        if self.ended.len() > ENDED_MOST
            && let Some(oldest) = self.ended.pop_front()
        {
            self.is_ended.remove(&oldest);
        }
    }
}

impl WaitingPlace {
    /// The request has its slot. False if it ended while it waited: the slot is free again.
    pub(super) fn hold(mut self, permit: Permit, until: Instant) -> bool {
        let Some(id) = self.id.take() else { return false };
        let mut inner = self.slots.lock();
        let Some(held) = inner.requests.get_mut(&id) else {
            drop(inner);
            return false;
        };
        *held = Held::Slot(permit, until);
        true
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.slots.lock().requests.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admission, Ask, Class, Grant, Settings, Slots, Standing};
    use http::Method;
    use std::net::Ipv4Addr;
    use std::task::Waker;
    use std::time::Duration;
    use weir_core::fair::{SessionKey, SubnetKey};

    fn queue() -> Arc<Admission> {
        // Nothing of these tests takes as long as a request is expected to.
        let first_estimate = Duration::from_secs(5);
        Admission::new(Settings { slots: Slots::Fixed(2), first_estimate, ..Settings::default() })
    }

    fn permit(queue: &Arc<Admission>) -> Permit {
        let ask = Ask {
            session: SessionKey(1),
            subnet: SubnetKey(1),
            standing: Standing::Known,
            client: Ipv4Addr::LOCALHOST.into(),
            class: Class::new(0, &Method::GET),
            bytes: 100,
            patience: Duration::MAX,
        };
        match queue.ask(&ask, Waker::noop()) {
            Ok(Grant::Now(permit)) => permit,
            other => panic!("a slot is free: {other:?}"),
        }
    }

    fn id(number: u32) -> RequestId {
        RequestId::read(format!("{number:032}").as_bytes()).unwrap()
    }

    fn end(number: u32) -> RequestEnd {
        RequestEnd { id: id(number), early: false }
    }

    fn begin(slots: &Arc<HeldSlots>, number: u32) -> WaitingPlace {
        match slots.begin(id(number)) {
            QuestionStatus::New(place) => place,
            other => panic!("it is new: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_slot_ends_once_by_its_name_or_its_time() {
        let (queue, slots, now) = (queue(), Arc::new(HeldSlots::default()), Instant::now());
        let later = now + Duration::from_secs(1);
        assert!(begin(&slots, 1).hold(permit(&queue), later));
        assert!(begin(&slots, 2).hold(permit(&queue), later));
        assert_eq!((slots.count(), queue.view().running), (2, 2));
        assert_eq!(
            (slots.end(&end(1)), slots.end(&end(1)), slots.end(&end(9))),
            (SlotEffect::Slot, SlotEffect::NoSlot, SlotEffect::NoSlot)
        );
        assert_eq!((slots.expire(now), slots.count(), queue.view().running), (0, 1, 1));
        assert_eq!((slots.expire(later), slots.count(), queue.view().running), (1, 0, 0));
    }

    #[tokio::test]
    async fn a_name_has_one_slot_and_is_used_once() {
        let (queue, slots) = (queue(), Arc::new(HeldSlots::default()));
        let until = Instant::now() + Duration::from_secs(9);
        let waits = begin(&slots, 1);
        assert!(matches!(slots.begin(id(1)), QuestionStatus::Stale), "the same request waits already");
        assert!(waits.hold(permit(&queue), until));
        assert!(matches!(slots.begin(id(1)), QuestionStatus::Again), "an internal redirect");
        slots.end(&end(1));
        assert!(matches!(slots.begin(id(1)), QuestionStatus::Stale), "a name is not used again");
        // Who leaves the queue may come again: it had nothing.
        drop(begin(&slots, 2));
        drop(begin(&slots, 2));
        assert_eq!(queue.view().running, 0);
    }

    #[tokio::test]
    async fn a_line_that_comes_before_its_question_or_its_slot_leaves_no_slot_behind() {
        let (queue, slots) = (queue(), Arc::new(HeldSlots::default()));
        slots.end(&end(1));
        assert!(matches!(slots.begin(id(1)), QuestionStatus::Stale));
        let waits = begin(&slots, 2);
        slots.end(&end(2));
        assert!(!waits.hold(permit(&queue), Instant::now() + Duration::from_secs(9)));
        assert_eq!((slots.count(), queue.view().running), (0, 0));
    }

    #[tokio::test]
    async fn who_leaves_early_keeps_the_slot_for_the_usual_time() {
        let (queue, slots) = (queue(), Arc::new(HeldSlots::default()));
        let until = Instant::now() + Duration::from_secs(3_600);
        assert!(begin(&slots, 1).hold(permit(&queue), until));
        assert_eq!(slots.end(&RequestEnd { id: id(1), early: true }), SlotEffect::Slot);
        assert_eq!((slots.count(), queue.view().running), (1, 1));
        // What such a request costs before any was measured.
        assert_eq!(slots.expire(Instant::now() + Duration::from_secs(60)), 0, "the proxy has said it");
        assert_eq!(queue.view().running, 0);
        assert!(matches!(slots.begin(id(1)), QuestionStatus::Stale));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let slots = Arc::new(HeldSlots::default());
        for number in 0..ENDED_MOST as u32 + 1_000 {
            slots.end(&end(number));
        }
        let inner = slots.lock();
        assert_eq!((inner.ended.len(), inner.is_ended.len()), (ENDED_MOST, ENDED_MOST));
    }
}
