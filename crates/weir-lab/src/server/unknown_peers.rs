//! Connections whose owner is not known yet. They are bounded, so that peers that never say who they are keep out nobody else.
//!
//! One address has a few at once. There is a bound for all together too, but addresses of known machines of the lab are counted separately.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// How many may come from one address: as many as a machine may have when it is known.
const UNKNOWN_AN_ADDRESS: usize = super::CONNECTIONS_A_MACHINE;
/// How many may come from all addresses together at which no machine is known.
const UNKNOWN_MAX: usize = 128;

/// Connections that have not introduced themselves. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct UnknownPeers(Arc<Mutex<Present>>);

#[derive(Debug, Default)]
struct Present {
    by_address: HashMap<IpAddr, usize>,
    unknown: usize,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct UnknownPeer {
    all: UnknownPeers,
    from: IpAddr,
    known: bool,
}

impl UnknownPeers {
    /// One more from this address; `known` if a machine of the lab is there. None if there are too many.
    pub(super) fn enter(&self, from: IpAddr, known: bool) -> Option<UnknownPeer> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known && present.unknown >= UNKNOWN_MAX {
            return None;
        }
        if present.by_address.get(&from).is_some_and(|there| *there >= UNKNOWN_AN_ADDRESS) {
            return None;
        }
        *present.by_address.entry(from).or_default() += 1;
        present.unknown += usize::from(!known);
        Some(UnknownPeer { all: self.clone(), from, known })
    }
}

impl Drop for UnknownPeer {
    fn drop(&mut self) {
        let mut present = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        present.unknown -= usize::from(!self.known);
        if let Some(there) = present.by_address.get_mut(&self.from) {
            *there -= 1;
            if *there == 0 {
                present.by_address.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_one_address_nor_many_keep_out_the_machines_of_the_lab() {
        let strangers = UnknownPeers::default();
        let address = |last: u8| IpAddr::from([10, 7, 0, last]);
        let of_one: Vec<_> = (0..200).filter_map(|_| strangers.enter(address(9), false)).collect();
        assert_eq!(of_one.len(), UNKNOWN_AN_ADDRESS);
        assert!(strangers.enter(address(1), false).is_some());
        let of_many: Vec<_> = (10..=255).filter_map(|last| strangers.enter(address(last), false)).collect();
        assert_eq!(of_one.len() + of_many.len(), UNKNOWN_MAX);
        assert!(strangers.enter(address(1), false).is_none());
        let of_machine: Vec<_> = (0..200).filter_map(|_| strangers.enter(address(1), true)).collect();
        assert_eq!(of_machine.len(), UNKNOWN_AN_ADDRESS);
        drop((of_one, of_many, of_machine));
        let present = strangers.0.lock().unwrap();
        assert!(present.by_address.is_empty() && present.unknown == 0);
    }
}
