//! A cache of which addresses exist and which do not, each in a table of its own, so that a flood of names that do not exist does not push
//! out those that do. At most so many of each; the oldest go first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use weir_core::time::Instant;
use weir_settings::settings;

settings! {
    /// How long and how much is remembered.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Remembering {
        /// How long it is remembered that a recipient exists
        pub yes as "callout_yes": Duration = duration("6h", "0s"..="7d"),
        /// How long it is remembered that a recipient does not exist
        pub no as "callout_no": Duration = duration("15m", "0s"..="7d"),
        /// How long a recipient that existed is still accepted while the next server cannot be asked
        pub yes_at_need as "callout_yes_at_need": Duration = duration("7d", "0s"..="30d"),
        /// Recipients of each kind that are remembered
        pub most as "callout_memory": usize = count(50_000, 1..=10_000_000),
    }
}

/// What is known of addresses.
#[derive(Debug)]
pub(super) struct Memory {
    rules: Remembering,
    yes: Table<()>,
    no: Table<Box<str>>,
}

impl Memory {
    pub(super) fn new(rules: Remembering) -> Memory {
        Memory { rules, yes: Table::default(), no: Table::default() }
    }

    /// What is known: yes, or no with the reason.
    pub(super) fn find(&self, address: &str, now: Instant) -> Option<Result<(), Box<str>>> {
        if self.yes.find(address).is_some_and(|(_, since)| *since + self.rules.yes > now) {
            return Some(Ok(()));
        }
        let (why, since) = self.no.find(address)?;
        (*since + self.rules.no > now).then(|| Err(why.clone()))
    }

    /// Whether it was there not too long ago, though it should be asked about again.
    pub(super) fn was_there(&self, address: &str, now: Instant) -> bool {
        self.yes.find(address).is_some_and(|(_, since)| *since + self.rules.yes_at_need > now)
    }

    pub(super) fn learn(&mut self, address: &str, known: Result<(), Box<str>>, now: Instant) {
        match known {
            Ok(()) => {
                self.no.known.remove(address);
                self.yes.put(address, (), now, self.rules.most);
            }
            Err(why) => {
                self.yes.known.remove(address);
                self.no.put(address, why, now, self.rules.most);
            }
        }
    }
}

/// Each entry has a place in the order; one that was replaced or removed leaves its old place behind, and the order is
/// bounded like the table.
#[derive(Debug)]
struct Table<T> {
    known: HashMap<Box<str>, (T, Instant)>,
    order: VecDeque<(Instant, Box<str>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { known: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Table<T> {
    fn find(&self, address: &str) -> Option<&(T, Instant)> {
        self.known.get(address)
    }

    fn put(&mut self, address: &str, value: T, now: Instant, most: usize) {
        self.known.insert(address.into(), (value, now));
        self.order.push_back((now, address.into()));
        while self.order.len() > most {
            let Some((since, oldest)) = self.order.pop_front() else { return };
            if self.known.get(&oldest).is_some_and(|(_, newest)| *newest <= since) {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Remembering = Remembering {
        yes: Duration::from_secs(100),
        no: Duration::from_secs(10),
        yes_at_need: Duration::from_secs(1000),
        most: 50,
    };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn yes_and_no_are_forgotten_each_in_its_time() {
        let mut memory = Memory::new(RULES);
        memory.learn("ann", Ok(()), at(0));
        memory.learn("eve", Err("who?".into()), at(0));
        assert_eq!(memory.find("ann", at(99)), Some(Ok(())));
        assert_eq!(memory.find("eve", at(9)), Some(Err("who?".into())));
        assert_eq!((memory.find("ann", at(100)), memory.find("eve", at(10))), (None, None));
        assert!(
            memory.was_there("ann", at(999)) && !memory.was_there("ann", at(1000)) && !memory.was_there("eve", at(1))
        );
        memory.learn("ann", Err("gone".into()), at(200));
        assert_eq!(memory.find("ann", at(201)), Some(Err("gone".into())));
        assert!(!memory.was_there("ann", at(201)));
    }

    #[test]
    fn a_flood_of_unknown_names_is_bounded_and_costs_no_known_one() {
        let mut memory = Memory::new(RULES);
        memory.learn("ann", Ok(()), at(0));
        for number in 0..10_000 {
            memory.learn(&number.to_string(), Err("no".into()), at(1));
        }
        assert!(memory.no.known.len() <= 50 && memory.no.order.len() <= 50);
        assert_eq!(memory.find("ann", at(1)), Some(Ok(())));
        for number in 0..10_000 {
            memory.learn(&(number % 3).to_string(), Ok(()), at(2));
        }
        assert!(memory.yes.known.len() <= 50 && memory.yes.order.len() <= 50);
    }
}
