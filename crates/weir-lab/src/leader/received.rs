//! A message from a dispatcher, as its session received it.

use crate::dispatcher::Envelope;
use tokio::sync::OwnedSemaphorePermit;

/// A message of a dispatcher, and its share of the memory for reports, if it came over the network.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub envelope: Envelope,
    /// Given back when the report is stored.
    pub share: Option<OwnedSemaphorePermit>,
}
