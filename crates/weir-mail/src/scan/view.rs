//! The state of the scan for people: how the feeds are doing, and what other limits would bring.

use super::analysis::{Analysed, StoredMail};
use super::auto_tune::{Proposal, propose, shown};
use super::figures::{Counts, ServiceTimes, Spread, Timing, null_is_nan};
use super::pending::PendingView;
use super::tuning::{ARRIVALS_MIN, Basis, ClassBesideLine, Predicted};
use super::{ScanShared, Scanning};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use weir_core::feeds::{Backlog, InForce, Limits, Opening, Plan, Strategy};
use weir_core::time::Instant;
use weir_foundation::OperationError;
use weir_scan::panel::Health;

/// How the feeds are doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Feeds")]
pub struct FeedsStatus {
    /// Whether mail is scanned.
    pub enabled: bool,
    /// How a message finds its worker.
    #[schemars(extend("enum" = ["size", "size-load", "shortest"]))]
    pub strategy: String,
    /// s_1 … s_{N−1} in bytes.
    pub limits: Vec<u64>,
    /// Whether these were found by tuning.
    pub tuned: bool,
    /// Whether every worker takes every size for now, because one line without limits would wait less.
    #[serde(default)]
    pub open: bool,
    /// So many feeds, from the first on, are kept for what is small, and all other workers take every size for now; none where
    /// every feed keeps to its limit, or no feed does.
    #[serde(default)]
    pub kept_feeds: Option<usize>,
    /// What the limits saved lately, as a part of how long one line would have held mail up; none where limits do not give way, or
    /// nothing would have been held up.
    #[serde(default)]
    pub saved: Option<f64>,
    /// Whether limits follow the traffic by themselves.
    pub auto_tune: bool,
    /// Processors that the scanners share.
    pub cpus: usize,
    /// Messages that wait for a worker.
    pub waiting: usize,
    /// How long the oldest has waited, of these and of those that are tried again.
    pub oldest_s: f64,
    /// Messages under way.
    pub under_way: usize,
    /// Messages whose scan failed, and that are tried again later.
    pub retrying: usize,
    /// Whether no scanner answers.
    pub outage: Option<OutageView>,
    /// Messages a second, over the last five minutes.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub lambda_per_s: f64,
    /// What these feeds can bear; unknown until mail has come.
    pub lambda_max_per_s: Option<f64>,
    /// Seconds that a scan takes whatever the size.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub t0_s: f64,
    /// Seconds that each byte adds.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub ts_s_per_byte: f64,
    /// The same of each scanner, as far as measured; apart for feeds with scanners of their own.
    pub services: Vec<ServiceTimes>,
    /// Arrivals that predictions stand on.
    pub remembered: usize,
    /// By feed.
    pub feeds: Vec<FeedTimes>,
    /// By class of size.
    pub classes: Vec<FeedTimes>,
    /// Since the start.
    pub counts: Counts,
    /// How each scanner is.
    pub scanners: Vec<Health>,
    /// Mail that waits for the lab's verdict; none if nothing is sent there.
    pub pending: Option<PendingView>,
}

impl FeedsStatus {
    /// All mail that waits for its scan: for a worker, for a scanner that answers, or to be tried again. What is shown anywhere is this number.
    pub fn unscanned(&self) -> usize {
        self.waiting + self.retrying
    }
}

/// No scanner answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Outage")]
pub struct OutageView {
    /// For how long.
    pub for_s: f64,
    /// What the scanners say.
    pub problem: String,
}

/// One feed, or one class of size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Feed")]
pub struct FeedTimes {
    /// Its limit in bytes; none for the last.
    pub up_to: Option<u64>,
    /// Its workers; none for a class.
    pub workers: Option<usize>,
    /// Messages that wait here; for shortest first they wait by class, else by feed.
    pub waiting: Option<usize>,
    /// How long the oldest of these has waited.
    pub oldest_s: Option<f64>,
    /// Messages scanned.
    pub scanned: u64,
    /// How long recent ones waited.
    pub wait: Spread,
    /// How long their scans took.
    pub scan: Spread,
}

/// Today's limits, better ones, and what each would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tuning")]
pub struct TuneView {
    /// How a message finds its worker.
    pub strategy: String,
    /// Arrivals that were replayed.
    pub arrivals: usize,
    /// Messages a second, over the last five minutes.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub lambda_per_s: f64,
    /// Seconds that a scan takes whatever the size.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub t0_s: f64,
    /// Seconds that each byte adds.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub ts_s_per_byte: f64,
    /// The limits in force.
    pub today: Predicted,
    /// The best that were found.
    pub proposed: Predicted,
    /// The mean wait in one line without limits, with the same workers.
    #[serde(default = "not_known", deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub line_wait_s: f64,
    /// Whether these save so much that auto-tuning would take them.
    pub better: bool,
    /// Whether they are in force now.
    pub applied: bool,
}

fn not_known() -> f64 {
    f64::NAN
}

/// A strategy's name.
fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Size => "size",
        Strategy::SizeLoad => "size-load",
        Strategy::Shortest => "shortest",
    }
}

impl Scanning {
    /// How the feeds are doing.
    pub fn feeds_status(&self) -> FeedsStatus {
        self.shared.status()
    }

    /// How long quarantined mail is kept.
    pub fn keeps_for(&self) -> Duration {
        self.shared.settings.quarantine.keep_for
    }

