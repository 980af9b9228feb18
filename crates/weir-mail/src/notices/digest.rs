//! The daily digest: a mail to the administrator once a day about what waits in the throttle. On a quiet day none is sent.
//!
//! A notice is sent once for each stop or delay; the digest is for what was not noticed then: accounts that are still stopped, delay queues
//! that still drain, and, where the throttle only learns, what it would have done yesterday. Relays that share their records write one
//! digest together.

use super::NoticeWriter;
use crate::counted::{count, wait};
use std::fmt::Write;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::date::Date;
use weir_store::records::{IncidentRow, Learned, RecordsError, ThrottleRow};

/// Whose turn it was last.
const KEPT: &str = "notices.digest";
/// How often it is looked whether a digest is due.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Users, or messages, that a digest names, of each kind.
pub(crate) const NAMED_MAX: usize = 50;
/// Users that are read.
const READ_MAX: usize = 5_000;
const DAY_NS: u64 = 86_400_000_000_000;

impl NoticeWriter {
    /// Writes the digest if it is time and there is something to say.
    pub(super) async fn digest(&self) {
        if let Err(error) = self.digest_if_due().await {
            tracing::warn!(%error, "what waits could not be read; the digest comes later");
        }
    }

    async fn digest_if_due(&self) -> Result<(), RecordsError> {
        if self.settings.admin.is_empty() {
            return Ok(());
        }
        let now = (self.clock)();
        let before = now.0.saturating_sub(self.settings.digest_every.as_nanos() as u64);
        // Before it is written: a kill in between loses a digest, and does not repeat it.
        if self.records.values().take_turn("", KEPT, before as i64, now.0 as i64).await?.is_none() {
            return Ok(());
        }
        let busy = self.records.throttles().busy(READ_MAX as i64).await?;
        let learned = self.records.throttles().learned((now.0 / DAY_NS) as i64 - 1).await?;
        let since_s = (before / 1_000_000_000) as i64;
        let incidents = self.records.incidents().since(since_s, NAMED_MAX as i64 + 1).await?;
        let digest = Digest { incidents: &incidents, ..Digest::new(&busy, &learned, now) };
        if digest.is_empty() {
            return Ok(());
        }
        let body = digest.body(self.settings.link.trim_end_matches('/'));
        if let Err(error) = self.send(&self.settings.admin, &digest.subject(), &body).await {
            tracing::error!(%error, "the digest could not be written");
        }
        Ok(())
    }
}

/// What there is to say.
struct Digest<'a> {
    stopped: Vec<&'a ThrottleRow>,
    delayed: Vec<&'a ThrottleRow>,
    /// Would have been held or stopped.
    learned: Vec<&'a Learned>,
    /// Open since the last digest, or still.
    incidents: &'a [IncidentRow],
    now: Instant,
}

impl<'a> Digest<'a> {
    fn new(busy: &'a [ThrottleRow], learned: &'a [Learned], now: Instant) -> Digest<'a> {
        let (stopped, delayed) = busy.iter().partition(|row| row.stopped_at.is_some());
        let learned = learned.iter().filter(|learned| learned.would_hold > 0).collect();
        Digest { stopped, delayed, learned, incidents: &[], now }
    }

    fn is_empty(&self) -> bool {
        self.stopped.is_empty() && self.delayed.is_empty() && self.learned.is_empty() && self.incidents.is_empty()
    }

    fn subject(&self) -> String {
        let waiting: i64 = self.stopped.iter().chain(&self.delayed).map(|row| row.held).sum();
        match (self.stopped.len(), waiting) {
            (0, 0) if !self.learned.is_empty() => "What the throttle would have held yesterday".to_owned(),
            (0, 0) => "What happened since the last digest".to_owned(),
            (0, waiting) => format!("{} in delay queues; nobody is stopped", wait(waiting, "recipient")),
            (1, waiting) => format!("1 account is stopped; {}", wait(waiting, "recipient")),
            (stopped, waiting) => format!("{stopped} accounts are stopped; {}", wait(waiting, "recipient")),
        }
    }

    fn body(&self, link: &str) -> String {
        let mut text = String::new();
        list(&mut text, "Stopped. Nothing of theirs goes out until somebody decides:", &self.stopped, |row| {
            let since = row.stopped_at.map_or(self.now, |at| Instant(at.max(0) as u64));
            format!("{}  {}, since {}", plain(&row.identity), wait(row.held, "recipient"), Date::new(since))
        });
        list(&mut text, "Delayed. This goes out by itself, one new recipient at a time:", &self.delayed, |row| {
            format!("{}  {}", plain(&row.identity), wait(row.held, "recipient"))
        });
        list(&mut text, "The throttle only learns. Yesterday it would have done this:", &self.learned, |learned| {
            let (held, stops) = (count(learned.would_hold, "recipient"), count(learned.would_stop, "time"));
            format!("{}  {held} held, stopped {stops}, of {}", plain(&learned.identity), count(learned.mails, "mail"))
        });
        list(
            &mut text,
            "Incidents since the last digest; `weir incidents NUMBER` tells the story of one:",
            self.incidents,
            |row| {
                let at = |seconds: i64| Date::new(Instant(seconds.max(0) as u64 * 1_000_000_000));
                let ended = row.closed_s.map_or_else(|| "goes on".to_owned(), |closed| format!("over {}", at(closed)));
                format!("{}  {}, began {}, {ended}", row.id, plain(&row.headline()), at(row.opened_s))
            },
        );
        if !self.stopped.is_empty() || !self.delayed.is_empty() {
            text.push_str(
                "What you can do:\n  weir held list; weir held release or delete --user NAME; weir user unlock NAME\n",
            );
            if !link.is_empty() {
                let _ = writeln!(text, "  Look at each mail: {link}/throttle");
            }
        }
        text
    }
}

