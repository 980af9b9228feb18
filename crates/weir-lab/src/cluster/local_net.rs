//! The network that the machines inside a lab share: the address to which messages for all of them are sent, and on which they listen.
//!
//! In an IPv4 network that is its broadcast address. IPv6 has none: there the machines of a lab listen to a multicast group of their
//! link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use tokio::net::UdpSocket;

/// The group of all labs on a link; the scope is the link.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x7765, 0x6972);

/// A machine's place in the lab's network.
#[derive(Debug, Clone, Copy)]
pub struct LocalNet {
    pub address: IpAddr,
    /// The length of the network's prefix.
    pub prefix: u8,
    /// The lab's port.
    pub port: u16,
}

impl LocalNet {
    /// A socket for sending to all. It is bound to the machine's address, because the others know the machine by that.
    pub(crate) async fn mouth(&self) -> io::Result<UdpSocket> {
        let udp = UdpSocket::bind((self.address, 0)).await?;
        if self.address.is_ipv4() {
            udp.set_broadcast(true)?;
        }
        Ok(udp)
    }

    /// A socket that receives what is sent to all.
    pub(crate) async fn ear(&self) -> io::Result<UdpSocket> {
        match self.address {
            IpAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, self.port)).await,
            IpAddr::V6(address) => {
                let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, self.port)).await?;
                udp.join_multicast_v6(&GROUP, interface(address)?)?;
                Ok(udp)
            }
        }
    }

    /// The address for what is sent to all.
    pub(crate) fn all(&self) -> io::Result<SocketAddr> {
        Ok(match self.address {
            IpAddr::V4(address) => SocketAddr::new(broadcast(address, self.prefix).into(), self.port),
            IpAddr::V6(address) => SocketAddrV6::new(GROUP, self.port, 0, interface(address)?).into(),
        })
    }
}

/// The last address of the network.
fn broadcast(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    Ipv4Addr::from(u32::from(address) | hosts)
}

/// The number of the interface that has this address.
fn interface(address: Ipv6Addr) -> io::Result<u32> {
    let known = std::fs::read_to_string("/proc/net/if_inet6")?;
    numbered(&known, address)
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "no interface has this address"))
}

/// Finds it in lines such as `fd000000000000000000000000000003 02 40 00 80 eth0`.
fn numbered(known: &str, address: Ipv6Addr) -> Option<u32> {
    let wanted = weir_store::hex(&address.octets());
    let mut lines = known.lines().map(|line| line.split_ascii_whitespace());
    lines.find_map(|mut words| {
        let number = (words.next()? == wanted).then(|| words.next())??;
        u32::from_str_radix(number, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_all_goes_to_the_last_address_or_to_the_group_of_the_link() {
        let net = |address: &str, prefix| LocalNet { address: address.parse().unwrap(), prefix, port: 7300 };
        assert_eq!(net("10.7.0.3", 24).all().unwrap(), "10.7.0.255:7300".parse().unwrap());
        assert_eq!(net("10.7.0.3", 16).all().unwrap(), "10.7.255.255:7300".parse().unwrap());
        assert_eq!(net("10.7.0.3", 32).all().unwrap(), "10.7.0.3:7300".parse().unwrap());
        let known = "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000003 1f 40 00 80   eth0\n";
        assert_eq!(numbered(known, "fd00::3".parse().unwrap()), Some(31));
        assert_eq!(numbered(known, "fd00::4".parse().unwrap()), None);
        assert!(net("fd00::77", 64).all().is_err(), "no interface of this machine has it");
    }
}
