//! `weir top`: the overview in a terminal, drawn again every second.
//!
//! Numbers come from the same handlers as those of the console. Rates are differences between two looks, so the first screen has
//! none. What is not a terminal gets one screen without movement.

use crate::answer::{bytes, count, list, number, print_json, text};
use crate::control::{Control, Place};
use crate::table::shown;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Sessions of the web gate that are named.
const SESSIONS: usize = 5;
/// Home, and everything below and to the right forgotten.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Draw one screen and leave
    #[arg(long)]
    once: bool,
    /// Print one look as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = Control::reach(&self.place)?;
        anyhow::ensure!(
            control.is_running(),
            "nothing runs on this data folder\n  hint: start it with `weir up`; `weir status` looks at a folder at rest"
        );
        let look = Look::take(&control)?;
        if self.json {
            return print_json(out, &look.gates);
        }
        let lively = !self.once && std::io::stdout().is_terminal();
        let mut earlier: Option<Look> = None;
        let mut now = look;
        loop {
            let screen = now.screen(earlier.as_ref());
            if !lively {
                return Ok(out.write_all(screen.as_bytes())?);
            }
            write!(out, "{CLEAR}{screen}\nevery {} s, Ctrl-C to leave\n", self.every)?;
            out.flush()?;
            std::thread::sleep(Duration::from_secs(self.every));
            let next = Look::take(&control)?;
            earlier = Some(std::mem::replace(&mut now, next));
        }
    }
}

/// All gates at one moment. A gate that is off is null.
struct Look {
    at: Instant,
    gates: Value,
}

impl Look {
    fn take(control: &Control) -> anyhow::Result<Look> {
        let status = control.get("/status")?;
        // A gate that is off has no such page.
        let or_nothing = |path: &str| control.get(path).unwrap_or(Value::Null);
        let gates = json!({
            "status": status,
            "feeds": or_nothing("/feeds"),
            "web": or_nothing("/web"),
            "sessions": or_nothing(&format!("/web/sessions?most={SESSIONS}")),
            "lab": or_nothing("/lab"),
        });
        Ok(Look { at: Instant::now(), gates })
    }

