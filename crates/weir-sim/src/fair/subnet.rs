//! Subnets of addresses: /24 of IPv4, /56 of IPv6.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The subnet that an address counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subnet {
    /// The upper 24 bits of an IPv4 address.
    V4(u32),
    /// The upper 56 bits of an IPv6 address.
    V6(u64),
}

const HINT: &str = "write an IPv4 network with /24 or an IPv6 network with /56, such as \"10.0.1.0/24\"";

impl From<IpAddr> for Subnet {
    fn from(address: IpAddr) -> Subnet {
        match address.to_canonical() {
            IpAddr::V4(v4) => Subnet::V4(v4.to_bits() >> 8),
            IpAddr::V6(v6) => Subnet::V6((v6.to_bits() >> 72) as u64),
        }
    }
}

impl FromStr for Subnet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Subnet, &'static str> {
        let (address, length) = text.split_once('/').ok_or(HINT)?;
        let address: IpAddr = address.parse().map_err(|_| HINT)?;
        let subnet = Subnet::from(address);
        let wanted = if address.is_ipv4() { "24" } else { "56" };
        if length == wanted && subnet.network() == address { Ok(subnet) } else { Err(HINT) }
    }
}

impl Subnet {
    fn network(self) -> IpAddr {
        match self {
            Subnet::V4(bits) => Ipv4Addr::from_bits(bits << 8).into(),
            Subnet::V6(bits) => Ipv6Addr::from_bits(u128::from(bits) << 72).into(),
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if matches!(self, Subnet::V4(_)) { 24 } else { 56 };
        write!(f, "{}/{length}", self.network())
    }
}

/// RATE (Figure 3-10) in multiples of the average: min(1, H / n), H floored at the average.
pub(super) fn weight(history: &BTreeMap<Subnet, f64>, subnet: Subnet, active: usize) -> f64 {
    let history = history.get(&subnet).copied().unwrap_or(1.0).max(1.0);
    (history / active.max(1) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_fall_into_their_subnets() {
        let subnet = |text: &str| Subnet::from(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(subnet("10.0.1.77"), "10.0.1.0/24");
        assert_eq!(subnet("2001:db8:1:22ff::1"), "2001:db8:1:2200::/56");
        assert_eq!(subnet("::ffff:10.0.1.77"), "10.0.1.0/24", "an IPv4 address in IPv6 clothes");
        assert_eq!("2001:db8:1:2200::/56".parse::<Subnet>().unwrap().to_string(), "2001:db8:1:2200::/56");
        for wrong in ["10.0.1.0", "10.0.1.1/24", "10.0.0.0/16", "2001:db8::/64", "x/24", "10.0.1.0/24/24", ""] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }
}
