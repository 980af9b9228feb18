//! One look at all gates: what the overview, the charts and the metrics are drawn from.

use crate::gates::Gates;
use std::time::Instant;
use weir_foundation::clock::wall_clock;
use weir_lab::operations::LabStatus;
use weir_mail::operations::{BusyView, MailStatus, QuarantineTotal};
use weir_mail::scan::FeedsStatus;
use weir_web::admission::SessionView;

/// Users that an overview names.
const BUSY: i64 = 20;
/// Sessions whose shares are followed: those that ask for most.
pub(crate) const SESSIONS: usize = 100;
/// Sessions that are counted.
const COUNTED: usize = 100_000;

/// All gates at one moment. What could not be read is missing, and said in `problems`.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// When the look began.
    pub(crate) begun: Instant,
    pub(crate) status: Option<MailStatus>,
    pub(crate) busy: Vec<BusyView>,
    pub(crate) quarantine: Vec<QuarantineTotal>,
    pub(crate) feeds: Option<FeedsStatus>,
    pub(crate) web: Option<weir_web::view::Status>,
    /// The sessions that ask for most.
    pub(crate) sessions: Vec<SessionView>,
    /// How many ask for anything.
    pub(crate) asking: usize,
    pub(crate) lab: Option<LabStatus>,
    /// What went wrong while looking.
    pub(crate) problems: Vec<String>,
}

impl Pulse {
    pub(crate) async fn take(gates: &Gates) -> Pulse {
        let begun = Instant::now();
        let mut problems = Vec::new();
        let mut note = |gate: &str, problem: String| problems.push(format!("{gate}: {problem}"));
        for failed in gates.states.view(wall_clock()).into_iter().filter(|gate| gate.has_failed()) {
            let why = failed.last_failure.unwrap_or_default();
            note(&failed.gate.to_string(), format!("the gate is {}: {why}", failed.state));
        }
        let status = gates.mail.status.show().await.map_err(|error| note("mail", error.to_string())).ok();
        let busy = gates.mail.throttles.busy(BUSY).await.map_err(|error| note("throttle", error.to_string()));
        let quarantine = gates.mail.quarantine.totals().await.map_err(|error| note("quarantine", error.to_string()));
        let lab = match &gates.lab {
            Some(node) => node.status().await.map_err(|error| note("lab", error.to_string())).ok(),
            None => None,
        };
        let mut sessions = gates.web.as_ref().map(|gate| gate.sessions(COUNTED)).unwrap_or_default();
        let asking = sessions.len();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.waiting + session.running));
        sessions.truncate(SESSIONS);
        Pulse {
            begun,
            status,
            busy: busy.unwrap_or_default(),
            quarantine: quarantine.unwrap_or_default(),
            feeds: gates.mail.feeds.status().ok().filter(|feeds| feeds.enabled),
            web: gates.web.as_ref().map(|gate| gate.status()),
            sessions,
            asking,
            lab,
            problems,
        }
    }

    /// Users whom the throttle or a person has stopped.
    pub(crate) fn stopped(&self) -> impl Iterator<Item = &BusyView> {
        self.busy.iter().filter(|busy| busy.throttle.state == "stopped")
    }

    /// Messages in a quarantine, or in all of them.
    pub(crate) fn quarantined(&self, queue: &str) -> i64 {
        let wanted = |total: &&QuarantineTotal| queue.is_empty() || total.queue == queue;
        self.quarantine.iter().filter(wanted).map(|total| total.messages).sum()
    }

    /// Requests that wait for a web server.
    pub(crate) fn web_waiting(&self) -> usize {
        self.web.iter().flat_map(|web| &web.backends).map(|backend| backend.queue.waiting).sum()
    }

    /// Samples in a state.
    pub(crate) fn samples(&self, state: &str) -> i64 {
        let states = self.lab.iter().flat_map(|lab| &lab.states);
        states.filter(|count| count.state == state).map(|count| count.samples).sum()
    }

    /// Samples that have not ended.
    pub(crate) fn samples_open(&self) -> i64 {
        match self.lab.as_ref().and_then(|lab| lab.open) {
            Some(open) => open as i64,
            None => self.samples("queued") + self.samples("running"),
        }
    }

    /// A look that saw nothing.
    #[cfg(test)]
    pub(crate) fn blind() -> Pulse {
        Pulse {
            begun: Instant::now(),
            status: None,
            busy: Vec::new(),
            quarantine: Vec::new(),
            feeds: None,
            web: None,
            sessions: Vec::new(),
            asking: 0,
            lab: None,
            problems: Vec::new(),
        }
    }
}
