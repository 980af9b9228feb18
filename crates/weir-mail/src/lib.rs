//! The mail gate: submission with the throttle, inbound mail, the scan, delivery, notices. [`pipeline`] shows the way of a message.

mod absences;
pub mod accounts;
pub mod alarms;
mod brought;
pub mod clamd_door;
mod client_network;
mod counted;
pub mod decided;
pub mod delivery;
mod domains;
mod door;
#[doc(hidden)]
pub mod fuzz;
pub mod gate;
pub mod held;
pub mod inbound;
pub mod intake;
pub mod letter;
mod mail_store;
pub mod milter_door;
pub mod notices;
pub mod operations;
mod orders;
pub mod own;
pub mod own_link;
pub mod pipeline;
pub mod policy_door;
pub mod queue;
mod refusals;
mod retention;
pub mod scan;
pub mod submission;
pub mod throttle;
