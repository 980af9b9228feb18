//! Who a node is: its id and its key. Its address does not identify it; the address is only used as a tie-break between equal ranks.
//!
//! The shell authenticates: an [`Origin`] is what a verified certificate and connection say, never what
//! a message says of itself. If an id was taken from one machine and given to another, the shell lets in only streams with the key that the
//! id has now.

use core::net::IpAddr;

/// A node's registered id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u64);

/// The lowest goes first. Registered with the node, not chosen by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(pub u8);

/// The fingerprint of a node's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyId(pub [u8; 32]);

/// A node's life. The upper bits count its starts, on its disk so that they only grow; the lower bits are a random
/// number, so that a copy of the disk does not share a life with its original.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Boot(pub u64);

/// What the certificate allows a node to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// May vote, stand and lead.
    Eligible,
    /// In the lab's network; works for the leader, never stands, never aborts a candidate.
    Dispatcher,
    /// Outside the lab; learns the leader from its victory, neither votes nor leads.
    External,
}

/// Where a message comes from, as the shell has verified it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The node of the certificate.
    pub id: NodeId,
    /// The key that signed.
    pub key: KeyId,
    /// The role in the certificate.
    pub role: Role,
    /// The priority in the certificate.
    pub priority: Priority,
    /// The connection's far end, or the datagram's source.
    pub address: IpAddr,
    /// Which of the node's lives sent this.
    pub boot: Boot,
}

impl Origin {
    /// Whether both are the same process, not a clone or another life of one node.
    pub fn is_same_process(&self, other: &Origin) -> bool {
        self.id == other.id && self.key == other.key && self.boot == other.boot && self.address == other.address
    }
}
