//! Decides what counts as one client address.
//!
//! An IPv6 site has at least 2⁶⁴ addresses, so only the prefix of an IPv6 address counts. An IPv4 address counts as a whole, even if it is
//! mapped into IPv6.

use std::net::{IpAddr, Ipv6Addr};

/// The key under which connections and failed logins of a client are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AddressKey(u128);

impl AddressKey {
    /// The client that an address stands for, as text: `192.0.2.1`, or `2001:db8::/64`.
    pub fn name(address: IpAddr, ipv6_prefix_bits: u8) -> String {
        match address.to_canonical() {
            IpAddr::V6(v6) if ipv6_prefix_bits < 128 => {
                let AddressKey(prefix) = AddressKey::new(v6.into(), ipv6_prefix_bits);
                format!("{}/{ipv6_prefix_bits}", Ipv6Addr::from_bits(prefix))
            }
            whole => whole.to_string(),
        }
    }

    /// The address, or the first one of a prefix.
    pub fn address(self) -> IpAddr {
        Ipv6Addr::from_bits(self.0).to_canonical()
    }

    /// The key of `address`. Of an IPv6 address, only the first `ipv6_prefix_bits` count.
    pub fn new(address: IpAddr, ipv6_prefix_bits: u8) -> AddressKey {
        match address.to_canonical() {
            IpAddr::V4(v4) => AddressKey(v4.to_ipv6_mapped().to_bits()),
            IpAddr::V6(v6) => {
                let dropped = 128 - u32::from(ipv6_prefix_bits.min(128));
                AddressKey(Ipv6Addr::to_bits(v6) & u128::MAX.checked_shl(dropped).unwrap_or(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_much_counts() {
        let name = |text: &str, bits| AddressKey::name(text.parse().unwrap(), bits);
        assert_eq!(name("2001:db8::1:2", 64), "2001:db8::/64");
        assert_eq!(name("2001:db8::1:2", 128), "2001:db8::1:2");
        assert_eq!(name("::ffff:192.0.2.1", 64), "192.0.2.1");
    }

    #[test]
    fn ipv6_counts_by_prefix_and_mapped_ipv4_as_ipv4() {
        let key = |text: &str, bits| AddressKey::new(text.parse().unwrap(), bits);
        assert_eq!(key("2001:db8::1", 64), key("2001:db8::ffff:1", 64));
        assert_ne!(key("2001:db8::1", 64), key("2001:db8:0:1::1", 64));
        assert_ne!(key("2001:db8::1", 128), key("2001:db8::2", 128));
        assert_eq!(key("::ffff:192.0.2.1", 64), key("192.0.2.1", 64));
        assert_ne!(key("192.0.2.1", 64), key("192.0.2.2", 64));
        for text in ["192.0.2.1", "2001:db8:0:1::"] {
            assert_eq!(key(text, 64).address().to_string(), text);
        }
    }
}
