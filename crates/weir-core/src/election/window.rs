//! Recognises repeated datagrams: remembers which of the last 64 sequence numbers of a sender (since its last start) were already seen.
//!
//! A number is taken once. Numbers older than the window are refused.

use super::Boot;

/// The sequence window of one life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    boot: Boot,
    highest: u64,
    /// Bit i: `highest - i` was seen.
    seen: u64,
}

impl Window {
    /// A window that has seen nothing of this life.
    pub(crate) fn new(boot: Boot) -> Window {
        Window { boot, highest: 0, seen: 0 }
    }

    pub(crate) fn boot(&self) -> Boot {
        self.boot
    }

    /// Whether `sequence` is new.
    pub(crate) fn is_new(&self, sequence: u64) -> bool {
        match self.highest.checked_sub(sequence) {
            None => true,
            Some(age) => age < 64 && self.seen & (1 << age) == 0,
        }
    }

    /// Takes `sequence`, which [`Window::is_new`].
    pub(crate) fn take(&mut self, sequence: u64) {
        if sequence > self.highest {
            let forward = sequence - self.highest;
            self.seen = if forward < 64 { self.seen << forward } else { 0 };
            self.highest = sequence;
        }
        let age = self.highest - sequence;
        self.seen |= 1u64.checked_shl(u32::try_from(age).unwrap_or(64)).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut window = Window::new(Boot(1));
        for sequence in [5, 3, 4, 70, 69, 7, u64::MAX, u64::MAX - 1] {
            assert!(window.is_new(sequence), "{sequence}");
            window.take(sequence);
            assert!(!window.is_new(sequence), "{sequence}");
        }
        assert!(!window.is_new(6), "older than the window");
    }
}
