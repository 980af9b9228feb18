//! IP networks (prefixes), and maps with networks as keys.
//!
//! IPv4 is kept as IPv4-mapped IPv6, so there is one family of 128 bits. A map looks through the prefix lengths that it has, the
//! longest first, by binary search: O(lengths × log N).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address prefix, such as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    bits: u128,
    /// Length in the mapped form, which is 96 more for IPv4.
    prefix: u8,
}

impl Network {
    /// The network of `prefix` bits in which `address` lies; a prefix that is too long counts as the whole address.
    pub fn new(address: IpAddr, prefix: u8) -> Network {
        let address = address.to_canonical();
        let prefix = mapped_prefix(address, prefix);
        Network { bits: masked(mapped(address), prefix), prefix }
    }

    pub fn first(&self) -> IpAddr {
        unmapped(self.bits)
    }

    /// The length of its prefix, of 32 bits for IPv4 and of 128 for IPv6.
    pub fn prefix_bits(&self) -> u8 {
        if self.first().is_ipv4() { self.prefix.saturating_sub(MAPPED) } else { self.prefix }
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        masked(mapped(address), self.prefix) == self.bits
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first() {
            IpAddr::V4(v4) if self.prefix >= MAPPED => write!(f, "{v4}/{}", self.prefix - MAPPED),
            _ => write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.prefix),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => most,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|bits| *bits <= most).ok_or(NetworkError::Prefix { most })?
            }
            Some(_) => return Err(NetworkError::Prefix { most }),
        };
        let written = if address.is_ipv4() { prefix + MAPPED } else { prefix };
        let network = Network { bits: masked(mapped(address), written), prefix: written };
        if network.bits == mapped(address) { Ok(network) } else { Err(NetworkError::HostBits(network)) }
    }
}

/// Values by network; the longest prefix that holds an address decides.
#[derive(Clone, Debug)]
pub struct NetworkMap<T> {
    /// By prefix length, the longest first; each sorted by its bits.
    lengths: Vec<(u8, Vec<(u128, T)>)>,
}

impl<T> NetworkMap<T> {
    /// The value of the longest prefix that holds `address`.
    pub fn find(&self, address: IpAddr) -> Option<&T> {
        if self.lengths.is_empty() {
            return None;
        }
        let bits = mapped(address);
        self.lengths.iter().find_map(|(prefix, entries)| {
            let wanted = masked(bits, *prefix);
            let place = entries.binary_search_by_key(&wanted, |(bits, _)| *bits).ok()?;
            entries.get(place).map(|(_, value)| value)
        })
    }
}

impl<T> FromIterator<(Network, T)> for NetworkMap<T> {
    /// Of equal networks the first one is kept.
    fn from_iter<I: IntoIterator<Item = (Network, T)>>(entries: I) -> NetworkMap<T> {
        let mut by_length: std::collections::BTreeMap<u8, Vec<(u128, T)>> = std::collections::BTreeMap::new();
        for (network, value) in entries {
            by_length.entry(network.prefix).or_default().push((network.bits, value));
        }
        let mut lengths: Vec<_> = by_length.into_iter().rev().collect();
        for (_, entries) in &mut lengths {
            entries.sort_by_key(|(bits, _)| *bits);
            entries.dedup_by_key(|(bits, _)| *bits);
        }
        NetworkMap { lengths }
    }
}

/// How many bits the mapped form puts before an IPv4 address.
const MAPPED: u8 = 96;

/// An address as 128 bits, IPv4 in its mapped form.
pub fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn unmapped(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}

/// The leading `prefix` bits.
pub fn masked(bits: u128, prefix: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// The length of an address's prefix in the mapped form.
pub(super) fn mapped_prefix(address: IpAddr, prefix: u8) -> u8 {
    match address {
        IpAddr::V4(_) => prefix.min(Ipv4Addr::BITS as u8) + MAPPED,
        IpAddr::V6(_) => prefix.min(Ipv6Addr::BITS as u8),
    }
}

/// Why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// What stands before the slash.
    #[error("not an IP address")]
    Address,
    /// What stands behind the slash.
    #[error("the prefix length is a number up to {most}")]
    Prefix { most: u8 },
    /// Bits behind the prefix are set.
    #[error("bits are set behind the prefix: did you mean {0}?")]
    HostBits(Network),
}

/// The host that an address belongs to: an IPv6 host has a whole /64 of them.
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> Network {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn texts_that_are_networks_and_texts_that_are_not() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0", "::1/128"] {
            assert_eq!(net(text).to_string(), text);
        }
        assert_eq!(net("10.1.2.3").to_string(), "10.1.2.3/32");
        assert_eq!(net("::ffff:10.0.0.0/104"), net("10.0.0.0/8"));
        for text in ["", "/", "1.2.3.4/33", "::/129", "::/-1", "1.2.3/8", "::/+1", "1.2.3.4/", "::1/999999999999"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let wrong = "192.0.2.1/24".parse::<Network>().unwrap_err();
        assert_eq!(wrong.to_string(), "bits are set behind the prefix: did you mean 192.0.2.0/24?");
    }

    #[test]
    fn the_longest_prefix_decides() {
        let entries = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.0.0/16", 3), ("::/0", 4), ("2001:db8::/56", 5)];
        let map: NetworkMap<i32> = entries.into_iter().map(|(text, value)| (net(text), value)).collect();
        let find = |text: &str| map.find(text.parse().unwrap()).copied();
        assert_eq!(find("10.2.0.1"), Some(1));
        assert_eq!(find("::ffff:10.1.0.1"), Some(2));
        assert_eq!(find("2001:db8:0:ff::1"), Some(5));
        assert_eq!(find("2001:db8:0:100::1"), Some(4));
    }

    proptest! {
        #[test]
        fn a_map_is_a_search_through_all(
            nets in prop::collection::vec((any::<u128>(), 0u8..=128), 0..20),
            bits: u128,
            near in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let nets: Vec<Network> =
                nets.iter().map(|(bits, prefix)| Network { bits: masked(*bits, *prefix), prefix: *prefix }).collect();
            let bits = match near {
                Some(index) if !nets.is_empty() => nets[index.index(nets.len())].bits | (bits >> 120),
                _ => bits,
            };
            let address = IpAddr::V6(Ipv6Addr::from_bits(bits));
            let map: NetworkMap<u8> = nets.iter().map(|network| (*network, network.prefix)).collect();
            let longest = nets.iter().filter(|network| network.contains(address)).map(|network| network.prefix).max();
            prop_assert_eq!(map.find(address).copied(), longest);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(network) = text.parse::<Network>() {
                prop_assert_eq!(network.to_string().parse::<Network>(), Ok(network));
            }
        }
    }
}
