//! The id of a message: unique across restarts and machines, sortable by time, short enough to read out.
//!
//! 100 bits: 44 of milliseconds since 1970 (good until the year 2527) and 56 that are drawn anew from the
//! system each millisecond and counted up inside it. Ids of one process rise strictly, also when the clock
//! steps back. Written as twenty characters of Crockford's base32 in lower case, so text sorts as time does.
//! An id is not a secret: somebody who knows one can guess its neighbours.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

const RANDOM_BITS: u32 = 56;
const RANDOM_MASK: u128 = (1 << RANDOM_BITS) - 1;
const LETTERS: usize = 20;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Names one message from its draft to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

impl MessageId {
    /// When the draft was begun, in milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        (self.0 >> RANDOM_BITS) as u64
    }

    /// The number behind the text.
    pub fn as_u128(self) -> u128 {
        self.0
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> MessageId {
        MessageId(u128::from_le_bytes(bytes))
    }

    #[cfg(test)]
    pub(super) fn of(number: u128) -> MessageId {
        MessageId(number)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; LETTERS];
        for (place, letter) in text.iter_mut().rev().enumerate() {
            *letter = ALPHABET[(self.0 >> (5 * place)) as usize & 31];
        }
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<MessageId, NotAnId> {
        let digit = |letter: u8| ALPHABET.iter().position(|known| *known == letter.to_ascii_lowercase());
        if text.len() != LETTERS {
            return Err(NotAnId);
        }
        text.bytes()
            .try_fold(0, |number, letter| Some(number << 5 | digit(letter)? as u128))
            .map(MessageId)
            .ok_or(NotAnId)
    }
}

/// Generates ids that only grow.
#[derive(Debug, Default)]
pub(super) struct IdSource(Mutex<u128>);

impl IdSource {
    /// The next id; its time is that of the system.
    pub(super) fn next(&self) -> MessageId {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        self.at(now as u64)
    }

    fn at(&self, unix_ms: u64) -> MessageId {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let floor = u128::from(unix_ms) << RANDOM_BITS;
        // Leaving the top bit clear keeps 2^55 steps free for counting up within the millisecond.
        *last = if floor > *last { floor | (random_bits() & (RANDOM_MASK >> 1)) } else { *last + 1 };
        MessageId(*last & ((1 << 100) - 1))
    }
}

/// 64 bits from the system's generator.
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        // The system has no generator (or was interrupted): the hasher's keys are random as well.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), SystemTime::now()),
    }
}

fn random_bits() -> u128 {
    u128::from(random_u64()) & RANDOM_MASK
}

/// The text is not the id of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a message id: it has twenty letters and digits, such as 0dh3k9w2m1c8t0qzx4pn")]
pub struct NotAnId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_even_when_the_clock_steps_back() {
        let source = IdSource::default();
        let mut last = source.at(1_000);
        for now in [1_000, 1_000, 999, 5, 1_001, 1_001, 0] {
            let next = source.at(now);
            assert!(next > last && next.to_string() > last.to_string());
            last = next;
        }
        assert_eq!(last.unix_ms(), 1_001);
    }

    #[test]
    fn text_and_back() {
        let id = IdSource::default().next();
        assert_eq!(id.to_string().len(), 20);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        for bad in ["", "0", "il0o0000000000000000", "000000000000000000000", "ééééé00000"] {
            assert_eq!(bad.parse::<MessageId>(), Err(NotAnId), "{bad}");
        }
    }

    #[test]
    fn two_machines_do_not_meet() {
        let (a, b) = (IdSource::default(), IdSource::default());
        assert_ne!(a.at(7), b.at(7));
    }
}
