//! Keys of sessions, subnets and front-ends, and maps by them.
//!
//! The shell has already hashed the keys with a secret, so a map may use their bits as they are: nobody
//! outside can choose keys that collide.

use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// A session: its cookie or address, hashed by the shell with a secret that all front-ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// A subnet (or a configured group of subnets), hashed likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnetKey(pub u64);

/// Another front-end in one of its lives: a restarted one is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

pub(super) type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// Passes a key through: it is a hash already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}
