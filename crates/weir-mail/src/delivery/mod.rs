//! Delivery (being built).

pub mod client;
pub mod ledger;
pub mod message;
pub mod outcome;
pub mod progress;
pub mod retry;
pub mod scheduler;
pub mod window;
