//! `weir top`: the overview in a terminal, drawn again every second.
//!
//! The numbers come from the same handlers as those of the console. Rates are differences between two polls, so the first screen shows
//! none. If the output is not a terminal, one screen is printed.

use crate::answer::{bytes, count, print_answer, time};
use crate::control::Control;
use crate::folder_args::FolderArgs;
use crate::table::shown;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use weir_console::api::web::Most;
use weir_console::api::whole::WholeStatus;
use weir_console::api::{feeds, lab, web, whole};
use weir_lab::operations::LabStatus;
use weir_mail::operations::Vital;
use weir_mail::scan::FeedsStatus;
use weir_web::admission::{CounterValues, SessionView};
use weir_web::view::{BackendView, Status};

/// How many sessions of the web gate are shown.
const SESSIONS: usize = 5;
/// Moves the cursor to the top left corner and clears everything after it.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: FolderArgs,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Print one screen and exit
    #[arg(long)]
    once: bool,
    /// Print the present state once, as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = Control::reach(&self.place)?;
        anyhow::ensure!(
            control.is_running(),
            "Weir is not running on this data folder\n  hint: start it with `weir up`; `weir status` works even so"
        );
        let look = GatesLook::take(&control)?;
        if self.json {
            return print_answer(out, &look.gates);
        }
        let lively = !self.once && std::io::stdout().is_terminal();
        let mut earlier: Option<GatesLook> = None;
        let mut now = look;
        loop {
            let screen = now.screen(earlier.as_ref());
            if !lively {
                return Ok(out.write_all(screen.as_bytes())?);
            }
            write!(out, "{CLEAR}{screen}\nevery {} s, Ctrl-C to quit\n", self.every)?;
            out.flush()?;
            std::thread::sleep(Duration::from_secs(self.every));
            let next = GatesLook::take(&control)?;
            earlier = Some(std::mem::replace(&mut now, next));
        }
    }
}

/// The state of all gates at one moment.
struct GatesLook {
    at: Instant,
    gates: Gates,
}

/// The state of each gate. A gate that is off has none.
#[derive(Serialize)]
struct Gates {
    status: WholeStatus,
    feeds: Option<FeedsStatus>,
    web: Option<Status>,
    sessions: Option<Vec<SessionView>>,
    lab: Option<LabStatus>,
}

impl GatesLook {
    fn take(control: &Control) -> anyhow::Result<GatesLook> {
        let gates = Gates {
            status: control.ask(&whole::STATUS, &())?,
            feeds: control.ask(&feeds::STATUS, &()).ok(),
            web: control.ask(&web::STATUS, &()).ok(),
            sessions: control.ask(&web::SESSIONS, &Most { most: SESSIONS }).ok(),
            lab: control.ask(&lab::STATUS, &()).ok(),
        };
        Ok(GatesLook { at: Instant::now(), gates })
    }

    fn mail(&self) -> Option<&Vital> {
        self.gates.status.status.gate.as_ref()
    }

    fn screen(&self, earlier: Option<&GatesLook>) -> String {
        let since = self.mail().map_or_else(|| "-".to_owned(), |gate| time(&gate.since));
        let pid = self.mail().map_or(0, |gate| gate.pid);
        let version = &self.gates.status.status.version;
        let mut lines = vec![format!("Weir {version} since {since} UTC, pid {pid}"), String::new()];
        for (gate, told) in [
            ("throttle", self.throttle(earlier)),
            ("scan", self.scan(earlier)),
            ("web", self.web(earlier)),
            ("lab", self.lab()),
        ] {
            let names = std::iter::once(gate).chain(std::iter::repeat(""));
            lines.extend(names.zip(told).map(|(name, line)| format!("{name:<10}{line}")));
            lines.push(String::new());
        }
        lines.join("\n")
    }

    fn throttle(&self, earlier: Option<&GatesLook>) -> Vec<String> {
        let status = &self.gates.status.status;
        let (totals, spool) = (&status.totals, &status.spool);
        let counter = |name: &str| self.rate(earlier, |look| look.mail()?.counters.get(name).copied());
        vec![
            format!(
                "{} stopped, {} of {} held, {} open",
                count(totals.stopped, "account"),
                count(totals.held_recipients, "recipient"),
                count(totals.held_messages, "mail"),
                count(self.mail().map_or(0, |gate| gate.sessions), "session")
            ),
            format!(
                "accepted {}, refused {}; in transit {}, {}",
                counter("messages"),
                counter("messages_refused"),
                count(spool.messages, "message"),
                bytes(spool.body_bytes)
            ),
        ]
    }

    fn scan(&self, earlier: Option<&GatesLook>) -> Vec<String> {
        let Some(feeds) = self.gates.feeds.as_ref().filter(|feeds| feeds.enabled) else {
            return vec!["off".to_owned()];
        };
        let bear =
            feeds.lambda_max_per_s.map_or(String::new(), |most| format!(" of {most:.0}/s that the feeds can handle"));
        let mut told = vec![
            format!(
                "{} wait, the oldest for {:.1} s; {} under way; {:.1}/s{bear}",
                feeds.waiting,
                feeds.oldest_s,
                feeds.under_way,
                if feeds.lambda_per_s.is_finite() { feeds.lambda_per_s } else { 0.0 }
            ),
            format!(
                "passed {}, quarantined {} ({} since the start)",
                self.rate(earlier, |look| Some(look.gates.feeds.as_ref()?.counts.passed)),
                self.rate(earlier, |look| Some(look.gates.feeds.as_ref()?.counts.quarantined)),
                feeds.counts.quarantined
            ),
        ];
        if let Some(outage) = &feeds.outage {
            told.push(format!("SCANS FAIL: {}", shown(&outage.problem)));
        }
        told
    }

