//! One file a verb.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod feeds;
pub(crate) mod replay;
pub(crate) mod sim;
