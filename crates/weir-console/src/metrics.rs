//! The pages for programs: `/healthz`, `/readyz`, and the figures of all gates for Prometheus. No figure names a user.

use crate::api::whole::CertificateView;
use crate::pulse::Pulse;
use crate::site::Site;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::{Display, Write as _};
use weir_foundation::clock::wall_clock;
use weir_foundation::supervision::{self, GateView};
use weir_lab::operations::LabStatus;
use weir_tls::CertificateState;

/// The answer of a process that runs.
pub(crate) async fn alive() -> &'static str {
    "alive\n"
}

/// Whether the records answer and every gate that should run serves, with a line for each gate. Asking often costs nothing, because all pages share one look.
pub(crate) async fn ready(State(site): State<Site>) -> Response {
    let pulse = site.fresh_pulse().await;
    let gates: Vec<GateView> = site.states.view(wall_clock()).into_iter().filter(GateView::is_wanted).collect();
    let up = gates.iter().all(GateView::is_up);
    let (status, mut words) = match &pulse.status {
        None => (StatusCode::SERVICE_UNAVAILABLE, {
            let problems = pulse.problems.iter().map(|(part, problem)| format!("{part}: {problem}"));
            format!("not ready: {}\n", problems.collect::<Vec<_>>().join("; "))
        }),
        Some(_) if !up => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
        Some(status) if gates.is_empty() && !status.running => {
            (StatusCode::SERVICE_UNAVAILABLE, "not running\n".to_owned())
        }
        Some(_) => (StatusCode::OK, "ready\n".to_owned()),
    };
    for gate in &gates {
        let why = gate.last_failure.as_deref().filter(|_| !gate.is_up()).unwrap_or_default();
        let _ = writeln!(words, "{}", format!("{}: {} {}", gate.gate, gate.state, why.replace('\n', " ")).trim_end());
    }
    (status, words).into_response()
}

