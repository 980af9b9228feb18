//! The report of a run: what the throttle did to each user.

use serde::Serialize;
use std::collections::BTreeMap;

/// What the throttle did, by user.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ThrottleReport {
    /// By user.
    pub users: BTreeMap<String, UserReport>,
}

/// What the throttle did to one user. Copies are counted by recipient, delays by mail: a mail is delayed if
/// any of its recipients had to wait, and as long as the one that waited longest. Means of nothing are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct UserReport {
    /// Mails accepted.
    pub mails: u64,
    /// Recipients of these.
    pub recipients: u64,
    /// Recipients whose copy went at once.
    pub sent_at_once: u64,
    /// Recipients whose copy waited and went.
    pub released: u64,
    /// Recipients whose copy still waits at the end, because the user is stopped.
    pub held: u64,
    /// Recipients whose copy went: at once or later.
    pub passed: u64,
    /// Mails refused after a stop.
    pub refused: u64,
    /// Of the accepted mails, how many were delayed.
    pub delayed_percent: f64,
    /// Mean delay of the mails that went to all their recipients.
    pub mean_delay_s: f64,
    /// The same over the delayed ones alone.
    pub mean_delay_of_delayed_s: f64,
    /// How often the user was stopped.
    pub stops: u64,
    /// When the user was stopped first, in the time of the trace.
    pub stopped_at_s: Option<f64>,
}