    fn screen(&self, earlier: Option<&Look>) -> String {
        let status = &self.gates["status"];
        let mut lines = vec![
            format!(
                "Weir {} since {} UTC, pid {}",
                text(status, "version"),
                since(status),
                number(&status["gate"], "pid")
            ),
            String::new(),
        ];
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

    fn throttle(&self, earlier: Option<&Look>) -> Vec<String> {
        let status = &self.gates["status"];
        let (totals, spool) = (&status["totals"], &status["spool"]);
        vec![
            format!(
                "{} stopped, {} of {} held, {} open",
                count(number(totals, "stopped"), "account"),
                count(number(totals, "held_recipients"), "recipient"),
                count(number(totals, "held_messages"), "mail"),
                count(number(&status["gate"], "sessions"), "session")
            ),
            format!(
                "accepted {}, refused {}; in transit {}, {}",
                self.rate(earlier, "/status/gate/counters/messages"),
                self.rate(earlier, "/status/gate/counters/messages_refused"),
                count(number(spool, "messages"), "message"),
                bytes(number(spool, "body_bytes"))
            ),
        ]
    }

    fn scan(&self, earlier: Option<&Look>) -> Vec<String> {
        let feeds = &self.gates["feeds"];
        if feeds["enabled"] != true {
            return vec!["off".to_owned()];
        }
        let bear = feeds["lambda_max_per_s"]
            .as_f64()
            .map_or(String::new(), |most| format!(" of {most:.0}/s that the feeds bear"));
        let mut told = vec![
            format!(
                "{} wait, the oldest for {:.1} s; {} under way; {:.1}/s{bear}",
                number(feeds, "waiting"),
                feeds["oldest_s"].as_f64().unwrap_or(0.0),
                number(feeds, "under_way"),
                feeds["lambda_per_s"].as_f64().unwrap_or(0.0)
            ),
            format!(
                "passed {}, quarantined {} ({} since the start)",
                self.rate(earlier, "/feeds/counts/passed"),
                self.rate(earlier, "/feeds/counts/quarantined"),
                number(&feeds["counts"], "quarantined")
            ),
        ];
        if let Some(problem) = feeds["outage"]["problem"].as_str() {
            told.push(format!("NO SCANNER ANSWERS: {}", shown(problem)));
        }
        told
    }

    fn web(&self, earlier: Option<&Look>) -> Vec<String> {
        let web = &self.gates["web"];
        if web.is_null() {
            return vec!["off".to_owned()];
        }
        let mut told: Vec<String> = list(web, "backends")
            .iter()
            .enumerate()
            .map(|(at, backend)| {
                let queue = &backend["queue"];
                let counter = |name: &str| self.rate(earlier, &format!("/web/backends/{at}/queue/counters/{name}"));
                format!(
                    "{}: {} wait, {} of {} slots; asked {}, served {}; {} of {} subnets",
                    shown(text(queue, "backend")),
                    number(queue, "waiting"),
                    number(queue, "running"),
                    number(queue, "slots"),
                    counter("asked"),
                    counter("finished"),
                    count(number(queue, "sessions"), "session"),
                    number(queue, "subnets")
                )
            })
            .collect();
        let sessions = self.gates["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        told.extend(sessions.iter().take(SESSIONS).map(|session| {
            format!(
                "  {:<24} {:>6} wait {:>4} run {:>8.1} s served {:>6.1} s debt",
                text(session, "client"),
                number(session, "waiting"),
                number(session, "running"),
                session["served_s"].as_f64().unwrap_or(0.0),
                session["debt_s"].as_f64().unwrap_or(0.0)
            )
        }));
        told
    }

    fn lab(&self) -> Vec<String> {
        let lab = &self.gates["lab"];
        if lab.is_null() {
            return vec!["off".to_owned()];
        }
        let leader = match lab["leader"].as_str() {
            Some(leader) => format!("{} leads, epoch {}", shown(leader), number(lab, "epoch")),
            None => "nobody leads".to_owned(),
        };
        let states = list(lab, "states").iter();
        let states: Vec<String> =
            states.map(|state| format!("{} {}", number(state, "samples"), text(state, "state"))).collect();
        vec![leader, if states.is_empty() { "no samples yet".to_owned() } else { states.join(", ") }]
    }

    /// How fast a counter grows; nothing is known at the first look.
    fn rate(&self, earlier: Option<&Look>, counter: &str) -> String {
        let read = |look: &Look| look.gates.pointer(counter).and_then(Value::as_u64);
        let Some((before, (now, then))) = earlier.and_then(|look| Some((look, (read(self)?, read(look)?)))) else {
            return "-/s".to_owned();
        };
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        // A gate that has started anew counts from nothing.
        format!("{:.0}/s", now.saturating_sub(then) as f64 / seconds)
    }
}

fn since(status: &Value) -> String {
    crate::answer::time(&status["gate"], "since")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(messages: u64, web: &Value) -> Look {
        let gates = json!({
            "status": {
                "version": "1", "gate": { "since": "2026-01-02T03:04:05Z", "pid": 7, "sessions": 1, "counters": { "messages": messages } },
                "totals": { "stopped": 1, "held_recipients": 21, "held_messages": 21 }, "spool": { "messages": 2, "body_bytes": 2048 },
            },
            "feeds": { "enabled": true, "waiting": 3, "oldest_s": 1.25, "outage": { "problem": "no\x1b[2Jclamd" } },
            "web": web, "sessions": null, "lab": null,
        });
        Look { at: Instant::now(), gates }
    }

    #[test]
    fn a_screen_tells_every_gate() {
        let backend = json!({ "queue": { "backend": "main", "waiting": 5, "slots": 16, "running": 16, "counters": { "asked": 9 } } });
        let mut now = look(150, &json!({ "backends": [backend] }));
        let earlier = look(50, &Value::Null);
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
