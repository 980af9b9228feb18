//! Finds lists of networks that were meant to name a few networks but include everybody.
//!
//! A network on such a list may say who somebody else is, or is served before others. A list that includes the whole world grants that to
//! everybody, which is never intended: such a configuration looks complete but protects nothing.

use std::net::{IpAddr, Ipv4Addr};

use super::network::Network;

/// Whether a list of known machines covers the whole world: it has a network that is larger than any private one (10.0.0.0/8 is the largest
/// of these), or many networks that together are more than a quarter of all IPv4 addresses.
pub fn names_everybody(networks: &[Network]) -> bool {
    networks.iter().any(is_wide) || ipv4_addresses(networks) > 1 << 30
}

/// Whether a list holds every IPv4 address.
pub fn holds_all_ipv4(networks: &[Network]) -> bool {
    ipv4_addresses(networks) == 1 << 32
}

fn is_wide(network: &Network) -> bool {
    match network.first() {
        _ if has_ipv4_inside(network) => true,
        IpAddr::V4(_) => network.prefix_bits() < 8,
        // fc00::/7 is the range for private networks in IPv6.
        IpAddr::V6(first) => network.prefix_bits() < 16 && !(network.prefix_bits() >= 7 && first.is_unique_local()),
    }
}

/// Whether it contains all of IPv4, which an IPv6 network can do as ::ffff:0:0/96.
fn has_ipv4_inside(network: &Network) -> bool {
    [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST].into_iter().all(|end| network.contains(end.into()))
}

/// How many IPv4 addresses these networks cover together.
fn ipv4_addresses(networks: &[Network]) -> u64 {
    let mut ranges: Vec<(u64, u64)> = networks.iter().filter_map(ipv4_range).collect();
    ranges.sort_unstable();
    let (mut counted, mut behind) = (0, 0);
    for (first, end) in ranges {
        counted += end.saturating_sub(first.max(behind));
        behind = behind.max(end);
    }
    counted
}

fn ipv4_range(network: &Network) -> Option<(u64, u64)> {
    if has_ipv4_inside(network) {
        return Some((0, 1 << 32));
    }
    let IpAddr::V4(first) = network.first() else { return None };
    let first = u64::from(first.to_bits());
    Some((first, first + (1 << (32 - network.prefix_bits()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn lists_of_the_world_are_told_from_those_of_a_house() {
        for world in [
            &["0.0.0.0/0"][..],
            &["0.0.0.0/1", "128.0.0.0/1"],
            &["64.0.0.0/7"],
            &["::/0"],
            &["::ffff:0:0/96"],
            &["::ffc0:0:0/90"],
            &["2000::/3"],
            &["::/1", "8000::/1"],
        ] {
            assert!(names_everybody(&networks(world)), "{world:?}");
        }
        for house in [
            &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8"][..],
            &["fc00::/7", "2001:db8::/32", "::1"],
            &["173.245.48.0/20", "104.16.0.0/13", "2400:cb00::/32"],
            &["10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/9"],
            &[],
        ] {
            assert!(!names_everybody(&networks(house)), "{house:?}");
        }
        let slices: Vec<Network> = (0..256).map(|n| format!("{n}.0.0.0/8").parse().unwrap()).collect();
        assert!(names_everybody(&slices) && holds_all_ipv4(&slices), "piece by piece");
        assert!(!holds_all_ipv4(&slices[1..]) && names_everybody(&slices[1..]));
        assert!(holds_all_ipv4(&networks(&["::/0"])) && !holds_all_ipv4(&networks(&["2000::/3"])));
    }
}
