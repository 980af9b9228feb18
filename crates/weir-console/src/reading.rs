//! [`Reading`]: the figures of all gates at one look, for charts.

use crate::pulse::Pulse;
use weir_mail::operations::Vital;
use weir_web::view::Status;

/// Counters only grow; gauges are values at the moment of the look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) held: f64,
    /// The longest delay queue of one account.
    pub(crate) held_most: f64,
    pub(crate) mails: f64,
    pub(crate) scanned: f64,
    pub(crate) scan_waiting: f64,
    /// Mails that the scan kept back.
    pub(crate) kept: f64,
    pub(crate) served: f64,
    pub(crate) refused: f64,
    pub(crate) web_waiting: f64,
    /// Slot time of the web servers in seconds: of visitors who are known, of newcomers, of strangers.
    pub(crate) slots_known: f64,
    pub(crate) slots_new: f64,
    pub(crate) slots_strange: f64,
    /// The fair share of known visitors, and that of known visitors and newcomers together, each summed over the looks at which there was
    /// any demand; and the number of those looks.
    pub(crate) fair_known: f64,
    pub(crate) fair_new: f64,
    pub(crate) fair_looks: f64,
    pub(crate) samples_open: f64,
    /// It falls when old samples are pruned.
    pub(crate) samples_done: f64,
}

impl Reading {
    /// The figures of a look. Figures that could not be read keep their former values: if a database does not answer for a moment, it has not
    /// lost its mail.
    pub(crate) fn of(pulse: &Pulse, before: Reading) -> Reading {
        let mut reading = before;
        if let Some(status) = &pulse.status {
            reading.held = status.totals.held_recipients as f64;
            reading.held_most = pulse.busy.iter().map(|busy| busy.throttle.held).max().unwrap_or(0) as f64;
            reading.mails = status.gate.as_ref().map_or(before.mails, |gate| messages(gate) as f64);
        }
        if let Some(feeds) = &pulse.feeds {
            reading.scanned = (feeds.counts.passed + feeds.counts.quarantined) as f64;
            reading.kept = feeds.counts.quarantined as f64;
            reading.scan_waiting = feeds.unscanned() as f64;
        }
        if let Some(web) = &pulse.web {
            let counters = || web.backends.iter().map(|backend| &backend.queue.counters);
            reading.served = counters().map(|counters| counters.dispatched).sum::<u64>() as f64;
            reading.refused = counters().flat_map(|counters| &counters.refused).sum::<u64>() as f64;
            reading.web_waiting = pulse.web_waiting() as f64;
            let slots = |of: usize| counters().map(|counters| counters.service_by_standing_s[of]).sum();
            (reading.slots_known, reading.slots_new, reading.slots_strange) = (slots(0), slots(1), slots(2));
            let [known, new, strange] = fair(web);
            if known + new + strange > 0.0 {
                reading.fair_known += known;
                reading.fair_new += known + new;
                reading.fair_looks += 1.0;
            }
        }
        if pulse.lab.is_some() {
            reading.samples_open = pulse.samples_open() as f64;
            reading.samples_done = pulse.samples("done") as f64;
        }
        reading
    }
}

/// The fair share of known visitors, newcomers and strangers, averaged by slots over all backends with any demand.
fn fair(web: &Status) -> [f64; 3] {
    let asked = || {
        web.backends
            .iter()
            .map(|backend| &backend.queue)
            .filter(|queue| queue.fair_by_standing.iter().any(|part| *part > 0.0))
    };
    let slots: f64 = asked().map(|queue| queue.slots as f64).sum();
    let part =
        |of: usize| asked().map(|queue| queue.slots as f64 * queue.fair_by_standing[of]).sum::<f64>() / slots.max(1.0);
    [part(0), part(1), part(2)]
}

/// Messages that both servers have accepted.
fn messages(gate: &Vital) -> u64 {
    let servers = std::iter::once(&gate.counters).chain(&gate.inbound);
    servers.filter_map(|counters| counters.get("messages")).sum()
}
