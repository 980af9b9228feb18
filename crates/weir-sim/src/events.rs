//! The virtual clock: a queue of events in order of time. Events with the same time come in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_core::time::Instant;

/// Events that are still to happen.
#[derive(Debug, Clone)]
pub struct Events<E> {
    now: Instant,
    scheduled: u64,
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Events { now: Instant::ZERO, scheduled: 0, heap: BinaryHeap::new() }
    }
}

impl<E> Events<E> {
    /// The time of the last event taken.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Schedules an event; one in the past happens now.
    pub fn at(&mut self, time: Instant, event: E) {
        self.scheduled += 1;
        self.heap.push(Reverse(Scheduled { time: time.max(self.now), order: self.scheduled, event }));
    }

    /// When the next event will happen.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(event)| event.time)
    }
}

/// Takes the next event and moves the clock to it.
impl<E> Iterator for Events<E> {
    type Item = (Instant, E);

    fn next(&mut self) -> Option<(Instant, E)> {
        let Reverse(event) = self.heap.pop()?;
        self.now = event.time;
        Some((event.time, event.event))
    }
}

#[derive(Debug, Clone)]
struct Scheduled<E> {
    time: Instant,
    order: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.order) == (other.time, other.order)
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_the_order_of_scheduling() {
        let mut events = Events::default();
        events.at(Instant(2), 'c');
        events.at(Instant(1), 'a');
        events.at(Instant(1), 'b');
        assert_eq!(events.next(), Some((Instant(1), 'a')));
        events.at(Instant(0), 'x');
        assert_eq!(events.next(), Some((Instant(1), 'b')));
        assert_eq!(events.next(), Some((Instant(1), 'x')), "the past happens now");
        assert_eq!(events.next(), Some((Instant(2), 'c')));
        assert_eq!(events.next(), None);
    }
}
