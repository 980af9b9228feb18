//! Cookies whose signature was found good lately, so that it need not be computed again.
//!
//! A direct-mapped table of 64-bit fingerprints: SipHash of cookie and subnet under a key of this process alone. One atomic word a
//! place, so threads share it without a lock; a fingerprint pushes out another of the same place. To be taken for seen, a forged
//! cookie must hit one of 2⁶⁴ values that nobody outside knows.

use super::siphash;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Seen {
    slots: Box<[AtomicU64]>,
    key: siphash::SipKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Seen {
    /// A table of 2^`bits` places.
    pub(super) fn new(bits: u32, key: siphash::SipKey) -> Seen {
        Seen { slots: (0..1usize << bits).map(|_| AtomicU64::new(0)).collect(), key }
    }

    pub(super) fn fingerprint(&self, cookie: &[u8], subnet: u64) -> Fingerprint {
        Fingerprint(siphash::hash(self.key, &[&subnet.to_le_bytes(), cookie]))
    }

    pub(super) fn has(&self, Fingerprint(bits): Fingerprint) -> bool {
        // Zero is an empty place, so one cookie in 2^64 is checked every time.
        bits != 0 && self.slot(bits).is_some_and(|slot| slot.load(Ordering::Relaxed) == bits)
    }

    pub(super) fn add(&self, Fingerprint(bits): Fingerprint) {
        if let Some(slot) = self.slot(bits) {
            slot.store(bits, Ordering::Relaxed);
        }
    }

    fn slot(&self, bits: u64) -> Option<&AtomicU64> {
        self.slots.get(bits as usize & (self.slots.len() - 1))
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seen({} slots)", self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_seen_for_its_subnet_until_pushed_out() {
        let seen = Seen::new(0, siphash::SipKey(1, 2));
        let (one, other) = (seen.fingerprint(b"cookie", 1), seen.fingerprint(b"cookie", 2));
        assert!(!seen.has(one));
        seen.add(one);
        assert!(seen.has(one) && !seen.has(other));
        seen.add(other);
        assert!(!seen.has(one) && seen.has(other));
    }
}
