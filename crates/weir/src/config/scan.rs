//! `[scan]`: whether mail is scanned, the feeds of Perry and Thomas, and what happens when scanners fail.

use super::calls::Calls;
use std::time::Duration;
use weir_core::feeds::{Dispatch, Limits, Plan, Strategy};
use weir_mail::scan::{OnLimit, OnSpam};
use weir_settings::Section;
use weir_settings::units::{Size, Span};

/// Mail scanning.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) enabled: bool,
    pub(crate) plan: Plan,
    pub(crate) workers: Vec<u32>,
    /// 0 for those of this machine.
    pub(crate) cores: u32,
    pub(crate) attempts: u32,
    pub(crate) retry_for: Duration,
    pub(crate) on_spam: OnSpam,
    pub(crate) on_limit: OnLimit,
    pub(crate) headers: bool,
    pub(crate) auto_tune: bool,
    pub(crate) tune_every: Duration,
}

pub(super) fn read(s: &mut Section<'_, '_>) -> Scan {
    let span = |secs: u64| Span(Duration::from_secs(secs));
    let enabled =
        s.flag("enabled", false, "Whether mail is scanned on its way out and in; if no scanner answers, it waits");
    let plan = plan(s);
    let workers: Vec<u32> = s.list(
        "feed_workers",
        Vec::new(),
        ("numbers", 32),
        "Workers of the first feed, the second, and so on; one for each that is not named",
    );
    if workers.iter().any(|count| *count == 0 || *count as usize > Dispatch::WORKERS_MAX) {
        s.blame("feed_workers", "every feed needs 1 to 1024 workers".into(), "for example feed_workers = [1, 1, 2]");
    }
    Scan {
        enabled,
        plan,
        workers,
        cores: s.bounded(
            "cores",
            0,
            0..=4096,
            "Processors that the scanners share, for predictions; 0 for this machine's",
        ),
        attempts: s.bounded(
            "attempts",
            5,
            1..=100,
            "Attempts after which a message that cannot be scanned is quarantined, while others can be",
        ),
        retry_for: s
            .bounded(
                "retry_for",
                span(4 * 3600),
                span(60)..=span(30 * 86_400),
                "How long mail waits for scanners that fail for everybody, before it is quarantined",
            )
            .0,
        on_spam: s.choice(
            "on_spam",
            &[("quarantine", OnSpam::Quarantine), ("tag", OnSpam::Tag)],
            "What becomes of spam: kept, or sent on with a header",
        ),
        on_limit: s.choice(
            "on_limit",
            &[("quarantine", OnLimit::Quarantine), ("pass", OnLimit::Pass)],
            "What becomes of mail too large or too deep to scan: kept, or sent on with a header that says so",
        ),
        headers: s.flag("headers", true, "Whether X-Weir-Scan tells the result in the header of what passes"),
        auto_tune: s.flag("auto_tune", true, "Whether the limits follow the traffic by themselves"),
        tune_every: s
            .bounded("tune_every", span(600), span(10)..=span(7 * 86_400), "How often better limits are looked for")
            .0,
    }
}

fn plan(s: &mut Section<'_, '_>) -> Plan {
    let size = |bytes: &u64| Size(*bytes);
    let default = [2_000, 10_000, 50_000, 250_000_u64];
    let spans = Span(Duration::from_secs(1))..=Span(Duration::from_secs(86_400));
    let strategies = [("shortest", Strategy::Shortest), ("size-load", Strategy::SizeLoad), ("size", Strategy::Size)];
    let about_limits =
        "The size limits of all feeds but the last, which takes what is larger; tuning may find better ones";
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
