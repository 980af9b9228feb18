//! Calls the webhook about incidents, locks, quarantines and verdicts.
//!
//! What happened is read from the records: lines of the audit trail after the last one that was told, and samples that ended after
//! the last one. So there is no queue that could overflow or be lost with the process: what the other end did not accept is sent again, in
//! order, after longer and longer waits, and also after a restart. Lines that are a day old when they are first read are skipped. An event
//! may be sent twice (if Weir is killed between the answer and noting it); it has the same `id` then. Where several relays share their
//! records, one of them should have the webhook.

use serde_json::{Value, json};
use std::time::Duration;
use weir_foundation::audit::{AuditTrail, AuditView};
use weir_foundation::webhook::{Again, Webhook};
use weir_foundation::{Foundation, OperationError};
use weir_lab::node::Node;
use weir_lab::operations::SampleLine;
use weir_mail::scan::QuarantineQueue;

/// How often it is checked whether there is something to report.
const EVERY: Duration = Duration::from_secs(2);
const WAIT_LONGEST: Duration = Duration::from_secs(300);
/// How many events are read at once.
const BATCH: i64 = 100;
/// Older events are not reported.
const STALE: Duration = Duration::from_secs(86_400);
const AUDIT_MARK: &str = "webhook.audit";
const LAB_MARK: &str = "webhook.lab";

/// Reports events to a webhook.
#[derive(Debug, Clone)]
pub struct Webhooks {
    webhook: Webhook,
    foundation: Foundation,
    trail: AuditTrail,
    lab: Option<Node>,
    /// The pause between two checks, and before the second attempt.
    every: Duration,
}

impl Webhooks {
    /// Reports to this webhook what happens in the gates.
    pub fn new(webhook: Webhook, foundation: Foundation, lab: Option<Node>) -> Webhooks {
        let trail = AuditTrail::new(&foundation);
        Webhooks { webhook, foundation, trail, lab, every: EVERY }
    }

    /// Reports for ever; run it as a task.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.look().await {
                tracing::warn!(%error, "what the webhook should hear cannot be read");
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Reports what has happened since the last check.
    async fn look(&self) -> Result<(), OperationError> {
        while self.audit().await? || self.verdicts().await? {}
        Ok(())
    }

    /// Reports some lines of the audit trail; returns whether there may be more.
    async fn audit(&self) -> Result<bool, OperationError> {
        let Some(mark) = self.foundation.progress(AUDIT_MARK).await?.and_then(|mark| mark.parse().ok()) else {
            // When a webhook is set up, the past is not reported.
            self.foundation.set_progress(AUDIT_MARK, &self.trail.last_number().await?.to_string()).await?;
            return Ok(false);
        };
        let lines = self.trail.after(mark, BATCH).await?;
        let Some((last, _)) = lines.last() else { return Ok(false) };
        for (number, line) in &lines {
            if let Some(event) = of_line(*number, line).filter(|_| is_fresh(&line.at)) {
                self.tell(&event).await;
                self.foundation.set_progress(AUDIT_MARK, &number.to_string()).await?;
            }
        }
        self.foundation.set_progress(AUDIT_MARK, &last.to_string()).await?;
        Ok(lines.len() as i64 == BATCH)
    }

    /// Reports the verdicts on some samples; returns whether there may be more.
    async fn verdicts(&self) -> Result<bool, OperationError> {
        let Some(node) = &self.lab else { return Ok(false) };
        let failed = |error: weir_lab::operations::LabError| OperationError::Failed(error.to_string());
        let mark = self.foundation.progress(LAB_MARK).await?;
        let Some(mark) = mark.as_deref().and_then(read_mark) else {
            let now = crate::words::now().saturating_mul(1_000_000_000);
            self.foundation.set_progress(LAB_MARK, &format!("{now} 0")).await?;
            return Ok(false);
        };
        let samples = node.ended_after(mark, BATCH).await.map_err(failed)?;
        // In a lab of several machines the leader reports; the others only move their mark forward.
        let leads = samples.is_empty() || node.status().await.map_err(failed)?.leads_here;
        for sample in &samples {
            if leads {
                self.tell(&of_sample(sample)).await;
            }
            let mark = format!("{} {}", sample.ended_at.unwrap_or(mark.0), sample.sample);
            self.foundation.set_progress(LAB_MARK, &mark).await?;
        }
        Ok(samples.len() as i64 == BATCH)
    }

    /// Calls until the server accepts it: in the end every five minutes, without giving up.
    async fn tell(&self, event: &Value) {
        let again = Again { tries: u32::MAX, first: self.every, longest: WAIT_LONGEST };
        self.webhook.insist(event, again).await;
    }
}

fn read_mark(text: &str) -> Option<(i64, i64)> {
    let (at, id) = text.split_once(' ')?;
    Some((at.parse().ok()?, id.parse().ok()?))
}

