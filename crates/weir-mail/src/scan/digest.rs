//! Digests: a daily mail that tells recipients which of their mail was kept as spam. Off unless a page is configured for the links to open.
//!
//! Digests list only mail from outside and only spam: a digest must not invite anybody to release a virus. A link only opens a page;
//! opening it changes nothing.

use super::Site;
use super::settings::QuarantineSettings;
use crate::notices::digest::{NAMED_MAX, plain};
use crate::notices::{self, OwnMail};
use crate::pipeline::Pipeline;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::clock::wall_clock;
use weir_foundation::date::Date;
use weir_store::records::{QuarantineRow, RecordsError};

/// When this relay wrote its last digests.
const KEPT: &str = "quarantine.digest";
/// A message that is kept this moment may not be in the records yet: it is told of the next time.
const SETTLED: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 60 });
/// Rows that are read at once.
const ROWS_MAX: usize = if cfg!(test) { 3 } else { 5_000 };

/// Writes digests if it is time.
pub(super) async fn write(
    site: &Site,
    settings: &QuarantineSettings,
    hostname: &str,
    pipeline: &Pipeline,
) -> Result<(), RecordsError> {
    if settings.link.is_empty() {
        return Ok(());
    }
    let now = Instant(wall_clock().0.saturating_sub(SETTLED.as_nanos() as u64));
    let before = now.0.saturating_sub(settings.digest_every.as_nanos() as u64);
    // Noted before they are written: if the process is killed in between, a digest is lost, but not all of them are sent twice.
    let last = site.records.values().take_turn(&site.relay, KEPT, before as i64, now.0 as i64).await?;
    let Some(since) = last.map(|last| Instant(last.max(0) as u64)) else { return Ok(()) };
    let mut after = String::new();
    loop {
        let rows = page(site, &(since..now), &after).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after.clone_from(&last.recipient);
        for rows in rows.chunk_by(|a, b| a.recipient == b.recipient) {
            let subject = format!("{} messages to you are in quarantine", counted(rows.len()));
            let text = body(&settings.link, rows);
            let mail = OwnMail { to: &rows[0].recipient, subject: &subject, body: &text };
            if let Err(error) = notices::post(&site.spool, pipeline, hostname, now, mail).await {
                tracing::error!(%error, "a digest could not be written");
            }
        }
    }
}

/// The next recipients with all their rows. A recipient who has more rows than a page holds gets a page alone.
async fn page(site: &Site, period: &Range<Instant>, after: &str) -> Result<Vec<QuarantineRow>, RecordsError> {
    let between = (period.start.0 as i64, period.end.0 as i64);
    let mut rows = site.records.quarantine().digest(&site.relay, between, after, ROWS_MAX as i64).await?;
    if rows.len() == ROWS_MAX
        && let Some(last) = rows.last().map(|row| row.recipient.clone())
        && rows.first().is_some_and(|first| first.recipient != last)
    {
        rows.retain(|row| row.recipient != last);
    }
    Ok(rows)
}

/// How many rows a recipient has, as far as they were counted.
fn counted(rows: usize) -> String {
    if rows < ROWS_MAX { rows.to_string() } else { format!("{rows} or more") }
}

fn body(link: &str, rows: &[QuarantineRow]) -> String {
    let mut body =
        "These messages were taken for spam and kept. If one of them is wanted, its link opens a page where it \
                    can be released; nothing happens by opening a link.\n\n"
            .to_owned();
    for row in rows.iter().take(NAMED_MAX) {
        let sender = if row.sender.is_empty() { "<>" } else { &row.sender };
        let at = Date::new(Instant(row.at.max(0) as u64)).rfc3339();
        let link = link.trim_end_matches('/');
        let _ = writeln!(body, "{at}  from {}\n  {}\n  {link}/{}\n", plain(sender), plain(&row.subject), row.message);
    }
    if rows.len() > NAMED_MAX {
        let _ = writeln!(body, "And {} more.", rows.len() - NAMED_MAX);
    }
    body
}
