//! The mail gates: SMTP in and out, submission with the throttle, delivery, notices.

pub mod accounts;
pub mod date;
pub mod delivery;
pub mod dkim;
pub mod smtp;
pub mod throttle;
