//! Summarises waiting mail in a few lines that let a person decide: how much of it is alike, and where it came from.
//!
//! A worm sends one subject to many people from one place; an invitation does, too, but its owner knows the subject. So a notice
//! names what repeats before it lists single mails.

use crate::brought::Brought;
use crate::counted::count;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use weir_scan::plain::shown;
use weir_store::records::{HeldFilter, HeldRecords, HeldRow, RecordsError};

/// How many held mails are named one by one.
pub(super) const NAMED_MAX: usize = 10;
/// How many are counted; a notice about more says "at least".
const COUNTED_MAX: usize = 1_000;
/// How much of a subject is shown, in characters.
const QUOTED_MAX: usize = 80;
/// How many client addresses are named.
const SOURCES_MAX: usize = 5;
/// How many held mails are looked into.
pub(super) const LOOKED_INTO_MAX: usize = 5;
/// How many of the files in them are named.
const FILES_NAMED_MAX: usize = 3;

/// Somebody's held recipients up to this entry of the delay queue, oldest first.
pub(crate) async fn waiting(held: &HeldRecords, identity: &str, up_to: i64) -> Result<Vec<HeldRow>, RecordsError> {
    let filter = HeldFilter { identity: identity.to_owned(), ..HeldFilter::default() };
    let mut rows = held.list(&filter, COUNTED_MAX as i64).await?;
    rows.retain(|row| row.entry <= up_to);
    Ok(rows)
}

/// What somebody else wrote, so that it is only read in a mail of ours: nothing that turns the line round, no quote that ends the quote,
/// and no address that a mail program would make a link of.
pub(super) fn quoted(text: &str) -> String {
    shown(text, QUOTED_MAX).replace('"', "'").replace("://", "[://]")
}

/// What the rows of a delay queue have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    rows: &'a [HeldRow],
}

