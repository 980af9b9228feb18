//! Groups similar quarantined mails in one row, so that one decision covers a whole campaign.

use super::held::title;
use crate::frame::{several, status};
use crate::html;
use crate::html::{Html, Piece};
use crate::words::{count, size, time};
use std::collections::BTreeMap;
use weir_mail::operations::QuarantineEntry;

/// How many mails of a group are listed below it.
const NAMED_MAX: usize = 20;

/// The quarantines, with their names for people.
pub(super) const QUEUES: [(&str, &str); 5] = [
    ("virus", "infected"),
    ("ext", "forbidden attachment"),
    ("spam", "spam"),
    ("error", "cannot be scanned"),
    ("limit", "too much to scan"),
];

pub(super) fn name_of(queue: &str) -> &str {
    QUEUES.iter().find(|(known, _)| *known == queue).map_or(queue, |(_, name)| name)
}

/// Mails that are similar, the newest first.
pub(super) struct SimilarMails<'a>(Vec<&'a QuarantineEntry>);

/// Groups these mails, in the order of their newest.
pub(super) fn groups(entries: &[QuarantineEntry]) -> Vec<SimilarMails<'_>> {
    let (mut groups, mut places): (Vec<SimilarMails<'_>>, BTreeMap<_, usize>) = Default::default();
    for entry in entries {
        let place = *places.entry(entry.likeness()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.0.push(entry),
            None => groups.push(SimilarMails(vec![entry])),
        }
    }
    groups
}

impl SimilarMails<'_> {
    /// A row of the table. Its checkbox stands for all mails of the group.
    pub(super) fn row(&self) -> Html {
        let Some(newest) = self.0.first() else { return Html::none() };
        let ids = self.0.iter().map(|entry| entry.message.as_str()).collect::<Vec<_>>().join(",");
        let label = match self.0.len() {
            1 => "Choose this mail".to_owned(),
            many => format!("Choose these {many} mails"),
        };
        let bytes: i64 = self.0.iter().map(|entry| entry.size_bytes.max(0)).sum();
        html!(
            "<tr><td><input type=\"checkbox\" name=\"message\" value=\"{}\" aria-label=\"{}\"></td><td>{}</td>\
             <td class=\"main\"><a href=\"/quarantine/{}\">{}</a><br><small>{}</small>{}</td><td data-name=\"From\">{}</td><td data-name=\"To\">{}</td>\
             <td class=\"number\" data-name=\"Size\">{}</td><td data-name=\"Since\">{}</td><td data-name=\"Deleted\">{}</td></tr>",
            ids,
            label,
            status(&newest.queue, name_of(&newest.queue)),
            Piece(&newest.message),
            title(&newest.subject),
            newest.reason,
            self.others(),
            several(&self.all(|entry| std::slice::from_ref(&entry.sender))),
            several(&self.all(|entry| entry.recipients.as_slice())),
            size(bytes as u64),
            time(&newest.since),
            newest.until.as_deref().map_or_else(|| html!("–"), time)
        )
    }

    /// The mails of the group other than the newest.
    fn others(&self) -> Html {
        let Some((_, others)) = self.0.split_first().filter(|(_, others)| !others.is_empty()) else {
            return Html::none();
        };
        let one = |entry: &&QuarantineEntry| {
            html!(
                "<li><a href=\"/quarantine/{}\">{}</a> to {}, {}</li>",
                Piece(&entry.message),
                title(&entry.subject),
                several(&entry.recipients),
                time(&entry.since)
            )
        };
        let more = match others.len().saturating_sub(NAMED_MAX) {
            0 => Html::none(),
            more => html!("<li>and {}</li>", count(more as u64, "other")),
        };
        html!(
            "<details class=\"alike\"><summary>{} like it</summary><ul>{}{}</ul></details>",
            count(others.len() as u64, "more mail"),
            others.iter().take(NAMED_MAX).map(one).collect::<Html>(),
            more
        )
    }

    /// Addresses of all mails, each once.
    fn all<'b>(&'b self, of: impl Fn(&'b QuarantineEntry) -> &'b [String]) -> Vec<String> {
        let mut addresses: Vec<String> = Vec::new();
        for address in self.0.iter().flat_map(|entry| of(entry)) {
            let shown = if address.is_empty() { "<>" } else { address };
            if addresses.iter().all(|known| known != shown) {
                addresses.push(shown.to_owned());
            }
        }
        addresses
    }
}
