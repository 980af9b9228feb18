//! The mail gates: SMTP in and out, submission with the throttle, delivery, notices.

pub mod accounts;
pub mod date;
pub mod decided;
pub mod delivery;
pub mod desk;
pub mod dkim;
#[doc(hidden)]
pub mod fuzz;
pub mod gate;
pub mod held;
pub mod letter;
pub mod notices;
pub mod outbound;
pub mod own;
pub mod smtp;
pub mod submission;
pub mod throttle;