    fn web(&self, earlier: Option<&GatesLook>) -> Vec<String> {
        let Some(web) = &self.gates.web else { return vec!["off".to_owned()] };
        let backend = |(at, backend): (usize, &BackendView)| {
            let queue = &backend.queue;
            let counter = |read: fn(&CounterValues) -> u64| {
                self.rate(earlier, |look| Some(read(&look.gates.web.as_ref()?.backends.get(at)?.queue.counters)))
            };
            format!(
                "{}: {} wait, {} of {} slots; asked {}, served {}; {} of {} subnets",
                shown(&queue.backend),
                queue.waiting,
                queue.running,
                queue.slots,
                counter(|counters| counters.asked),
                counter(|counters| counters.finished),
                count(queue.sessions, "session"),
                queue.subnets
            )
        };
        let mut told: Vec<String> = web.backends.iter().enumerate().map(backend).collect();
        let sessions = self.gates.sessions.iter().flatten();
        told.extend(sessions.take(SESSIONS).map(|session| {
            format!(
                "  {:<24} {:>6} wait {:>4} run {:>8.1} s served {:>6.1} s debt",
                session.client.to_string(),
                session.waiting,
                session.running,
                session.served_s,
                session.debt_s
            )
        }));
        told
    }

    fn lab(&self) -> Vec<String> {
        let Some(lab) = &self.gates.lab else { return vec!["off".to_owned()] };
        let leader = match &lab.leader {
            Some(leader) => format!("{} leads, epoch {}", shown(leader), lab.epoch),
            None => "nobody leads".to_owned(),
        };
        let states: Vec<String> = lab.states.iter().map(|state| format!("{} {}", state.samples, state.state)).collect();
        vec![leader, if states.is_empty() { "no samples yet".to_owned() } else { states.join(", ") }]
    }

    /// How fast a counter grows; not known at the first poll.
    fn rate(&self, earlier: Option<&GatesLook>, counter: impl Fn(&GatesLook) -> Option<u64>) -> String {
        let Some((before, (now, then))) = earlier.and_then(|look| Some((look, (counter(self)?, counter(look)?))))
        else {
            return "-/s".to_owned();
        };
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        // A gate that was restarted counts from zero, so the difference may be negative.
        format!("{:.0}/s", now.saturating_sub(then) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The answers of the gates, with only as much as the screen shows.
    fn look(messages: u64, web: Value) -> GatesLook {
        let status = json!({
            "version": "1", "running": true, "data": "/d", "records": "sqlite", "relay": "here", "learn_only": false,
            "gate": {
                "since": "2026-01-02T03:04:05Z", "pid": 7, "listeners": [], "delivery": "", "sessions": 1,
                "counters": { "messages": messages },
            },
            "totals": { "users": 1, "locked": 0, "stopped": 1, "held_recipients": 21, "held_messages": 21, "decided": 0 },
            "spool": { "messages": 2, "body_bytes": 2048, "disk_bytes": 4096, "segments": 1, "damage": [] },
            "gates": [],
        });
        let feeds = json!({
            "enabled": true, "strategy": "size", "limits": [], "tuned": false, "auto_tune": false, "cpus": 1, "waiting": 3,
            "oldest_s": 1.25, "under_way": 0, "retrying": 0, "outage": { "for_s": 1.0, "problem": "no\x1b[2Jclamd" },
            "lambda_per_s": null, "lambda_max_per_s": null, "t0_s": 0.0, "ts_s_per_byte": 0.0, "services": [], "remembered": 0,
            "feeds": [], "classes": [], "counts": { "arrived": 0, "passed": 0, "quarantined": 0, "failed": 0 }, "scanners": [],
            "pending": null,
        });
        let gates = Gates {
            status: serde_json::from_value(status).unwrap(),
            feeds: serde_json::from_value(feeds).unwrap(),
            web: serde_json::from_value(web).unwrap(),
            sessions: None,
            lab: None,
        };
        GatesLook { at: Instant::now(), gates }
    }

    #[test]
    fn a_screen_tells_every_gate() {
        let counters = CounterValues { asked: 9, ..CounterValues::default() };
        let queue = json!({
            "backend": "main", "waiting": 5, "running": 16, "slots": 16, "slots_auto": false, "observe": false, "streams": 0,
            "waiting_bytes": 0, "sessions": 0, "subnets": 0, "mean_cost_ms": 0.0, "counters": counters,
        });
        let web = json!({
            "listeners": [], "threads": 1, "connections": 0, "connections_accepted": 0, "connections_refused": 0,
            "idle_connections": 0, "responses": [0, 0, 0, 0, 0], "given_up": 0, "log_lines_dropped": 0,
            "backends": [{ "queue": queue, "servers": [] }], "exchange": null,
        });
        let mut now = look(150, web);
        let earlier = look(50, Value::Null);
        now.at = earlier.at + Duration::from_secs(2);
        let screen = now.screen(Some(&earlier));
        for part in [
            "Weir 1 since 2026-01-02 03:04:05 UTC, pid 7",
            "throttle  1 account stopped, 21 recipients of 21 mails held, 1 session open",
            "accepted 50/s, refused -/s; in transit 2 messages, 2.0 KiB",
            "scan      3 wait, the oldest for 1.2 s",
            "web       main: 5 wait, 16 of 16 slots; asked -/s",
            "lab       off",
        ] {
            assert!(screen.contains(part), "{part:?} is not in\n{screen}");
        }
        assert!(!screen.contains('\x1b'), "what a scanner says moves no cursor");
    }
}
