//! The state of the exchange, for the console, metrics and alarms.

use super::carrier::CarrierState;
use super::peers::PeerStatus;
use crate::metrics::Page;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of the exchange.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Exchange")]
pub struct Status {
    /// What the operator should look at; empty when all is well.
    pub alarms: Vec<Alarm>,
    /// Relays and NATS servers.
    pub carriers: Vec<CarrierState>,
    pub peers: Vec<PeerStatus>,
    /// The history document in use; zero if none.
    pub history_version: u64,
    /// What has been counted since the start.
    pub counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// No relay and no NATS server can be reached: every front-end is fair only by what it knows itself.
    NoCarrier,
    /// A carrier is down while another works.
    CarrierDown,
    /// Another front-end has this one's name.
    Namesake,
    /// A front-end continues in an earlier life than one that was heard: its frames are ignored.
    EarlierLife,
    /// There are more front-ends than `peers_max`.
    Crowded,
    /// Frames arrive that were not made with this cluster's secret.
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
            Alarm::EarlierLife => {
                "frames of a front-end are ignored, because it was seen with a later start before: its clock went back, or another has its name"
            }
            Alarm::Crowded => "there are more front-ends than `peers_max` allows; some are ignored",
            Alarm::Forged => "frames come that this cluster's secret did not make; check key files",
            Alarm::HistoryDiffers => "front-ends use different history documents",
        })
    }
}

/// What has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ExchangeCounters")]
pub struct Counters {
    /// Frames sent, each once however many carriers took it.
    pub frames_sent: u64,
    /// Frames sent again because somebody missed them.
    pub frames_repeated: u64,
    /// Valid and new frames that were received.
    pub frames_heard: u64,
    /// Valid frames that had been received before.
    pub frames_known: u64,
    /// Frames that were malformed, or of another version.
    pub frames_malformed: u64,
    /// Frames that were not made with the cluster's secret.
    pub frames_forged: u64,
    /// Frames of senders that are ignored: earlier lives, the same name, too many.
    pub frames_unheard: u64,
    /// Frames that were dropped because a carrier was too slow.
    pub frames_dropped: u64,
    pub reports_sent: u64,
    pub reports_heard: u64,
    /// How often everything was sent again.
    pub snapshots: u64,
    /// Front-ends forgotten because they were silent.
    pub peers_forgotten: u64,
}

impl Status {
    /// Writes its numbers on a page of metrics.
    pub(crate) fn measure(&self, page: &mut Page) {
        let counters = [
            ("frames_sent", self.counters.frames_sent, "Frames sent"),
            ("frames_repeated", self.counters.frames_repeated, "Frames sent again because somebody missed them"),
            ("frames_heard", self.counters.frames_heard, "Frames received that were valid and new"),
            ("frames_malformed", self.counters.frames_malformed, "Frames that could not be read"),
            ("frames_forged", self.counters.frames_forged, "Frames that the cluster's secret did not make"),
            ("frames_dropped", self.counters.frames_dropped, "Frames given up because a carrier was slow"),
            ("reports_sent", self.counters.reports_sent, "Reports of sessions sent"),
            ("reports_heard", self.counters.reports_heard, "Reports of sessions received"),
            ("peers_forgotten", self.counters.peers_forgotten, "Front-ends forgotten after a silence"),
        ];
        for (name, value, help) in counters {
            page.counter(&format!("weir_web_exchange_{name}_total"), help, value);
        }
        let delay_s = self.peers.iter().map(|peer| peer.delay_ms / 1e3).fold(0.0, f64::max);
        let up = self.carriers.iter().filter(|carrier| carrier.connected).count();
        let gauges = [
            ("peers", self.peers.len() as f64, "Other front-ends that are heard"),
            ("carriers_up", up as f64, "Relays and NATS servers that are connected"),
            ("alarms", self.alarms.len() as f64, "Alarms of the exchange"),
            ("delay_seconds", delay_s, "How long frames take from the slowest front-end, by both clocks"),
            ("history_version", self.history_version as f64, "Version of the history document in use"),
        ];
        for (name, value, help) in gauges {
            page.gauge(&format!("weir_web_exchange_{name}"), help, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_a_help_a_type_and_a_value_each() {
        let mut page = Page::default();
        Status { alarms: vec![Alarm::NoCarrier], ..Status::default() }.measure(&mut page);
        let page = page.into_text();
        assert!(page.contains("\nweir_web_exchange_alarms 1\n"));
        assert_eq!(page.lines().filter(|line| line.starts_with("# TYPE")).count() * 3, page.lines().count());
    }
}
