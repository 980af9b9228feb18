//! The lab's address range, which a node sweeps only while it knows no member.
//!
//! The shell connects to the addresses with at most [`AddressRange::IN_FLIGHT`] attempts at a time and a
//! connect timeout of T. A range larger than a /22 is taken only on demand.

use core::net::Ipv4Addr;

/// The hosts of one IPv4 network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRange {
    first: u32,
    last: u32,
}

impl AddressRange {
    /// Connection attempts under way at one time during a sweep.
    pub const IN_FLIGHT: usize = 64;
    /// The shortest prefix that is swept without asking.
    pub const PREFIX_MIN: u8 = 22;

    /// The hosts of `network/prefix`; `wide` allows what is larger than a /22, down to a /16.
    pub fn new(network: Ipv4Addr, prefix: u8, wide: bool) -> Result<AddressRange, RangeRefused> {
        match prefix {
            16..Self::PREFIX_MIN if !wide => Err(RangeRefused::TooWide { prefix }),
            16..=32 => Ok(Self::of(u32::from(network), prefix)),
            _ => Err(RangeRefused::NoPrefix { prefix }),
        }
    }

    fn of(network: u32, prefix: u8) -> AddressRange {
        let size = 1u32 << (32 - prefix);
        let first = network & !(size - 1);
        let last = first + (size - 1);
        // Network and broadcast address are no hosts, except in the two smallest networks.
        if size > 2 { AddressRange { first: first + 1, last: last - 1 } } else { AddressRange { first, last } }
    }

    /// Every host address, in order.
    pub fn hosts(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (self.first..=self.last).map(Ipv4Addr::from)
    }
}

/// Why a range is not swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeRefused {
    /// More hosts than a /22 has, and nobody asked for that.
    TooWide {
        /// What was given.
        prefix: u8,
    },
    /// Not a prefix length from 16 to 32.
    NoPrefix {
        /// What was given.
        prefix: u8,
    },
}

impl core::fmt::Display for RangeRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RangeRefused::TooWide { prefix } => write!(f, "a /{prefix} is too wide to sweep without allowing it"),
            RangeRefused::NoPrefix { prefix } => write!(f, "/{prefix} is not a prefix length from 16 to 32"),
        }
    }
}

impl core::error::Error for RangeRefused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_network_and_the_refusals() {
        let range = |prefix, wide| AddressRange::new(Ipv4Addr::new(10, 0, 1, 77), prefix, wide);
        let hosts: alloc::vec::Vec<Ipv4Addr> = range(30, false).unwrap().hosts().collect();
        assert_eq!(hosts, [Ipv4Addr::new(10, 0, 1, 77), Ipv4Addr::new(10, 0, 1, 78)]);
        assert_eq!(range(32, false).unwrap().hosts().count(), 1);
        assert_eq!(range(22, false).unwrap().hosts().count(), 1022);
        assert_eq!(range(16, false), Err(RangeRefused::TooWide { prefix: 16 }));
        assert_eq!(range(16, true).unwrap().hosts().count(), 65_534);
        assert_eq!(range(0, true), Err(RangeRefused::NoPrefix { prefix: 0 }));
        assert_eq!(range(33, true), Err(RangeRefused::NoPrefix { prefix: 33 }));
        let top = AddressRange::new(Ipv4Addr::BROADCAST, 24, false).unwrap();
        assert_eq!(top.hosts().count(), 254);
    }
}
