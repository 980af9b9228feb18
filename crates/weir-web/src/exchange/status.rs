//! How the exchange stands, as a value: for the console, for metrics and for alarms.

use super::carrier::CarrierState;
use super::peers::PeerStatus;
use serde::Serialize;
use std::fmt;

/// How the exchange stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// What the operator should look at; empty when all is well.
    pub alarms: Vec<Alarm>,
    /// Relays and NATS servers.
    pub carriers: Vec<CarrierState>,
    /// The other front-ends.
    pub peers: Vec<PeerStatus>,
    /// The history document in use; zero if none.
    pub history_version: u64,
    /// What has been counted since the start.
    pub counters: Counters,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// No relay and no NATS server can be reached: every front-end is fair by itself only.
    NoCarrier,
    /// A carrier is down while another works.
    CarrierDown,
    /// Another front-end has this one's name.
    Namesake,
    /// More front-ends than `peers_max` speak.
    Crowded,
    /// Frames come that this cluster's secret did not make.
    Forged,
    /// Front-ends use different history documents.
    HistoryDiffers,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Alarm::NoCarrier => "no relay and no NATS server can be reached; each front-end is fair by itself only",
            Alarm::CarrierDown => "a relay or NATS server is down; another one carries on",
            Alarm::Namesake => "another front-end has the same name; give each its own",
            Alarm::Crowded => "more front-ends speak than `peers_max` allows; some are not heard",
            Alarm::Forged => "frames come that this cluster's secret did not make; check key files",
            Alarm::HistoryDiffers => "front-ends use different history documents",
        })
    }
}

/// What has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames sent, each once however many carriers took it.
    pub frames_sent: u64,
    /// Frames sent again because somebody missed them.
    pub frames_repeated: u64,
    /// Frames heard that were good and new.
    pub frames_heard: u64,
    /// Good frames heard before.
    pub frames_known: u64,
    /// Frames that were malformed, or of another version.
    pub frames_malformed: u64,
    /// Frames that the cluster's secret did not make.
    pub frames_forged: u64,
    /// Frames of senders that are not listened to: earlier lives, namesakes, too many.
    pub frames_unheard: u64,
    /// Frames given up because a carrier did not keep pace.
    pub frames_dropped: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Reports heard.
    pub reports_heard: u64,
    /// How often everything was told again.
    pub snapshots: u64,
    /// Front-ends forgotten after a silence.
    pub peers_forgotten: u64,
}
