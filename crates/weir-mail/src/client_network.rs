//! The network that a client is in. It identifies senders from outside when they take turns, and shows where a user's mail comes from.
//!
//! A received message belongs to the network of its client: the /24 of an IPv4 address, the /48 of an IPv6 one, which is
//! about what one site has. A sender's domain would be the more natural choice, but it is a claim: a sender that writes a new domain into
//! each message would get a turn for each. A network cannot be made up. (Sites that write from many networks get a turn for each; so does a
//! botnet.)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4_BITS: u32 = 24;
const IPV6_BITS: u32 = 48;

/// The network of a client, as text: `192.0.2.0/24`.
pub(crate) fn network_of(client: IpAddr) -> String {
    let (network, bits) = prefix_of(client, IPV4_BITS, IPV6_BITS);
    format!("{network}/{bits}")
}

/// The network of so many bits that a client is in, and how many they are.
pub(crate) fn prefix_of(client: IpAddr, v4_bits: u32, v6_bits: u32) -> (IpAddr, u32) {
    match client.to_canonical() {
        IpAddr::V4(v4) => (Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - v4_bits))).into(), v4_bits),
        IpAddr::V6(v6) => (Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - v6_bits))).into(), v6_bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_turn() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2:3::4"), "2001:db8:1::/48");
        assert_ne!(of("192.0.3.1"), of("192.0.2.1"));
    }
}
