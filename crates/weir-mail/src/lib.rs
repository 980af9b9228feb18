//! The mail gates: SMTP in and out, submission with the throttle, the scan, delivery, notices.

pub mod accounts;
pub mod date;
pub mod decided;
pub mod delivery;
pub mod desk;
pub mod dkim;
#[doc(hidden)]
pub mod fuzz;
pub mod gate;
mod header_field;
pub mod held;
pub mod inbound;
pub mod intake;
pub mod letter;
pub mod notices;
mod orders;
pub mod outbound;
pub mod own;
pub mod own_link;
pub mod scan;
mod shelf;
pub mod smtp;
pub mod submission;
pub mod throttle;
