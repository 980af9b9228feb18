//! One file a verb.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod dkim;
pub(crate) mod feeds;
pub(crate) mod fence;
pub(crate) mod held;
pub(crate) mod hitserver;
pub(crate) mod lab;
pub(crate) mod plugin;
pub(crate) mod quarantine;
pub(crate) mod queue;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod throttle_options;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod user;
pub(crate) mod web;
