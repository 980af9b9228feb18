//! Which datagrams of one sender were already seen: the last 64 sequence numbers of its present life.
//!
//! A number is taken once. Numbers older than the window, and lives before the present one, are refused.

use super::Boot;

/// The sequence window of one sender.
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

    /// Whether `sequence` of `boot` is new.
    pub(crate) fn is_new(&self, boot: Boot, sequence: u64) -> bool {
        if boot != self.boot {
            return boot > self.boot;
        }
        match self.highest.checked_sub(sequence) {
            None => true,
            Some(age) => age < 64 && self.seen & (1 << age) == 0,
        }
    }

    /// Takes `sequence` of `boot`, which [`Window::is_new`].
    pub(crate) fn take(&mut self, boot: Boot, sequence: u64) {
        if boot != self.boot {
            *self = Window::new(boot);
        }
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
            assert!(window.is_new(Boot(1), sequence), "{sequence}");
            window.take(Boot(1), sequence);
            assert!(!window.is_new(Boot(1), sequence), "{sequence}");
        }
        assert!(!window.is_new(Boot(1), 6), "older than the window");
        assert!(!window.is_new(Boot(0), u64::MAX), "an earlier life");
        assert!(window.is_new(Boot(2), 1));
        window.take(Boot(2), 1);
        assert!(!window.is_new(Boot(1), 100));
    }
}
