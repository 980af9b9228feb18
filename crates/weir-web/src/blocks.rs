//! Networks that a person has blocked for a while (`weir web block`).
//!
//! They are in memory: a restart forgets them, and `web.denied_networks` is for those that should stay. There are at most [`BLOCKS_MAX`],
//! and none is so large that it would shut out a good part of the internet. While there are none, a request only has to check a flag.

use crate::identity::Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For more networks than this, a list of networks (`denied`) is the right place.
pub const BLOCKS_MAX: usize = 256;
/// The shortest prefixes that may be blocked.
const SHORTEST_V4: u8 = 8;
const SHORTEST_V6: u8 = 16;

/// The networks.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Whether any network may be blocked; read without the lock.
    any: AtomicBool,
    list: RwLock<Vec<Block>>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    network: Network,
    until: SystemTime,
}

/// One network, to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebBlock")]
pub struct BlockView {
    /// The network.
    pub network: String,
    /// For how many seconds it is still refused.
    pub left_s: u64,
    /// When it is served again, in seconds since the Unix epoch.
    pub until_unix_s: u64,
}

/// Why a network is not blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    #[error("{0} is too large to be blocked: a prefix has at least 8 bits for IPv4, and 16 for IPv6")]
    TooLarge(Network),
    #[error("{BLOCKS_MAX} networks are blocked already")]
    Full,
}

impl Blocks {
    /// Refuses a network for `length` from `now` on. One that is blocked already gets the new time.
    pub fn add(&self, network: Network, length: Duration, now: SystemTime) -> Result<(), BlockError> {
        let shortest = if network.first().is_ipv4() { SHORTEST_V4 } else { SHORTEST_V6 };
        if network.prefix_bits() < shortest {
            return Err(BlockError::TooLarge(network));
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|block| block.until > now && block.network != network);
        if list.len() >= BLOCKS_MAX {
            return Err(BlockError::Full);
        }
        list.push(Block { network, until: now.checked_add(length).unwrap_or(now) });
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Serves a network again; returns whether it was blocked.
    pub fn lift(&self, network: Network, now: SystemTime) -> bool {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let known = list.iter().any(|block| block.network == network && block.until > now);
        list.retain(|block| block.until > now && block.network != network);
        self.any.store(!list.is_empty(), Ordering::Release);
        known
    }

    /// Whether this client is refused.
    pub fn refuse(&self, client: IpAddr, now: SystemTime) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|block| block.until > now && block.network.contains(client))
    }

    /// The networks that are blocked; the one whose block ends last comes first.
    pub fn view(&self, now: SystemTime) -> Vec<BlockView> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut view: Vec<BlockView> = list.iter().filter_map(|block| block.view(now)).collect();
        view.sort_by(|a, b| (b.until_unix_s, &a.network).cmp(&(a.until_unix_s, &b.network)));
        view
    }
}

impl Block {
    fn view(&self, now: SystemTime) -> Option<BlockView> {
        let left = self.until.duration_since(now).ok().filter(|left| !left.is_zero())?;
        let until = self.until.duration_since(UNIX_EPOCH).ok()?;
        Some(BlockView { network: self.network.to_string(), left_s: left.as_secs(), until_unix_s: until.as_secs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn net(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_is_refused_until_its_time_or_until_it_is_lifted() {
        let (blocks, now) = (Blocks::default(), UNIX_EPOCH + HOUR);
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        assert!(!blocks.refuse(client, now));
        blocks.add(net("192.0.2.0/24"), HOUR, now).unwrap();
        assert!(blocks.refuse(client, now) && blocks.refuse("::ffff:192.0.2.8".parse().unwrap(), now));
        assert!(!blocks.refuse("192.0.3.1".parse().unwrap(), now) && !blocks.refuse(client, now + HOUR));
        assert_eq!(blocks.view(now)[0], BlockView { network: "192.0.2.0/24".into(), left_s: 3600, until_unix_s: 7200 });
        assert!(blocks.view(now + HOUR).is_empty());
        assert!(blocks.lift(net("192.0.2.0/24"), now) && !blocks.refuse(client, now));
        assert!(!blocks.lift(net("192.0.2.0/24"), now));
    }

    #[test]
    fn nobody_blocks_half_of_the_internet_or_fills_the_table() {
        let (blocks, now) = (Blocks::default(), UNIX_EPOCH);
        for large in ["0.0.0.0/0", "10.0.0.0/7", "::/0", "2000::/3"] {
            assert!(matches!(blocks.add(net(large), HOUR, now), Err(BlockError::TooLarge(_))), "{large}");
        }
        for number in 0..BLOCKS_MAX {
            blocks.add(Network::new(std::net::Ipv4Addr::from_bits(number as u32).into(), 32), HOUR, now).unwrap();
        }
        assert_eq!(blocks.add(net("192.0.2.1"), HOUR, now), Err(BlockError::Full));
        blocks.add(net("0.0.0.1"), 2 * HOUR, now).expect("it has a place already");
        blocks.add(net("192.0.2.1"), HOUR, now + HOUR).expect("those whose time is over make room");
        assert_eq!(blocks.view(now + HOUR).len(), 2);
    }
}
