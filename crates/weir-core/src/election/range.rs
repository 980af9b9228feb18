//! The lab's address range, which a node sweeps only while it knows no member.
//!
//! The shell connects to the addresses with at most [`AddressRange::IN_FLIGHT`] attempts at a time and a
//! connect timeout of T. A range larger than a /22 is taken only on demand. An IPv6 network is never swept, because it has too many
//! addresses; there the shell connects to those that the database knows.

use core::net::{IpAddr, Ipv4Addr};

/// The hosts of one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRange {
    /// The first and the last one; none for an IPv6 network.
    hosts: Option<(u32, u32)>,
}

impl AddressRange {
    /// How many connection attempts run at the same time during a sweep.
    pub const IN_FLIGHT: usize = 64;
    /// The shortest prefix that is swept without being asked to.
    pub const PREFIX_MIN: u8 = 22;

    /// The hosts of `network/prefix`; `wide` allows networks larger than a /22, down to a /16.
    pub fn new(network: IpAddr, prefix: u8, wide: bool) -> Result<AddressRange, RangeRefused> {
        match (network, prefix) {
            (IpAddr::V4(_), 16..Self::PREFIX_MIN) if !wide => Err(RangeRefused::TooWide { prefix }),
            (IpAddr::V4(network), 16..=32) => Ok(Self::of(u32::from(network), prefix)),
            (IpAddr::V4(_), _) => Err(RangeRefused::NoPrefix { prefix, from: 16, to: 32 }),
            (IpAddr::V6(_), 1..=128) => Ok(AddressRange { hosts: None }),
            (IpAddr::V6(_), _) => Err(RangeRefused::NoPrefix { prefix, from: 1, to: 128 }),
        }
    }

    fn of(network: u32, prefix: u8) -> AddressRange {
        let size = 1u32 << (32 - prefix);
        let first = network & !(size - 1);
        let last = first + (size - 1);
        // Network and broadcast address are no hosts, except in the two smallest networks.
        let hosts = if size > 2 { (first + 1, last - 1) } else { (first, last) };
        AddressRange { hosts: Some(hosts) }
    }

    /// Every host address, in order; none for an IPv6 network.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let hosts = self.hosts.map(|(first, last)| first..=last);
        hosts.into_iter().flatten().map(|host| IpAddr::V4(Ipv4Addr::from(host)))
    }

    /// Whether there are too many addresses to try one by one.
    pub fn is_boundless(&self) -> bool {
        self.hosts.is_none()
    }
}

/// Why a range cannot be swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeRefused {
    /// More hosts than a /22 has, and nobody asked for that.
    TooWide {
        /// What was given.
        prefix: u8,
    },
    /// Not a prefix length that such a network may have.
    NoPrefix {
        /// What was given.
        prefix: u8,
        /// The shortest that may be.
        from: u8,
        /// The longest.
        to: u8,
    },
}

impl core::fmt::Display for RangeRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RangeRefused::TooWide { prefix } => write!(f, "a /{prefix} is too wide to sweep without allowing it"),
            RangeRefused::NoPrefix { prefix, from, to } => {
                write!(f, "/{prefix} is not a prefix length from {from} to {to}")
            }
        }
    }
}

impl core::error::Error for RangeRefused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_network_and_the_refusals() {
        let host = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 1, last));
        let range = |prefix, wide| AddressRange::new(host(77), prefix, wide);
        let hosts: alloc::vec::Vec<IpAddr> = range(30, false).unwrap().hosts().collect();
        assert_eq!(hosts, [host(77), host(78)]);
        assert_eq!(range(32, false).unwrap().hosts().count(), 1);
        assert_eq!(range(22, false).unwrap().hosts().count(), 1022);
        assert_eq!(range(16, false), Err(RangeRefused::TooWide { prefix: 16 }));
        assert_eq!(range(16, true).unwrap().hosts().count(), 65_534);
        assert!(matches!(range(0, true), Err(RangeRefused::NoPrefix { prefix: 0, .. })));
        assert!(matches!(range(33, true), Err(RangeRefused::NoPrefix { prefix: 33, .. })));
        let top = AddressRange::new(Ipv4Addr::BROADCAST.into(), 24, false).unwrap();
        assert_eq!(top.hosts().count(), 254);
    }

    #[test]
    fn nobody_tries_the_addresses_of_an_ipv6_network_one_by_one() {
        let six = |prefix| AddressRange::new("fd00::1".parse().unwrap(), prefix, false);
        let range = six(64).unwrap();
        assert!(range.is_boundless() && range.hosts().next().is_none());
        assert!(six(0).is_err() && six(129).is_err() && six(128).is_ok());
    }
}
