//! Digests: which spam was kept, told to its recipients once a day. Off unless a page is configured that the links can open.
//!
//! Only mail from outside, and only spam: a digest must not invite anybody to release a virus. A link opens a page; nothing
//! acts on being opened.

use super::Site;
use super::settings::QuarantineSettings;
use crate::date::Date;
use crate::gate::wall_clock;
use crate::letter::{Letter, LetterTo, Origin};
use crate::notices::mail;
use crate::outbound::Outbound;
use crate::smtp::envelope::{Envelope, MailFrom};
use std::fmt::Write;
use std::sync::Arc;
use weir_core::time::Instant;
use weir_store::records::{QuarantineRow, RecordsError};
use weir_store::spool::SpoolError;

/// What a relay remembers of its last digests.
const KEPT: &str = "quarantine.digest";
/// Rows in all digests of one time.
const ROWS_MAX: i64 = 100_000;
/// Messages named in one digest.
const NAMED_MAX: usize = 50;

/// Writes digests if it is time.
pub(super) async fn write<O: Outbound>(
    site: &Site,
    settings: &QuarantineSettings,
    hostname: &str,
    outbound: &O,
) -> Result<(), RecordsError> {
    if settings.link.is_empty() {
        return Ok(());
    }
    let now = wall_clock();
    let last = site.records.kept(&site.relay, KEPT).await?.and_then(|text| text.parse::<u64>().ok());
    let since = last.map_or(Instant(now.0), Instant);
    if last.is_some() && now.since(since) < settings.digest_every {
        return Ok(());
    }
    let mut rows = site.records.quarantine_digest(since.0 as i64, now.0 as i64, ROWS_MAX).await?;
    rows.retain(|row| row.relay == site.relay);
    // Before they are written: a kill in between loses a digest, and does not repeat all of them.
    site.records.keep(&site.relay, KEPT, &now.0.to_string()).await?;
    for rows in rows.chunk_by(|a, b| a.recipient == b.recipient) {
        if let Err(error) = send(site, &settings.link, hostname, rows, outbound).await {
            tracing::error!(%error, "a digest could not be written");
        }
    }
    Ok(())
}

async fn send<O: Outbound>(
    site: &Site,
    link: &str,
    hostname: &str,
    rows: &[QuarantineRow],
    outbound: &O,
) -> Result<(), SpoolError> {
    let Some(first) = rows.first() else { return Ok(()) };
    let (to, now) = (&first.recipient, wall_clock());
    let mut draft = site.spool.draft()?;
    let subject = format!("{} messages to you are in quarantine", rows.len());
    let text = mail(hostname, &draft.id().to_string(), Date::new(now), (to, &subject, &body(link, rows)));
    draft.write(text.as_bytes()).await?;
    let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), forwarded: None };
    let mut letter = Letter::new(&envelope, Origin::Own, "", "", now.0);
    letter.subject = subject;
    letter.eight_bit = true;
    letter.to = vec![LetterTo { address: to.clone(), notify: None, orcpt: None }];
    let id = draft.commit(letter.write()).await?;
    outbound.send(id, Arc::new(letter), vec![0]);
    Ok(())
}

fn body(link: &str, rows: &[QuarantineRow]) -> String {
    let mut body =
        "These messages were taken for spam and kept. If one of them is wanted, its link opens a page where it \
                    can be released; nothing happens by opening a link.\n\n"
            .to_owned();
    for row in rows.iter().take(NAMED_MAX) {
        let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(100).collect() };
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
