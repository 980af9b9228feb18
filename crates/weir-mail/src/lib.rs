//! The mail gates: SMTP in and out, submission with the throttle, delivery, notices.

pub mod accounts;
pub mod date;
pub mod held;
pub mod letter;
pub mod notices;
pub mod outbound;
pub mod smtp;
pub mod submission;
pub mod throttle;
