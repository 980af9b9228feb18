//! The state of each gate, for status, readiness, metrics and pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_core::time::Instant;

/// A part of Weir that is started, and may fail, by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GateName {
    /// Submission with the throttle, inbound mail, the scan, delivery.
    Mail,
    /// The reverse proxy.
    Web,
    /// The analysis of samples.
    Lab,
    /// The pages.
    Console,
}

impl GateName {
    /// All of them, in the order in which they are shown.
    pub const ALL: [GateName; 4] = [GateName::Mail, GateName::Web, GateName::Lab, GateName::Console];
}

impl std::str::FromStr for GateName {
    type Err = ();

    fn from_str(text: &str) -> Result<GateName, ()> {
        GateName::ALL.into_iter().find(|gate| gate.to_string() == text).ok_or(())
    }
}

impl fmt::Display for GateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateName::Mail => "mail",
            GateName::Web => "web",
            GateName::Lab => "lab",
            GateName::Console => "console",
        })
    }
}

/// How a gate stands. `Off` stays; otherwise `Starting → Up | Failed`, `Up → Failed`, `Failed → Starting`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GateState {
    /// It is not wanted.
    #[default]
    Off,
    /// It is about to be up.
    Starting,
    /// It serves.
    Up,
    /// It does not serve.
    Failed {
        /// What happened.
        why: String,
        /// When it is tried again.
        next_try: Instant,
    },
}

/// How all gates stand. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct GateStates(Arc<Mutex<BTreeMap<GateName, GateStanding>>>);

#[derive(Clone, Debug, Default)]
struct GateStanding {
    state: GateState,
    since: Instant,
    /// Whether it has been up before: then a start is a restart.
    was_up: bool,
    restarts: u64,
    last_failure: Option<String>,
    refused_settings: Option<String>,
}

/// How one gate stands, to be shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Gate")]
pub struct GateView {
    /// Which.
    pub gate: GateName,
    /// `off`, `starting`, `up` or `failed`.
    #[schemars(extend("enum" = ["off", "starting", "up", "failed"]))]
    pub state: String,
    /// Since when, in seconds of the Unix epoch.
    pub since_unix_s: u64,
    /// The last failure, also of a gate that is up again.
    pub last_failure: Option<String>,
    /// In how long a failed gate is tried again.
    pub next_try_s: Option<u64>,
    /// How often it was started again after it had been up.
    pub restarts: u64,
    /// Why it did not take the settings that are in the file now, and goes by older ones.
    #[serde(default)]
    pub refused_settings: Option<String>,
}

impl GateView {
    /// Whether it is wanted.
    pub fn is_wanted(&self) -> bool {
        self.state != "off"
    }

    /// Whether it does not serve though it should, and is not just about to.
    pub fn has_failed(&self) -> bool {
        self.state == "failed"
    }

    /// Whether it serves.
    pub fn is_up(&self) -> bool {
        self.state == "up"
    }
}

impl GateStates {
    /// The gate is being started.
    pub fn starting(&self, gate: GateName, now: Instant) {
        let mut all = self.lock();
        let standing = all.entry(gate).or_default();
        standing.restarts += u64::from(standing.was_up);
        (standing.state, standing.since) = (GateState::Starting, now);
    }

    /// The gate serves.
    pub fn up(&self, gate: GateName, now: Instant) {
        let mut all = self.lock();
        let standing = all.entry(gate).or_default();
        (standing.state, standing.since, standing.was_up) = (GateState::Up, now, true);
    }

    /// The gate does not serve, and is started again after `rest`.
    pub fn failed(&self, gate: GateName, why: &str, now: Instant, rest: Duration) {
        let mut all = self.lock();
        let standing = all.entry(gate).or_default();
        standing.last_failure = Some(why.to_owned());
        (standing.state, standing.since) = (GateState::Failed { why: why.to_owned(), next_try: now + rest }, now);
    }

    /// The gate goes by older settings than those in the file, for this reason; nothing if it goes by them.
    pub fn refused_settings(&self, gate: GateName, why: Option<String>) {
        self.lock().entry(gate).or_default().refused_settings = why;
    }

    /// How a gate stands.
    pub fn state(&self, gate: GateName) -> GateState {
        self.lock().get(&gate).map(|standing| standing.state.clone()).unwrap_or_default()
    }

    /// All of them, in their order, also those that are off.
    pub fn view(&self, now: Instant) -> Vec<GateView> {
        let all = self.lock();
        GateName::ALL.into_iter().map(|gate| view(gate, all.get(&gate).cloned().unwrap_or_default(), now)).collect()
    }

    /// Whether every wanted gate serves.
    pub fn all_up(&self) -> bool {
        self.lock().values().all(|standing| matches!(standing.state, GateState::Up | GateState::Off))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GateName, GateStanding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn view(gate: GateName, standing: GateStanding, now: Instant) -> GateView {
    let (state, next_try_s) = match &standing.state {
        GateState::Off => ("off", None),
        GateState::Starting => ("starting", None),
        GateState::Up => ("up", None),
        GateState::Failed { next_try, .. } => ("failed", Some(next_try.since(now).as_secs())),
    };
    GateView {
        gate,
        state: state.to_owned(),
        since_unix_s: standing.since.0 / 1_000_000_000,
        last_failure: standing.last_failure,
        next_try_s,
        restarts: standing.restarts,
        refused_settings: standing.refused_settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Instant {
        Instant(number * 1_000_000_000)
    }

    #[test]
    fn a_gate_fails_and_comes_back() {
        let states = GateStates::default();
        assert!(states.all_up(), "nothing is wanted");
        states.starting(GateName::Web, seconds(1));
        assert!(!states.all_up());
        states.failed(GateName::Web, "the port is in use", seconds(2), Duration::from_secs(4));
        let web = states.view(seconds(3)).swap_remove(1);
        assert_eq!((web.state.as_str(), web.next_try_s, web.restarts), ("failed", Some(3), 0));
        states.starting(GateName::Web, seconds(6));
        states.up(GateName::Web, seconds(6));
        assert!(states.all_up());
        let web = states.view(seconds(7)).swap_remove(1);
        assert_eq!((web.is_up(), web.restarts, web.last_failure.as_deref()), (true, 0, Some("the port is in use")));
    }

    #[test]
    fn restarts_are_counted_and_what_is_off_stays_off() {
        let states = GateStates::default();
        states.starting(GateName::Mail, seconds(1));
        states.up(GateName::Mail, seconds(1));
        states.failed(GateName::Mail, "a panic", seconds(2), Duration::from_secs(1));
        states.starting(GateName::Mail, seconds(3));
        let all = states.view(seconds(3));
        assert_eq!((all[0].state.as_str(), all[0].restarts), ("starting", 1));
        assert!(all[1..].iter().all(|gate| !gate.is_wanted()));
        assert_eq!(states.state(GateName::Lab), GateState::Off);
    }
}
