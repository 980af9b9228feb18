//! The recipients of one mail: in order, each once, not without end.

use std::collections::HashSet;

/// At most this many recipients of one mail are kept; a throttle with any sane threshold has stopped long before.
pub(crate) const RECIPIENTS_MAX: usize = 10_000;
/// Below this length looking through the list is quicker than a set, and far smaller.
const CROWD: usize = 16;

/// A list without repetition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipients {
    list: Vec<String>,
    crowd: HashSet<String>,
}

impl Recipients {
    /// Adds an address in canonical form unless it is there; false if it is one too many.
    #[must_use]
    pub(crate) fn add(&mut self, address: String) -> bool {
        if self.contains(&address) {
            return true;
        }
        if self.list.len() >= RECIPIENTS_MAX {
            return false;
        }
        if self.list.len() >= CROWD {
            if self.crowd.is_empty() {
                self.crowd.extend(self.list.iter().cloned());
            }
            self.crowd.insert(address.clone());
        }
        self.list.push(address);
        true
    }

    /// No more will come: the list keeps nothing but itself.
    pub(crate) fn close(&mut self) {
        self.crowd = HashSet::new();
        self.list.shrink_to_fit();
    }

    pub(crate) fn into_list(self) -> Vec<String> {
        self.list
    }

    fn contains(&self, address: &str) -> bool {
        if self.crowd.is_empty() { self.list.iter().any(|a| a == address) } else { self.crowd.contains(address) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_once_in_order_and_not_without_end() {
        let mut recipients = Recipients::default();
        for _ in 0..2 {
            let refused = (0..RECIPIENTS_MAX + 7).filter(|i| !recipients.add(format!("u{i}@x"))).count();
            assert_eq!(refused, 7);
            recipients.close();
        }
        let list = recipients.into_list();
        assert_eq!((list.len(), list[0].as_str(), list[40].as_str()), (RECIPIENTS_MAX, "u0@x", "u40@x"));
    }
}
