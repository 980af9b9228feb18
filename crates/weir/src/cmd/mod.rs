//! One file a verb.

pub(crate) mod feeds;
pub(crate) mod replay;
pub(crate) mod sim;
