//! `[web]`: the fair queue of Vandiver's thesis.

use super::reader::Section;
use crate::units::Span;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Web {
    pub(crate) slots: u32,
    pub(crate) subnet_v4: u32,
    pub(crate) subnet_v6: u32,
    pub(crate) stranger_weight: f64,
    pub(crate) floor_known: bool,
    pub(crate) debt_requests_max: u32,
    pub(crate) peer_silence: Span,
}

impl Web {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Web {
        let spans = Span(Duration::from_millis(100))..=Span(Duration::from_secs(600));
        Web {
            slots: s.bounded("slots", 16, 1..=65_536, "How many requests a backend works on at a time"),
            subnet_v4: s.bounded("subnet_v4", 24, 8..=32, "Leading bits of an IPv4 address that make its subnet"),
            subnet_v6: s.bounded("subnet_v6", 56, 16..=128, "Leading bits of an IPv6 address that make its subnet"),
            stranger_weight: s.bounded(
                "stranger_weight",
                1.0,
                0.001..=1000.0,
                "The history of a subnet that has none, in averages of all subnets",
            ),
            floor_known: s.flag(
                "floor_known",
                true,
                "Whether a subnet with little history still weighs as much as the average",
            ),
            debt_requests_max: s.bounded(
                "debt_requests_max",
                10,
                1..=10_000,
                "Service received elsewhere is held against a session up to so many average requests",
            ),
            peer_silence: s.bounded(
                "peer_silence",
                Span(Duration::from_secs(2)),
                spans,
                "A front-end that has been silent for so long is forgotten",
            ),
        }
    }
}