impl<'a> Evidence<'a> {
    /// The evidence in these rows, oldest first.
    pub(crate) fn of(rows: &'a [HeldRow]) -> Evidence<'a> {
        Evidence { rows }
    }

    /// As lines of a mail.
    pub(crate) fn text(self) -> String {
        if self.rows.is_empty() {
            return "What waits could not be read when this was written; `weir held list` shows it.\n".to_owned();
        }
        let mut text = String::new();
        let messages: BTreeSet<&str> = self.rows.iter().map(|row| row.message.as_str()).collect();
        let at_least = if self.rows.len() >= COUNTED_MAX { "at least " } else { "" };
        let (recipients, mails) = (count(self.rows.len(), "recipient"), count(messages.len(), "mail"));
        let _ = writeln!(text, "What waits: {at_least}{recipients} in {mails}.");
        if let Some((subject, count)) = self.commonest_subject().filter(|(_, count)| *count > 1) {
            let _ = writeln!(text, "  {count} of the mails have the subject \"{}\".", quoted(subject));
        }
        let sources: BTreeSet<&str> = self.rows.iter().map(|row| row.source.as_str()).collect();
        let named: Vec<&str> = sources.iter().copied().take(SOURCES_MAX).collect();
        let more = if sources.len() > SOURCES_MAX {
            format!(" and {} more", sources.len() - SOURCES_MAX)
        } else {
            String::new()
        };
        let _ = writeln!(text, "  They came from {}{more}.", named.join(", "));
        for row in self.rows.iter().take(NAMED_MAX) {
            let (to, subject) = (quoted(&row.recipient), quoted(&row.subject));
            let _ = writeln!(text, "  to {to}  \"{subject}\"  from {}", row.source);
        }
        if self.rows.len() > NAMED_MAX {
            let _ = writeln!(text, "  and {} more", self.rows.len() - NAMED_MAX);
        }
        text
    }

    /// The subject that most mails have, and how many; each mail counts once, however many recipients of it wait.
    fn commonest_subject(self) -> Option<(&'a str, usize)> {
        let mut mails: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for row in self.rows {
            mails.entry(&row.subject).or_default().insert(&row.message);
        }
        mails.into_iter().map(|(subject, mails)| (subject, mails.len())).max_by_key(|(_, count)| *count)
    }
}

/// What these mails bring along, as lines of a mail; nothing if there are none that could be looked into.
pub(super) fn brought_text(mails: &[Brought]) -> String {
    let mut text = String::new();
    if mails.is_empty() {
        return text;
    }
    let mut files: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for mail in mails {
        let of_mail: BTreeSet<(&str, &str)> =
            mail.attachments.iter().map(|file| (file.name.as_str(), file.media_type.as_str())).collect();
        of_mail.into_iter().for_each(|file| *files.entry(file).or_default() += 1);
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, mails)| Reverse(*mails));
    let looked = count(mails.len(), "mail");
    let unseen = mails.iter().filter(|mail| mail.unseen.is_some()).count();
    if files.is_empty() && unseen == 0 {
        let _ = writeln!(text, "  Of {looked} looked into, none brings a file.");
    }
    for ((name, media_type), mails) in files.iter().take(FILES_NAMED_MAX) {
        let brings = if *mails == 1 { "brings" } else { "bring" };
        let name = if name.is_empty() { "a file without a name".to_owned() } else { format!("\"{}\"", quoted(name)) };
        let _ = writeln!(text, "  Of {looked} looked into, {mails} {brings} {name} ({}).", quoted(media_type));
    }
    if files.len() > FILES_NAMED_MAX {
        let _ = writeln!(text, "  They bring {} besides.", count(files.len() - FILES_NAMED_MAX, "other file"));
    }
    if unseen > 0 {
        let _ = writeln!(text, "  Not everything in {unseen} of these mails could be seen.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brought::Attachment;

    fn mail(names: &[&str]) -> Brought {
        let file = |name: &&str| Attachment {
            name: (*name).to_owned(),
            media_type: "application/octet-stream".to_owned(),
            size_bytes: 7,
        };
        Brought { attachments: names.iter().map(file).collect(), unseen: None }
    }

    #[test]
    fn what_most_mails_bring_comes_first_and_what_was_not_seen_is_no_answer() {
        assert_eq!(brought_text(&[]), "");
        assert_eq!(brought_text(&[mail(&[])]), "  Of 1 mail looked into, none brings a file.\n");
        let unseen = brought_text(&[mail(&[]), Brought::unknown()]);
        assert_eq!(unseen, "  Not everything in 1 of these mails could be seen.\n");
        let worm = [mail(&["a.txt", "x\".exe"]), mail(&["x\".exe", "x\".exe"]), mail(&["b", "", "c"])];
        let text = brought_text(&worm);
        let first = "  Of 3 mails looked into, 2 bring \"x'.exe\" (application/octet-stream).\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("1 brings a file without a name (application/octet-stream).\n"), "{text}");
        assert!(text.ends_with("  They bring 2 other files besides.\n"), "{text}");
    }

    fn row(message: usize, subject: &str, source: &str) -> HeldRow {
        HeldRow {
            message: format!("m{message}"),
            recipient: format!("new{message}@example.net"),
            subject: subject.into(),
            source: source.into(),
            ..HeldRow::default()
        }
    }

    #[test]
    fn what_repeats_comes_first() {
        let mut rows = vec![row(0, "lunch", "192.0.2.1"), row(0, "lunch", "192.0.2.1")];
        rows.extend((1..20).map(|n| row(n, "look at this", "203.0.113.9")));
        let text = Evidence::of(&rows).text();
        assert!(text.starts_with("What waits: 21 recipients in 20 mails.\n"), "{text}");
        assert!(text.contains("  19 of the mails have the subject \"look at this\".\n"), "{text}");
        assert!(text.contains("  They came from 192.0.2.1, 203.0.113.9.\n"), "{text}");
        assert!(text.ends_with("  and 11 more\n"), "{text}");
    }

    #[test]
    fn what_a_worm_writes_is_quoted_and_leads_nowhere() {
        let subject = "\u{202e}it is right\": send any mail to http://evil.example/click";
        let text = Evidence::of(&[row(1, subject, "192.0.2.1")]).text();
        assert!(!text.contains('\u{202e}') && !text.contains("http://"), "{text}");
        assert!(text.contains("it is right': send any mail to http[://]evil.example/click\""), "{text}");
    }

    #[test]
    fn a_single_mail_repeats_nothing() {
        let text = Evidence::of(&[row(1, "lunch", "192.0.2.1")]).text();
        assert!(!text.contains("have the subject") && text.contains("to new1@example.net  \"lunch\""), "{text}");
    }
}
