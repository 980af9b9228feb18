//! `[scan]`: the feeds of Perry and Thomas.

use super::reader::Section;
use crate::units::{Size, Span};
use std::time::Duration;
use weir_core::feeds::{Limits, Plan, Strategy};

pub(super) fn read(s: &mut Section<'_, '_>) -> Plan {
    let size = |bytes: &u64| Size(*bytes);
    let default = [2_000, 10_000, 50_000, 250_000_u64];
    let spans = Span(Duration::from_secs(1))..=Span(Duration::from_secs(86_400));
    let strategies = [("shortest", Strategy::Shortest), ("size-load", Strategy::SizeLoad), ("size", Strategy::Size)];
    let about_limits = "The size limits of all feeds but the last, which takes what is larger";
    let about_age = "A message that has waited so long goes before all smaller ones";
    let about_helps = "Whether the last feed may take messages that fit a smaller one";
    let bounds = (Size(1)..=Size(1 << 40), 31);
    let limits = s.ascending("limits", default.iter().map(size).collect(), bounds, about_limits);
    let limits = Limits::new(limits.iter().map(|Size(bytes)| *bytes).collect());
    Plan {
        limits: limits.unwrap_or_else(|error| unreachable!("`ascending` let through what is not: {error}")),
        strategy: s.choice("strategy", &strategies, "How a message finds its worker"),
        age_bound: s.bounded("age_bound", Span(Plan::AGE_BOUND), spans, about_age).0,
        last_feed_helps: s.flag("last_feed_helps", false, about_helps),
    }
}