/// A heading and the first rows below it; nothing if there are none.
fn list<T>(text: &mut String, heading: &str, rows: &[T], line: impl Fn(&T) -> String) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "{heading}");
    for row in rows.iter().take(NAMED_MAX) {
        let _ = writeln!(text, "  {}", line(row));
    }
    if rows.len() > NAMED_MAX {
        let _ = writeln!(text, "  and {} more", rows.len() - NAMED_MAX);
    }
    text.push('\n');
}

/// What somebody typed, as a part of a line: a login, a subject.
pub(crate) fn plain(text: &str) -> String {
    weir_scan::plain::shown(text, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(identity: &str, held: i64, stopped_at: Option<i64>) -> ThrottleRow {
        ThrottleRow {
            identity: identity.to_owned(),
            state: String::new(),
            next_deadline: None,
            held,
            stopped_at,
            notified: 0,
            updated_at: 0,
        }
    }

    #[test]
    fn says_who_is_stopped_who_is_delayed_and_what_to_do() {
        let busy = [row("ann", 21, Some(1_794_798_240_000_000_000)), row("bob\r\nBcc: x", 3, None)];
        let digest = Digest::new(&busy, &[], Instant(1_794_880_000_000_000_000));
        assert_eq!(digest.subject(), "1 account is stopped; 24 recipients wait");
        let body = digest.body("https://console.example.org");
        assert!(body.contains("ann  21 recipients wait, since 2026-11-16"), "{body}");
        assert!(body.contains("bob··Bcc: x  3 recipients wait"), "{body}");
        assert!(body.contains("https://console.example.org/throttle"), "{body}");
    }

    #[test]
    fn incidents_are_named_with_their_numbers() {
        let incidents = [
            IncidentRow {
                id: 7,
                title: "Account stopped".into(),
                subject: "ann\r\nBcc: x".into(),
                opened_s: 1_794_798_240,
                ..IncidentRow::default()
            },
            IncidentRow {
                id: 8,
                title: "Flood".into(),
                opened_s: 1_794_798_240,
                closed_s: Some(1_794_798_300),
                ..IncidentRow::default()
            },
        ];
        let digest = Digest { incidents: &incidents, ..Digest::new(&[], &[], Instant(0)) };
        assert!(!digest.is_empty() && digest.subject() == "What happened since the last digest");
        let body = digest.body("");
        assert!(body.contains("7  Account stopped: ann··Bcc: x, began ") && body.contains(", goes on"), "{body}");
        assert!(body.contains("8  Flood, began ") && body.contains(", over "), "{body}");
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let busy: Vec<_> = (0..NAMED_MAX + 7).map(|n| row(&format!("user{n}"), 1, None)).collect();
        let digest = Digest::new(&busy, &[], Instant(0));
        assert_eq!(digest.subject(), format!("{} recipients wait in delay queues; nobody is stopped", NAMED_MAX + 7));
        assert!(digest.body("").contains("and 7 more"));
    }

    #[test]
    fn a_quiet_day_has_nothing_to_say() {
        let learned =
            [Learned { identity: "ann".into(), day: 1, mails: 9, recipients: 9, would_hold: 0, would_stop: 0 }];
        assert!(Digest::new(&[], &learned, Instant(0)).is_empty());
        let held = Learned { would_hold: 4, would_stop: 1, ..learned[0].clone() };
        let held = [held];
        let digest = Digest::new(&[], &held, Instant(0));
        assert!(digest.body("").contains("ann  4 recipients held, stopped 1 time, of 9 mails"));
    }
}