pub(crate) async fn page(State(site): State<Site>) -> Response {
    let pulse = site.fresh_pulse().await;
    let mut text = text(&pulse, &site.states.view(wall_clock()));
    text.push_str(&certificates(site.certificates.states()));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn text(pulse: &Pulse, gates: &[GateView]) -> String {
    let mut page = Figures::default();
    page.gates(gates);
    page.upkeep(pulse);
    if let Some(status) = &pulse.status {
        let totals = status.totals;
        page.gauge("weir_throttle_users", "Users", totals.users);
        page.gauge("weir_throttle_users_locked", "Users locked by a person", totals.locked);
        page.gauge("weir_throttle_users_stopped", "Users stopped by the throttle", totals.stopped);
        page.gauge("weir_throttle_held_recipients", "Recipients in delay queues", totals.held_recipients);
        page.gauge("weir_throttle_held_messages", "Messages that these belong to", totals.held_messages);
        page.gauge("weir_mail_spool_messages", "Messages in transit", status.spool.messages);
        page.gauge("weir_mail_spool_bytes", "Bytes of the spool on the disk", status.spool.disk_bytes);
        if let Some(gate) = &status.gate {
            page.gauge("weir_mail_sessions", "SMTP sessions open now", gate.sessions);
            page.counters("weir_submission", "The submission server", gate.counters.iter());
            page.counters("weir_inbound", "The server for mail from outside", gate.inbound.iter().flatten());
        }
    }
    if let Some(feeds) = &pulse.feeds {
        page.gauge("weir_scan_waiting_messages", "Messages that wait for a worker", feeds.waiting);
        page.gauge("weir_scan_oldest_wait_seconds", "How long the oldest of these has waited", feeds.oldest_s);
        page.gauge("weir_scan_under_way_messages", "Messages under way", feeds.under_way);
        page.gauge("weir_scan_retrying_messages", "Messages whose scan failed and is tried again", feeds.retrying);
        page.gauge("weir_scan_outage", "Whether no scanner answers", u8::from(feeds.outage.is_some()));
        if let Some(pending) = &feeds.pending {
            page.gauge("weir_scan_pending_messages", "Messages that wait for the lab's verdict", pending.messages);
        }
        page.counter("weir_scan_arrived_total", "Messages that came in", feeds.counts.arrived);
        page.counter("weir_scan_passed_total", "Messages that went on", feeds.counts.passed);
        page.counter("weir_scan_quarantined_total", "Messages that were quarantined", feeds.counts.quarantined);
        page.counter("weir_scan_failed_total", "Attempts that failed", feeds.counts.failed);
    }
    page.head("weir_quarantine_messages", "gauge", "Messages in quarantine");
    for total in &pulse.quarantine {
        let _ = writeln!(page.0, "weir_quarantine_messages{{queue=\"{}\"}} {}", total.queue, total.messages);
    }
    if let Some(lab) = &pulse.lab {
        page.gauge("weir_lab_leads", "Whether this machine leads the lab", u8::from(lab.leads_here));
        page.gauge("weir_lab_open_samples", "Samples that have not ended", pulse.samples_open());
        page.head("weir_lab_samples", "gauge", "Samples by state");
        for state in &lab.states {
            let _ = writeln!(page.0, "weir_lab_samples{{state=\"{}\"}} {}", state.state, state.samples);
        }
        page.gauge("weir_lab_epoch", "The term of office of the last leader", lab.epoch);
        page.leader(lab);
    }
    if let Some(web) = &pulse.web {
        page.0.push_str(&web.metrics());
    }
    page.0
}

/// When certificates expire that Weir gets from an authority, and for which of them the last attempt failed.
fn certificates(states: Vec<CertificateState>) -> String {
    let views: Vec<CertificateView> = states.into_iter().map(CertificateView::of).collect();
    let mut page = Figures::default();
    if views.is_empty() {
        return page.0;
    }
    page.head("weir_certificate_expiry_timestamp_seconds", "gauge", "When a certificate runs out; 0 if there is none");
    for CertificateView { name, until, .. } in &views {
        let until = until.unwrap_or_default();
        let _ = writeln!(page.0, "weir_certificate_expiry_timestamp_seconds{{name=\"{name}\"}} {until}");
    }
    page.head("weir_certificate_failing", "gauge", "Whether the last attempt to get a certificate failed");
    for CertificateView { name, problem, .. } in &views {
        let _ = writeln!(page.0, "weir_certificate_failing{{name=\"{name}\"}} {}", u8::from(problem.is_some()));
    }
    page.0
}

#[derive(Default)]
struct Figures(String);

impl Figures {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn gates(&mut self, gates: &[GateView]) {
        self.head("weir_gate_up", "gauge", "Whether a gate that is wanted serves");
        for gate in gates.iter().filter(|gate| gate.is_wanted()) {
            let _ = writeln!(self.0, "weir_gate_up{{gate=\"{}\"}} {}", gate.gate, u8::from(gate.is_up()));
        }
        self.head("weir_gate_restarts_total", "counter", "How often a gate was started again after it had been up");
        for gate in gates.iter().filter(|gate| gate.is_wanted()) {
            let _ = writeln!(self.0, "weir_gate_restarts_total{{gate=\"{}\"}} {}", gate.gate, gate.restarts);
        }
        let about = "How often a task that belongs to no gate was started again";
        self.counter("weir_task_restarts_total", about, supervision::restarts());
    }

    /// The backup, the certificates and the disk.
    fn upkeep(&mut self, pulse: &Pulse) {
        if let Some(age) = &pulse.backup {
            let help = "Since the last backup, or since the data folder was made if there was none";
            self.gauge("weir_backup_age_seconds", help, age.age_s);
            self.gauge("weir_backup_overdue", "Whether store.backup_due is over", u8::from(age.is_overdue()));
        }
        if let Some(disk) = &pulse.disk {
            self.gauge("weir_disk_free_bytes", "Free space under the data folder", disk.free_bytes);
        }
        let ends =
            pulse.certificates.iter().filter_map(|certificate| Some((certificate.of, certificate.ends.as_ref().ok()?)));
        let ends: Vec<(&str, &i64)> = ends.collect();
        if !ends.is_empty() {
            self.head("weir_certificate_end_seconds", "gauge", "When a certificate ends, in seconds of the Unix epoch");
        }
        for (gate, end) in ends {
            let _ = writeln!(self.0, "weir_certificate_end_seconds{{gate=\"{gate}\"}} {end}");
        }
    }

    /// Figures that only the leader knows. Counters begin with its term.
    fn leader(&mut self, lab: &LabStatus) {
        let Some(figures) = &lab.figures else { return };
        self.head("weir_lab_queue_samples", "gauge", "Samples in a run queue; the lowest number goes first");
        for queue in &figures.queues {
            let _ = writeln!(self.0, "weir_lab_queue_samples{{queue=\"{}\"}} {}", queue.queue, queue.samples);
        }
        self.head(
            "weir_lab_queue_oldest_wait_seconds",
            "gauge",
            "How long the oldest sample of a run queue has waited",
        );
        for queue in &figures.queues {
            let (number, wait_s) = (queue.queue, queue.oldest_wait_ms as f64 / 1e3);
            let _ = writeln!(self.0, "weir_lab_queue_oldest_wait_seconds{{queue=\"{number}\"}} {wait_s}");
        }
        self.gauge("weir_lab_machines", "Machines that are plugged in", figures.machines);
        self.head("weir_lab_vms", "gauge", "Their VMs and slots by state");
        let vms = [("free", figures.vms_free), ("in_use", figures.vms_in_use), ("on_revert", figures.vms_on_revert)];
        for (state, count) in vms {
            let _ = writeln!(self.0, "weir_lab_vms{{state=\"{state}\"}} {count}");
        }
        self.counter("weir_lab_attempts_total", "Samples that were assigned to a VM", figures.attempts);
        self.counter("weir_lab_attempts_lost_total", "Attempts that brought nothing", figures.attempts_lost);
        self.head("weir_lab_samples_ended_total", "counter", "Samples that ended");
        let ended = figures.ended;
        for (state, count) in [
            ("done", ended.done),
            ("quarantined", ended.quarantined),
            ("unserviceable", ended.unserviceable),
            ("cancelled", ended.cancelled),
        ] {
            let _ = writeln!(self.0, "weir_lab_samples_ended_total{{state=\"{state}\"}} {count}");
        }
        if let Some(vacant_ms) = lab.vacant_ms {
            let help = "From the last word of the leader before to the lease of this one";
            self.gauge("weir_lab_failover_seconds", help, vacant_ms as f64 / 1e3);
        }
    }

    fn counters<'a>(&mut self, name: &str, what: &str, values: impl Iterator<Item = (&'a String, &'a u64)>) {
        for (counter, value) in values {
            self.counter(&format!("{name}_{counter}_total"), &format!("{what}: {}", counter.replace('_', " ")), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::decision::{EndedCounts, Figures as LabFigures, QueueFigures};
    use weir_lab::operations::StateCount;

    fn pulse(figures: Option<LabFigures>, vacant_ms: Option<u64>) -> Pulse {
        let lab = LabStatus {
            leader: Some("n1".into()),
            epoch: 7,
            leads_here: figures.is_some(),
            open: None,
            states: vec![StateCount { state: "queued".into(), samples: 3 }],
            analysis: String::new(),
            plugins: Vec::new(),
            terms: Vec::new(),
            figures,
            vacant_ms,
        };
        Pulse { lab: Some(lab), ..Pulse::blind() }
    }

    #[test]
    fn the_leader_of_a_lab_has_figures_that_others_have_not() {
        let queues = vec![QueueFigures { queue: 40, samples: 3, oldest_wait_ms: 1_500 }];
        let ended = EndedCounts { done: 9, ..EndedCounts::default() };
        let figures = LabFigures { queues, machines: 4, vms_free: 2, attempts: 12, ended, ..LabFigures::default() };
        let page = text(&pulse(Some(figures), Some(2_250)), &[]);
        for line in [
            "weir_lab_epoch 7",
            "weir_lab_queue_samples{queue=\"40\"} 3",
            "weir_lab_queue_oldest_wait_seconds{queue=\"40\"} 1.5",
            "weir_lab_machines 4",
            "weir_lab_vms{state=\"free\"} 2",
            "weir_lab_attempts_total 12",
            "weir_lab_samples_ended_total{state=\"done\"} 9",
            "weir_lab_failover_seconds 2.25",
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line} in\n{page}");
        }
        assert!(!page.contains("weir_backup_age_seconds"), "nothing is said of what was not seen");
        let page = text(&pulse(None, None), &[]);
        assert!(page.contains("weir_lab_samples{state=\"queued\"} 3") && !page.contains("weir_lab_machines"), "{page}");
    }
}
