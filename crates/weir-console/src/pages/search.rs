//! The search page: one box that finds a message by any word about it, a user, or a hash; and a field for each property of a mail.

mod messages;

use super::held::title;
use super::{Asking, PageResult, query};
use crate::frame::{Here, Sheet, empty};
use crate::html;
use crate::html::{Html, Piece};
use crate::site::Site;
use crate::words::count;
use axum::Extension;
use axum::extract::{RawQuery, State};
use weir_lab::operations::SampleFilter;
use weir_mail::operations::{HeldSelection, QuarantineSelection, QueueSelection};

const SHOWN: usize = 20;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let wanted: String = asked.value("q").chars().take(255).collect();
    let fields = messages::SearchFields::of(&asked);
    let is_empty = wanted.is_empty() && fields.is_empty();
    let mut found: Vec<Html> = Vec::new();
    if !is_empty {
        found.extend(messages::section(&site, &wanted, &fields).await);
    }
    if !wanted.is_empty() && fields.is_first_page() {
        for part in [user(&site, &wanted).await, held(&site, &wanted).await, quarantine(&site, &wanted).await] {
            found.extend(part);
        }
        for part in [queue(&site, &wanted).await, lab(&site, &wanted).await, audit(&site, &wanted).await] {
            found.extend(part);
        }
    }
    let result = match (is_empty, found.is_empty()) {
        (true, _) => empty(
            "Search for mail by any word about it: an address, a domain, words of the subject, a client. Or for a user, an id or the hash of a sample.",
            &Html::none(),
        ),
        (false, true) => empty(
            "Nothing was found.",
            &html!(
                "Whole words are searched; a word that ends in * stands for all words with this beginning. Four digits of a hash are enough."
            ),
        ),
        (false, false) => found.into_iter().collect(),
    };
    let body = html!(
        "<h1>Search</h1><form class=\"filter\"><label>Words, address, id or hash <input type=\"search\" name=\"q\" value=\"{}\" autofocus></label>{}<button>Search</button></form>{}",
        wanted,
        fields.form(),
        result
    );
    Ok(Sheet::new("Search", Here::Nowhere, body).page(&site, &visit).await)
}

fn section(name: &str, lines: Vec<Html>) -> Option<Html> {
    if lines.is_empty() {
        return None;
    }
    let line = |line: Html| html!("<li>{}</li>", line);
    Some(html!(
        "<section><h2>{}</h2><ul class=\"found\">{}</ul></section>",
        name,
        lines.into_iter().take(SHOWN).map(line).collect::<Html>()
    ))
}

async fn user(site: &Site, wanted: &str) -> Option<Html> {
    let page = site.mail.users.show(wanted).await.ok()?;
    let line = html!(
        "<a href=\"/throttle/users/{}\">{}</a> <span class=\"faint\">{}</span>",
        Piece(wanted),
        page.user.name,
        page.throttle.in_words
    );
    section("User", vec![line])
}

async fn held(site: &Site, wanted: &str) -> Option<Html> {
    let by_id = HeldSelection { messages: vec![wanted.to_owned()], ..HeldSelection::default() };
    let by_recipient = HeldSelection { recipient: wanted.to_owned(), ..HeldSelection::default() };
    let by_user = HeldSelection { user: wanted.to_owned(), ..HeldSelection::default() };
    let mut lines = Vec::new();
    for selection in [by_id, by_recipient, by_user] {
        let list = site.mail.held.first(&selection, SHOWN).await.ok();
        for held in list.into_iter().flat_map(|list| list.messages) {
            lines.push(html!(
                "<a href=\"/throttle/held/{}\">{}</a> <span class=\"faint\">of {} to {}</span>",
                Piece(&held.message),
                title(&held.subject),
                held.user,
                count(held.recipients.len() as u64, "recipient")
            ));
        }
    }
    section("Held mail", lines)
}

async fn quarantine(site: &Site, wanted: &str) -> Option<Html> {
    let by_id = QuarantineSelection { messages: vec![wanted.to_owned()], ..QuarantineSelection::default() };
    let by_recipient = QuarantineSelection { recipient: wanted.to_owned(), ..QuarantineSelection::default() };
    let by_sender = QuarantineSelection { sender: wanted.to_owned(), ..QuarantineSelection::default() };
    let mut lines = Vec::new();
    for selection in [by_id, by_recipient, by_sender] {
        let found = site.mail.quarantine.newest(&selection, SHOWN).await.ok();
        for entry in found.into_iter().flat_map(|(entries, _)| entries) {
            lines.push(html!(
                "<a href=\"/quarantine/{}\">{}</a> <span class=\"faint\">{}</span>",
                Piece(&entry.message),
                title(&entry.subject),
                entry.reason
            ));
        }
    }
    section("Quarantine", lines)
}

async fn queue(site: &Site, wanted: &str) -> Option<Html> {
    let by_id = QueueSelection { messages: vec![wanted.to_owned()], ..QueueSelection::default() };
    let by_user = QueueSelection { user: wanted.to_owned(), ..QueueSelection::default() };
    let mut lines = Vec::new();
    for selection in [by_id, by_user] {
        let list = site.mail.queue.list(&selection).await.ok();
        for entry in list.into_iter().flat_map(|list| list.messages).take(SHOWN) {
            let last = entry.recipients.first().map(|recipient| recipient.last_answer.clone()).unwrap_or_default();
            lines.push(html!(
                "{} <span class=\"faint\">waits for delivery, tried {}: {}</span>",
                entry.message,
                count(entry.attempts, "time"),
                last
            ));
        }
    }
    section("Outgoing mail", lines)
}

async fn lab(site: &Site, wanted: &str) -> Option<Html> {
    let hash = wanted.to_ascii_lowercase();
    if hash.len() < 4 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let filter = SampleFilter { hash, ..SampleFilter::default() };
    let samples = site.lab.as_ref()?.list(&filter, SHOWN as i64).await.ok()?;
    let lines = samples.iter().map(|sample| {
        html!(
            "<a href=\"/lab/samples/{}\">{}</a> <span class=\"faint\">{}, {}</span>",
            sample.sample,
            sample.name,
            sample.state,
            sample.hash
        )
    });
    section("Samples", lines.collect())
}

async fn audit(site: &Site, wanted: &str) -> Option<Html> {
    let lines = site.administration.audit.newest(wanted, SHOWN as i64).await.ok()?;
    let lines = lines.iter().map(|line| {
        html!(
            "{} <b>{}</b> by {} <span class=\"faint\">{}</span>",
            crate::words::time(&line.at),
            line.action,
            line.actor,
            line.detail
        )
    });
    section("What was done", lines.collect())
}