fn is_fresh(at: &str) -> bool {
    crate::words::parsed(at).is_none_or(|at| crate::words::now() - at < STALE.as_secs() as i64)
}

/// The event for a line of the trail; None for most lines.
fn of_line(number: i64, line: &AuditView) -> Option<Value> {
    let (event, queue) = match line.action.as_str() {
        "user.lock" => ("user.locked", None),
        "user.unlock" => ("user.unlocked", None),
        "quarantine.release" => ("quarantine.released", None),
        "quarantine.delete" => ("quarantine.deleted", None),
        "incident.opened" => ("incident.opened", None),
        "incident.closed" => ("incident.closed", None),
        action => {
            let queue = action.strip_prefix("quarantine.")?;
            QuarantineQueue::ALL.iter().find(|known| known.as_str() == queue)?;
            ("mail.quarantined", Some(queue))
        }
    };
    let mut told = json!({
        "event": event,
        "id": format!("audit-{number}"),
        "at": line.at,
        "actor": line.actor,
        "subject": line.subject,
        "detail": line.detail,
    });
    if let Some(queue) = queue {
        told["queue"] = queue.into();
    }
    Some(told)
}

fn of_sample(sample: &SampleLine) -> Value {
    json!({ "event": "lab.verdict", "id": format!("sample-{}", sample.sample), "sample": sample })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use weir_foundation::Actor;
    use weir_foundation::passwords::Passwords;
    use weir_mail::gate::{Settings, operations_at_rest};
    use weir_mail::operations::NewUser;
    use weir_store::folder::DataFolder;

    /// Accepts one call, and answers it.
    async fn taken(server: &TcpListener, answer: &str) -> Value {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut seen = Vec::new();
        loop {
            stream.read_buf(&mut seen).await.unwrap();
            let text = String::from_utf8_lossy(&seen).into_owned();
            let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
            if let Some(body) = body {
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
                return body;
            }
        }
    }

    #[tokio::test]
    async fn a_lock_is_told_until_it_is_taken_and_after_a_restart_too() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("data")).unwrap();
        let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
        let passwords = Passwords::new(1, [7; 32]).unwrap();
        let users = operations_at_rest(&foundation, passwords, &Settings::default()).users;
        let actor = Actor::new("test");
        let new = NewUser { name: "ann".into(), addresses: vec!["ann@example.org".into()], ..NewUser::default() };
        users.add(new, &actor).await.unwrap();
        users.lock("ann", "before anybody listened", &actor).await.unwrap();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook = Webhook::parse(&format!("http://{}/", server.local_addr().unwrap())).unwrap();
        let hooks = Webhooks { every: Duration::from_millis(5), ..Webhooks::new(webhook, foundation.clone(), None) };
        hooks.look().await.unwrap();
        users.unlock("ann", &actor).await.unwrap();
        users.lock("ann", "a leak", &actor).await.unwrap();
        let running = tokio::spawn(hooks.clone().run());
        assert_eq!(taken(&server, "200 OK").await["event"], "user.unlocked", "nothing from before");
        assert_eq!(taken(&server, "503 Busy").await["event"], "user.locked");
        // It was killed before the event was accepted: the next run begins with it.
        running.abort();
        let _ = running.await;
        let running = tokio::spawn(hooks.run());
        let mut told = taken(&server, "204 No Content").await;
        assert_eq!(
            (&told["event"], &told["subject"], &told["actor"]),
            (&json!("user.locked"), &json!("ann"), &json!("test"))
        );
        assert!(
            told["detail"].as_str().unwrap().contains("a leak") && told["id"].as_str().unwrap().starts_with("audit-")
        );
        users.lock("ann", "again", &actor).await.unwrap();
        // The same event may have come twice, with the same id.
        let id = told["id"].clone();
        while told["id"] == id {
            told = taken(&server, "200 OK").await;
        }
        assert!(told["detail"].as_str().unwrap().contains("again"), "{told}");
        running.abort();
    }

    #[test]
    fn most_lines_are_nobodys_business() {
        let line = |action: &str| AuditView {
            at: String::new(),
            actor: "weir".into(),
            action: action.into(),
            subject: "x".into(),
            detail: String::new(),
        };
        assert_eq!(of_line(7, &line("quarantine.virus")).unwrap()["queue"], "virus");
        assert_eq!(of_line(7, &line("quarantine.release")).unwrap()["event"], "quarantine.released");
        for action in ["console.login", "token.add", "held.release", "user.passwd"] {
            assert_eq!(of_line(7, &line(action)), None, "{action}");
        }
        assert_eq!((read_mark("12 3"), read_mark("x")), (Some((12, 3)), None));
        assert!(is_fresh("") && !is_fresh("2001-01-01T00:00:00Z"));
    }
}
