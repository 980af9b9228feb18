//! A network, written as `192.0.2.0/24`, `2001:db8::/32` or one address.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpNetwork {
    address: u128,
    mask: u128,
}

impl IpNetwork {
    /// Whether the address is in the network. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.address
    }
}

/// Whether a list of networks that should be the site's own would let in the whole world: because one network is larger than any private
/// one (the largest is 10.0.0.0/8), or because together they are more than a quarter of all IPv4 addresses.
pub fn let_in_everybody(networks: &[IpNetwork]) -> bool {
    let prefix = |network: &IpNetwork| network.mask.leading_ones();
    let is_local = |network: &IpNetwork| network.mask.leading_ones() >= 7 && network.address >> 121 == 0xfc >> 1;
    let is_wide = |network: &&IpNetwork| match (is_v4(network), prefix(network)) {
        (true, prefix) => prefix < 96 + 8,
        (false, prefix) => prefix < 16 && !is_local(network),
    };
    let ipv4: u64 = networks.iter().filter(|network| is_v4(network)).map(|network| 1 << (128 - prefix(network))).sum();
    networks.iter().any(|network| is_wide(&network)) || ipv4 > 1 << 30
}

/// Whether this is an IPv4 network, and not an IPv6 network that contains all of IPv4.
fn is_v4(network: &IpNetwork) -> bool {
    network.mask.leading_ones() >= 96 && network.address >> 32 == 0xffff
}

/// An address as 128 bits; IPv4 addresses in their mapped form.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => Ipv6Addr::to_bits(v6),
    }
}

impl FromStr for IpNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<IpNetwork, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let (width, offset) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let prefix: u32 = prefix.map_or(Ok(width), str::parse).map_err(|_| NetworkError::Prefix(width))?;
        if prefix > width {
            return Err(NetworkError::Prefix(width));
        }
        let mask = u128::MAX.checked_shl(128 - offset - prefix).unwrap_or(0);
        Ok(IpNetwork { address: bits(address) & mask, mask })
    }
}

/// Why a network cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetworkError {
    /// The part before the slash is wrong.
    #[error("not an IP address; write 192.0.2.0/24, 2001:db8::/32 or one address")]
    Address,
    /// The part after the slash is wrong.
    #[error("the prefix length must be a number from 0 to {0}")]
    Prefix(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_everybody() {
        let all = |texts: &[&str]| {
            let networks: Vec<IpNetwork> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let_in_everybody(&networks)
        };
        for open in [
            &["0.0.0.0/0"][..],
            &["0.0.0.0/1", "128.0.0.0/1"],
            &["10.0.0.0/8", "64.0.0.0/7"],
            &["::/0"],
            &["::ffff:0:0/96"],
            &["2000::/3"],
            &["::/1", "8000::/1"],
        ] {
            assert!(all(open), "{open:?}");
        }
        for own in [&["10.0.0.0/8", "192.168.0.0/16"][..], &["192.0.2.7"], &["fc00::/7", "2001:db8::/32"], &[]] {
            assert!(!all(own), "{own:?}");
        }
        let slices: Vec<String> = (0..256).map(|n| format!("{n}.0.0.0/8")).collect();
        assert!(all(&slices.iter().map(String::as_str).collect::<Vec<_>>()), "piece by piece");
    }

    #[test]
    fn membership() {
        let inside =
            |network: &str, address: &str| network.parse::<IpNetwork>().unwrap().contains(address.parse().unwrap());
        assert!(inside("192.0.2.0/24", "192.0.2.9") && !inside("192.0.2.0/24", "192.0.3.9"));
        assert!(inside("192.0.2.7", "::ffff:192.0.2.7") && !inside("192.0.2.7", "192.0.2.8"));
        assert!(inside("2001:db8::/32", "2001:db8:1::1") && !inside("2001:db8::/32", "2001:db9::1"));
        assert!(inside("0.0.0.0/0", "1.2.3.4") && !inside("0.0.0.0/0", "2001:db8::1"));
        assert!(inside("::/0", "1.2.3.4"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "1.2.3.4/33", "::1/129", "1.2.3.4/", "1.2.3.4/-1", "1.2.3/8"] {
            assert!(text.parse::<IpNetwork>().is_err(), "{text}");
        }
    }
}