    /// Attachments of stored mail become samples of the lab.
    pub(crate) async fn analyse(&self, mails: &[StoredMail], by: &str) -> Result<Analysed, OperationError> {
        self.shared.analyse(mails, by).await
    }

    /// What better limits would do; takes them if asked to.
    pub async fn feeds_tune(&self, apply: bool, by: &str) -> Result<TuneView, OperationError> {
        let shared = &self.shared;
        let basis = Arc::new(shared.basis());
        let Some(Proposal { today, found: proposed, line_wait_s }) = propose(Arc::clone(&basis)).await else {
            let what = format!("only {} messages have come since the start", basis.trace.len());
            return Err(OperationError::Conflict {
                what,
                hint: format!("limits can be tuned when {ARRIVALS_MIN} have; `weir feeds tune --dist` is for what-ifs"),
            });
        };
        if apply {
            let words = format!("{} instead of {}", shown(&proposed.limits), shown(&today.limits));
            shared.apply(&proposed.limits, by, &words).await?;
        }
        Ok(TuneView {
            strategy: name(basis.plan.strategy).to_owned(),
            arrivals: basis.trace.len(),
            lambda_per_s: basis.lambda_per_s,
            t0_s: basis.service.time_s(0.0),
            ts_s_per_byte: basis.service.time_s(1.0) - basis.service.time_s(0.0),
            better: Basis::is_better(&today, &proposed),
            line_wait_s,
            today,
            proposed,
            applied: apply,
        })
    }

    /// What the newest arrivals wait, and what they would have waited in one line, by class of size. Some milliseconds of work.
    pub fn beside_one_line(&self) -> Vec<ClassBesideLine> {
        self.shared.basis().beside_one_line()
    }

    /// Quarantined mail was decided: carry it out now.
    pub(crate) fn wake(&self) {
        self.shared.quarantine.wake();
    }

    /// Rules that people make were changed: they are in force when this returns.
    pub(crate) async fn adopt_rules(&self) -> Result<(), OperationError> {
        if !self.shared.settings.enabled {
            let what = "nothing is scanned here".to_owned();
            return Err(OperationError::Conflict { what, hint: "set scan.enabled, and start Weir again".to_owned() });
        }
        self.shared.adopt_rules().await.map_err(|error| OperationError::Failed(error.to_string()))
    }
}

impl ScanShared {
    fn status(&self) -> FeedsStatus {
        let basis = self.basis();
        let scanners = self.scanners();
        let pending = self.pending_view();
        let now = self.now();
        let state = self.state();
        let Plan { limits, strategy, .. } = state.dispatch.plan();
        let backlog = state.dispatch.backlog();
        let age = |at: Instant| now.since(at).as_secs_f64();
        let tried = state.parked.iter().map(|begun| begun.number).chain(state.retry.iter().map(|(_, number)| *number));
        let tried = tried.filter_map(|number| state.letters.get(&number)).map(|waiting| waiting.at);
        let oldest = backlog.iter().filter_map(|backlog| backlog.oldest).chain(tried).min();
        let service = state.figures.service();
        let by_class = *strategy == Strategy::Shortest;
        let rows = |timings: &[Timing], workers: Option<&[usize]>, backlog: Option<&[Backlog]>| {
            let row = |(at, timing): (usize, &Timing)| FeedTimes {
                up_to: limits.bytes().get(at).copied().filter(|limit| *limit < Limits::UNLIMITED),
                workers: workers.and_then(|workers| workers.get(at).copied()),
                waiting: backlog.and_then(|backlog| backlog.get(at)).map(|backlog| backlog.waiting),
                oldest_s: backlog.and_then(|backlog| backlog.get(at)?.oldest).map(age),
                scanned: timing.scanned,
                wait: timing.wait(),
                scan: timing.scan(),
            };
            timings.iter().enumerate().map(row).collect::<Vec<_>>()
        };
        FeedsStatus {
            enabled: self.settings.enabled,
            strategy: name(*strategy).to_owned(),
            limits: limits.bytes().to_vec(),
            tuned: limits != &self.settings.plan.limits,
            open: state.dispatch.in_force() == InForce::Nothing,
            kept_feeds: match state.dispatch.in_force() {
                InForce::Kept(feeds) => Some(feeds),
                InForce::Nothing | InForce::All => None,
            },
            saved: state.opening.as_ref().and_then(Opening::saved),
            auto_tune: self.settings.auto_tune,
            cpus: self.settings.cpus,
            waiting: state.dispatch.waiting() + state.parked.len(),
            oldest_s: oldest.map_or(0.0, age),
            under_way: state.running.len(),
            retrying: state.retry.len(),
            outage: state
                .outage
                .now()
                .map(|(since, problem)| OutageView { for_s: age(since), problem: problem.to_owned() }),
            lambda_per_s: basis.lambda_per_s,
            lambda_max_per_s: (!basis.trace.is_empty()).then(|| basis.lambda_max_per_s(state.dispatch.plan())),
            t0_s: service.time_s(0.0),
            ts_s_per_byte: service.time_s(1.0) - service.time_s(0.0),
            services: state.figures.services(),
            remembered: state.figures.remembered(),
            feeds: rows(&state.figures.feeds, Some(&self.settings.workers()), (!by_class).then_some(&backlog)),
            classes: rows(&state.figures.classes, None, by_class.then_some(&backlog)),
            counts: state.figures.counts,
            scanners,
            pending,
        }
    }
}
