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

/// The state of a gate. `Off` stays; otherwise `Starting → Up | Failed`, `Up → Failed`, `Failed → Starting`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GateState {
    /// It is not switched on.
    #[default]
    Off,
    /// It is being started.
    Starting,
    /// It serves clients.
    Up,
    /// It does not serve clients.
    Failed {
        /// What went wrong.
        why: String,
        /// When it will be started again.
        next_try: Instant,
    },
}

/// The states of all gates. Cheap to clone; all clones share the same states.
#[derive(Clone, Debug, Default)]
pub struct GateStates(Arc<Mutex<BTreeMap<GateName, GateStanding>>>);

#[derive(Clone, Debug, Default)]
struct GateStanding {
    state: GateState,
    since: Instant,
    /// Whether it was up before, so that the next start counts as a restart.
    was_up: bool,
    restarts: u64,
    last_failure: Option<String>,
    refused_settings: Option<String>,
}

/// The state of one gate, to be shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Gate")]
pub struct GateView {
    /// The gate.
    pub gate: GateName,
    /// `off`, `starting`, `up` or `failed`.
    #[schemars(extend("enum" = ["off", "starting", "up", "failed"]))]
    pub state: String,
    /// When this state began, in seconds since the Unix epoch.
    pub since_unix_s: u64,
    /// The last failure; kept after the gate is up again.
    pub last_failure: Option<String>,
    /// In how many seconds a failed gate is started again.
    pub next_try_s: Option<u64>,
    /// How often it was started again after it had been up.
    pub restarts: u64,
    /// Why it refused the settings that are in the file now and keeps the older ones.
    #[serde(default)]
    pub refused_settings: Option<String>,
}

impl GateView {
    /// Whether it is switched on.
    pub fn is_wanted(&self) -> bool {
        self.state != "off"
    }

    /// Whether it failed. A gate that is being started has not failed.
    pub fn has_failed(&self) -> bool {
        self.state == "failed"
    }

    /// Whether it serves clients.
    pub fn is_up(&self) -> bool {
        self.state == "up"
    }
}

impl GateStates {
    /// Notes that the gate is being started.
    pub fn starting(&self, gate: GateName, now: Instant) {
        let mut all = self.lock();
        let standing = all.entry(gate).or_default();
        standing.restarts += u64::from(standing.was_up);
        (standing.state, standing.since) = (GateState::Starting, now);
    }

    /// Notes that the gate serves clients.
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

    /// Notes why the gate refused the settings in the file and keeps older ones; none if it uses those in the file.
    pub fn refused_settings(&self, gate: GateName, why: Option<String>) {
        self.lock().entry(gate).or_default().refused_settings = why;
    }

    /// The state of a gate.
    pub fn state(&self, gate: GateName) -> GateState {
        self.lock().get(&gate).map(|standing| standing.state.clone()).unwrap_or_default()
    }

    /// The states of all gates in their order, including those that are off.
    pub fn view(&self, now: Instant) -> Vec<GateView> {
        let all = self.lock();
        GateName::ALL.into_iter().map(|gate| view(gate, all.get(&gate).cloned().unwrap_or_default(), now)).collect()
    }

    /// Whether every gate that is switched on is up.
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
