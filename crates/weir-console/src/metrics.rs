//! For programs: is it alive, is it ready, and the figures of all gates as Prometheus reads them. No figure names a user.

use crate::pulse::Pulse;
use crate::site::Site;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::{Display, Write as _};

/// The process answers.
pub(crate) async fn alive() -> &'static str {
    "alive\n"
}

/// The records answer, so mail can be taken. Asking often costs nothing: it is the look that all pages share.
pub(crate) async fn ready(State(site): State<Site>) -> Response {
    let pulse = site.pulse().await;
    let (status, words) = match &pulse.status {
        Some(status) if status.running => (StatusCode::OK, "ready\n".to_owned()),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not running\n".to_owned()),
        None => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", pulse.problems.join("; "))),
    };
    (status, words).into_response()
}

pub(crate) async fn page(State(site): State<Site>) -> Response {
    let pulse = site.pulse().await;
    let text = text(&pulse);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn text(pulse: &Pulse) -> String {
    let mut page = Figures::default();
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
    }
    if let Some(web) = &pulse.web {
        page.0.push_str(&web.metrics());
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

    fn counters<'a>(&mut self, name: &str, what: &str, values: impl Iterator<Item = (&'a &'static str, &'a u64)>) {
        for (counter, value) in values {
            self.counter(&format!("{name}_{counter}_total"), &format!("{what}: {}", counter.replace('_', " ")), value);
        }
    }
}
