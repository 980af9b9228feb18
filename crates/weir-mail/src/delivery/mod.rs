//! Delivery (being built).

pub mod client;
pub mod dsn;
pub mod failure_cache;
pub mod ledger;
pub mod maildir;
pub mod message;
pub mod names;
pub mod outcome;
pub mod progress;
pub mod queue;
pub mod resolver;
pub mod retry;
pub mod route;
pub mod scheduler;
pub mod slots;
pub mod window;
