//! When visitors were let in who may come back with the cookie that they had before.
//!
//! Such a cookie shows when its visitor first came, and not what it has had since. A program that is let in and asks again would go before
//! everybody who came later than it, each time. So its waiting counts from when it was last let in.

use alloc::collections::VecDeque;

use super::keys::KeyMap;
use crate::mutant::{Mutant, planted};

#[derive(Clone, Debug)]
pub(super) struct HadTurns {
    last: KeyMap<u64>,
    /// The same, the oldest first; a visitor that was let in again stands in it more than once.
    order: VecDeque<(u64, u64)>,
    max: usize,
}

impl HadTurns {
    pub(super) fn new(max: usize) -> HadTurns {
        HadTurns { last: KeyMap::default(), order: VecDeque::new(), max }
    }

    /// Since when a visitor waits whose cookie says that it waits since `since`.
    pub(super) fn since(&self, session: u64, since: u64) -> u64 {
        let let_in = self.last.get(&session).filter(|_| !planted(Mutant::LineBelievesCookies));
        let_in.map_or(since, |let_in| since.max(*let_in))
    }

    /// A visitor is let in. Nobody's cookie says that it waits since before `oldest`, so what lies before that need not be remembered.
    pub(super) fn note(&mut self, session: u64, now: u64, oldest: u64) {
        self.last.insert(session, now);
        self.order.push_back((now, session));
        while let Some((at, first)) =
            self.order.front().copied().filter(|(at, _)| *at < oldest || self.order.len() > self.max)
        {
            self.order.pop_front();
            if self.last.get(&first) == Some(&at) {
                self.last.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_let_in_waits_from_then_on() {
        let mut turns = HadTurns::new(10);
        turns.note(1, 100, 0);
        assert_eq!((turns.since(1, 40), turns.since(1, 120), turns.since(2, 40)), (100, 120, 40));
    }

    #[test]
    fn what_no_cookie_can_show_is_forgotten_and_so_is_the_oldest_of_too_many() {
        let mut turns = HadTurns::new(3);
        turns.note(1, 100, 0);
        turns.note(2, 110, 0);
        turns.note(1, 170, 105);
        assert_eq!((turns.since(1, 0), turns.since(2, 0)), (170, 110));
        turns.note(3, 180, 120);
        assert_eq!(turns.since(2, 0), 0);
        turns.note(4, 190, 0);
        turns.note(5, 200, 0);
        assert_eq!((turns.since(1, 0), turns.since(3, 0), turns.order.len()), (0, 180, 3));
    }
}
