//! What the held mail of a stopped user has in common, so that a person sees at a glance whether it is a worm or an invitation.
//!
//! It is computed from the list of held mail that the page has read anyway. Whom the account knew before is not in that list, so nothing is
//! said about it here: correspondents and colleagues can wait, too.

use crate::html;
use crate::html::{Html, Piece};
use crate::words::{count, cut, percent};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_mail::operations::HeldMessage;

/// How many subjects and networks are named.
const NAMED_MAX: usize = 3;
/// Characters of a subject that stands in a sentence.
const SUBJECT_SHOWN: usize = 120;

/// What some held mail has in common.
#[derive(Debug, PartialEq)]
pub(crate) struct Evidence {
    mails: usize,
    recipients: usize,
    /// Domains of the recipients.
    domains: usize,
    /// Subjects and how many mails have them, the most frequent first.
    subjects: Vec<(String, usize)>,
    /// Networks from which the mail was submitted and how many mails came from each, the most frequent first.
    networks: Vec<(String, usize)>,
    /// Whether there is more mail than was examined.
    more: bool,
}

impl Evidence {
    /// The evidence of these mails; `more` if there are more than these.
    pub(crate) fn of(mails: &[HeldMessage], more: bool) -> Evidence {
        let recipients = || mails.iter().flat_map(|held| &held.recipients).map(|to| to.address.as_str());
        let domain = |address: &str| address.rsplit_once('@').map(|(_, domain)| domain.to_ascii_lowercase());
        Evidence {
            mails: mails.len(),
            recipients: recipients().count(),
            domains: recipients().filter_map(domain).collect::<BTreeSet<_>>().len(),
            subjects: commonest(mails.iter().map(|held| held.subject.trim().to_owned())),
            networks: commonest(mails.iter().map(|held| network(&held.source))),
            more,
        }
    }

    /// As a list of sentences.
    pub(crate) fn html(&self) -> Html {
        if self.mails == 0 {
            return Html::none();
        }
        let at_least = if self.more { "At least " } else { "" };
        let how_many = html!(
            "<li>{}<b>{}</b> to <b>{}</b> at {}.</li>",
            at_least,
            count(self.mails as u64, "mail"),
            count(self.recipients as u64, "recipient"),
            count(self.domains as u64, "domain")
        );
        html!("<ul class=\"evidence\">{}{}{}</ul>", how_many, self.alike(), self.places())
    }

    /// The same as plain sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        if self.mails == 0 {
            return Vec::new();
        }
        let at_least = if self.more { "at least " } else { "" };
        let mut said = vec![format!(
            "What waits: {at_least}{} to {} at {}.",
            count(self.mails as u64, "mail"),
            count(self.recipients as u64, "recipient"),
            count(self.domains as u64, "domain")
        )];
        if let [(subject, same), ..] = self.subjects.as_slice()
            && *same > 1
        {
            let part = percent(*same as f64 / self.mails as f64);
            said.push(format!("{part} of these have the same subject: \"{}\".", cut(subject, SUBJECT_SHOWN)));
        }
        let named: Vec<&str> = self.networks.iter().take(NAMED_MAX).map(|(network, _)| network.as_str()).collect();
        said.push(format!("They came from {}.", named.join(", ")));
        said
    }

    fn alike(&self) -> Html {
        match self.subjects.as_slice() {
            [] => Html::none(),
            [(_, 1), ..] => html!("<li>No two of them have the same subject.</li>"),
            [(subject, same), ..] => html!(
                "<li><b>{}</b> of them have the same subject: <a href=\"/search?q={}\">{}</a></li>",
                percent(*same as f64 / self.mails as f64),
                Piece(subject),
                if subject.is_empty() { "(no subject)" } else { subject }
            ),
        }
    }

    fn places(&self) -> Html {
        let named: Vec<String> =
            self.networks.iter().take(NAMED_MAX).map(|(network, mails)| format!("{network} ({mails})")).collect();
        let more = match self.networks.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {}", count(more as u64, "other")),
        };
        html!(
            "<li>Handed in from <b>{}</b>: {}{}</li>",
            count(self.networks.len() as u64, "network"),
            named.join(", "),
            more
        )
    }
}

/// The most frequent first; of two that are equally frequent, the one that sorts first.
fn commonest(of: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    of.for_each(|text| *counted.entry(text).or_default() += 1);
    let mut counted: Vec<(String, usize)> = counted.into_iter().collect();
    counted.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    counted
}

/// The network of a client: its /24, or its /48.
fn network(source: &str) -> String {
    match source.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(v4)) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        Ok(IpAddr::V6(v6)) => {
            let [a, b, c, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}::/48")
        }
        Err(_) => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_mail::operations::HeldRecipient;

    fn held(number: usize, subject: &str, source: &str) -> HeldMessage {
        let to = |domain: &str| HeldRecipient { address: format!("new{number}@{domain}"), expected: None };
        HeldMessage {
            message: format!("m{number}"),
            user: "ann".into(),
            sender: "ann@example.org".into(),
            subject: subject.into(),
            source: source.into(),
            since: String::new(),
            stopped: true,
            relay: String::new(),
            relay_down: false,
            file_missing: false,
            recipients: vec![to("example.net"), to("Example.COM")],
        }
    }

    #[test]
    fn what_repeats_is_said_first() {
        let mut mails = vec![held(0, "lunch", "192.0.2.1")];
        mails.extend((1..4).map(|number| held(number, "look at <this>", "203.0.113.9")));
        let evidence = Evidence::of(&mails, false);
        assert_eq!((evidence.mails, evidence.recipients, evidence.domains), (4, 8, 2));
        assert_eq!(evidence.networks, [("203.0.113.0/24".to_owned(), 3), ("192.0.2.0/24".to_owned(), 1)]);
        let page = evidence.html().into_string();
        assert!(page.contains("<b>4 mails</b> to <b>8 recipients</b> at 2 domains"), "{page}");
        assert!(page.contains("<b>75 %</b> of them") && page.contains("look at &lt;this&gt;</a>"), "{page}");
        assert!(page.contains("<b>2 networks</b>: 203.0.113.0/24 (3), 192.0.2.0/24 (1)"), "{page}");
        let said = evidence.sentences();
        assert!(
            said[0].contains("4 mails to 8 recipients at 2 domains") && said[1].contains("\"look at <this>\""),
            "{said:?}"
        );
    }

    #[test]
    fn different_mail_repeats_nothing_and_no_mail_says_nothing() {
        let mails = [held(0, "lunch", "2001:db8:1:2::3"), held(1, "dinner", "somewhere")];
        let page = Evidence::of(&mails, true).html().into_string();
        assert!(page.contains("No two of them") && page.contains("At least ") && page.contains("2001:db8:1::/48"));
        assert!(Evidence::of(&[], false).html().as_str().is_empty());
    }
}
