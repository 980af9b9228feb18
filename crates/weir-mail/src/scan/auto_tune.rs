//! Adjusts the size limits to the traffic automatically, with hysteresis: a better set must be found twice in a row, on new mail, before it
//! is used. If it is better beyond doubt, it is used at once: then the traffic has changed, and mail piles up.

use super::ScanShared;
use super::stored_limits::store_limits;
use super::tuning::{ARRIVALS_MIN, Basis, Predicted};
use std::sync::Arc;
use weir_core::feeds::Limits;
use weir_store::records::{AuditLine, RecordsError};

/// A set that waits at most so much of what today's does is taken at once.
const BEYOND_DOUBT: f64 = 0.2;

/// Looks for better limits again and again, until the task is dropped.
pub(super) async fn run(shared: Arc<ScanShared>) {
    if !shared.settings.auto_tune || !shared.settings.enabled {
        return;
    }
    let (mut looked_at, mut found_before) = (0, false);
    loop {
        tokio::time::sleep(shared.settings.tune_every).await;
        let arrived = shared.state().figures.counts.arrived;
        if arrived < looked_at + ARRIVALS_MIN as u64 {
            continue;
        }
        looked_at = arrived;
        let basis = shared.basis();
        let Some(Proposal { today, found, .. }) = propose(Arc::new(basis)).await else { continue };
        let better = Basis::is_better(&today, &found);
        let beyond_doubt = found.mean_wait_s < BEYOND_DOUBT * today.mean_wait_s;
        if better && (found_before || beyond_doubt) {
            let _ = shared.apply(&found.limits, "weir (auto_tune)", &words(&today, &found)).await;
        }
        found_before = better && !found_before && !beyond_doubt;
    }
}

fn words(today: &Predicted, found: &Predicted) -> String {
    let (limits, found_s, today_s) = (shown(&found.limits), found.mean_wait_s, today.mean_wait_s);
    format!("{limits}: predicted mean wait {found_s:.4} s instead of {today_s:.4} s")
}

/// Limits as people read them.
pub(super) fn shown(limits: &[u64]) -> String {
    Limits::new(limits.to_vec()).map(|limits| limits.to_string()).unwrap_or_default()
}

/// What today's limits do, and what the best ones found would; and one line without any.
pub(super) struct Proposal {
    pub(super) today: Predicted,
    pub(super) found: Predicted,
    pub(super) line_wait_s: f64,
}

/// Looks for better limits; nothing while too little is known.
pub(super) async fn propose(basis: Arc<Basis>) -> Option<Proposal> {
    if !basis.is_enough() {
        return None;
    }
    let search = move || Proposal {
        today: basis.predict(&basis.plan.limits),
        found: basis.predict(&basis.search()),
        line_wait_s: basis.line_wait_s(),
    };
    tokio::task::spawn_blocking(search).await.ok()
}

impl ScanShared {
    /// What a prediction stands on now.
    pub(super) fn basis(&self) -> Basis {
        let state = self.state();
        Basis {
            trace: state.figures.trace(),
            service: state.figures.service(),
            services: (0..state.dispatch.plan().limits.feeds()).map(|feed| state.figures.service_of(feed)).collect(),
            plan: state.dispatch.plan().clone(),
            machine: self.settings.machine(),
            mixes: state.figures.mixes(),
            weights: self.settings.weights.clone(),
            lambda_per_s: state.figures.lambda_per_s(self.now()),
        }
    }

    /// Takes limits for the feeds, now and after a restart.
    pub(super) async fn apply(self: &Arc<Self>, bytes: &[u64], by: &str, words: &str) -> Result<(), RecordsError> {
        let Ok(limits) = Limits::new(bytes.to_vec()) else { return Ok(()) };
        {
            let now = self.now();
            let mut state = self.state();
            if let Some(opening) = &mut state.opening {
                opening.retune(&limits, now);
            }
            let started = state.dispatch.retune(limits, now).unwrap_or_default();
            state.figures.limits_changed(now);
            started.into_iter().for_each(|begun| self.begin(&mut state, begun.into()));
            self.weigh_limits(&mut state, now);
        }
        tracing::info!(limits = shown(bytes), by, "the feeds have new limits");
        let configured = self.settings.plan.limits.bytes();
        store_limits(&self.site, bytes, configured).await?;
        let (actor, detail) = (by.to_owned(), words.to_owned());
        let (action, subject) = ("feeds.tune".to_owned(), self.site.relay.clone());
        let line = AuditLine { at: weir_foundation::clock::wall_clock().0 as i64, actor, action, subject, detail };
        self.site.records.audit().write(&line).await
    }
}
