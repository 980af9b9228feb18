//! What all gates share.
//!
//! The gates (mail, web, lab) use this crate; this crate depends on none of them. It holds the data folder with its records
//! ([`Foundation`]), the console's accounts and API tokens, the audit trail, backups, password hashing, the transport of webhooks,
//! listening sockets, the supervision of tasks, the clock and random numbers. Nothing here depends on which gates are switched on.

mod actor;
pub mod administration;
pub mod api_tokens;
pub mod audit;
pub mod backup;
pub mod clock;
pub mod console_accounts;
pub mod date;
pub mod directory;
mod foundation;
pub mod fuzz;
pub mod identity_provider;
pub mod login_queue;
pub mod names;
mod operation;
pub mod passwords;
pub mod random;
mod role;
mod role_rule;
pub mod second_factor;
pub mod secret;
mod site_list;
pub mod sockets;
mod store_settings;
pub mod supervision;
mod totp;
#[cfg(test)]
mod two_relays_tests;
pub mod upkeep;
pub mod webhook;

pub use actor::Actor;
pub use foundation::{Foundation, FoundationError};
pub use operation::{OperationError, OperationFuture};
pub use store_settings::{StoreSettings, postgres_url};
