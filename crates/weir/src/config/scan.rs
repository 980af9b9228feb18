//! `[scan]`: the feeds of Perry and Thomas.

use super::reader::Section;
use crate::units::{Size, Span};
use std::time::Duration;

/// How a message finds its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Shortest,
    SizeLoad,
    Size,
}

#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) limits: Vec<Size>,
    pub(crate) strategy: Strategy,
    pub(crate) age_bound: Span,
    pub(crate) last_feed_helps: bool,
}

impl Scan {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Scan {
        let sizes = Size(1)..=Size(1 << 40);
        let spans = Span(Duration::from_secs(1))..=Span(Duration::from_secs(86_400));
        Scan {
            limits: s.ascending(
                "limits",
                vec![Size(2_000), Size(10_000), Size(50_000), Size(250_000)],
                (sizes, 31),
                "The size limits of all feeds but the last, which takes what is larger",
            ),
            strategy: s.choice(
                "strategy",
                &[("shortest", Strategy::Shortest), ("size-load", Strategy::SizeLoad), ("size", Strategy::Size)],
                "How a message finds its worker",
            ),
            age_bound: s.bounded(
                "age_bound",
                Span(Duration::from_secs(60)),
                spans,
                "A message that has waited so long goes before all smaller ones",
            ),
            last_feed_helps: s.flag(
                "last_feed_helps",
                false,
                "Whether the last feed may take messages that fit a smaller one",
            ),
        }
    }
}
