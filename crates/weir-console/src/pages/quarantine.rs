//! Mail that the scan keeps: the list, one message with its reasons and a safe look into it, release and delete.

use super::alike::{QUEUES, groups, name_of};
use super::held::{headers, title};
use super::senders::of_mail;
use super::{Asking, NOT_SAID_WHAT, NOT_SAID_WHICH, PageResult, Sent, Trouble, ended, query, refused};
use crate::form::Form;
use crate::frame::{Here, Sheet, back, empty, mails, status, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::preview;
use crate::session::Visit;
use crate::site::Site;
use crate::trouble::sentence;
use crate::words::{count, grouped, seconds, size, time};
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use serde_json::Value;
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{
    Authority, QuarantineDecision, QuarantineEntry, QuarantinePage, QuarantineSelection, QuarantineTotal,
};

/// How many rows one table has.
const SHOWN_MAX: usize = 200;
/// Among this many of the newest mails, similar ones are combined into one row.
const GROUPED_MAX: usize = 1_000;
/// At most this many are counted while somebody waits for the page, which takes some milliseconds.
const COUNTED_MAX: i64 = 2_000;

pub(super) async fn list(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let (queue, wanted) = (asked.value("queue"), asked.value("q"));
    let selection = QuarantineSelection {
        queue: queue.to_owned(),
        text: wanted.to_owned(),
        all: true,
        ..QuarantineSelection::default()
    };
    let (shown, more) = site.mail.quarantine.newest(&selection, GROUPED_MAX).await?;
    let totals = totals(&site).await?;
    let table = if shown.is_empty() {
        let how = if totals.is_empty() {
            html!("What the scanners find is kept here, and it can still be released to its recipients.")
        } else {
            html!("Choose another quarantine, or other words.")
        };
        empty("Nothing is here.", &how)
    } else {
        table(&visit, &shown, &here(queue, wanted))
    };
    let rest = if more || groups(&shown).len() > SHOWN_MAX {
        html!("<p class=\"faint\">These are the newest. Search to see others.</p>")
    } else {
        Html::none()
    };
    let all: i64 = totals.iter().map(|total| total.messages).sum();
    let bytes: i64 = totals.iter().map(|total| total.bytes).sum();
    let lead = match all {
        0 => "The quarantine is empty.".to_owned(),
        all => format!(
            "{}, {} in all. Each is deleted when its time is over.",
            count(all, "message"),
            size(bytes.max(0) as u64)
        ),
    };
    let parts = [
        html!("<h1>Quarantine</h1><p class=\"lead\">{}</p>", lead),
        tabs(&totals, queue),
        html!(
            "<form class=\"filter\"><input type=\"hidden\" name=\"queue\" value=\"{}\">\
             <label>Search <input type=\"search\" name=\"q\" value=\"{}\" placeholder=\"subject, address, reason or id\"></label><button>Search</button></form>",
            queue,
            wanted
        ),
        html!("{}{}", table, rest),
        html!(
            "<p><a href=\"/rules\">Rules that people made</a> block more than what the scanners find. \
             <a href=\"/senders\">Senders</a> can be allowed or blocked.</p>"
        ),
    ];
    Ok(Sheet::live("Quarantine", Here::Quarantine, &parts).page(&site, &visit).await)
}

/// How much mail there is: counted now if that is quick, and otherwise as of the last look.
async fn totals(site: &Site) -> Result<Vec<QuarantineTotal>, Trouble> {
    let pulse = site.pulse().await;
    match pulse.quarantined("") {
        few if few < COUNTED_MAX => Ok(site.mail.quarantine.totals().await?),
        _ => Ok(pulse.quarantine.clone()),
    }
}

fn here(queue: &str, wanted: &str) -> String {
    html!("/quarantine?queue={}&q={}", Piece(queue), Piece(wanted)).into_string()
}

fn tabs(totals: &[QuarantineTotal], current: &str) -> Html {
    let tab = |(queue, name): (&str, &str), number: i64| {
        let marked = if queue == current { "page" } else { "false" };
        html!(
            "<li><a href=\"/quarantine?queue={}\" aria-current=\"{}\">{} <b>{}</b></a></li>",
            Piece(queue),
            marked,
            name,
            grouped(number.max(0) as u64)
        )
    };
    let number = |queue: &str| totals.iter().filter(|total| total.queue == queue).map(|total| total.messages).sum();
    let all = tab(("", "all"), totals.iter().map(|total| total.messages).sum());
    let each: Html = QUEUES.into_iter().map(|queue| tab(queue, number(queue.0))).collect();
    html!("<ul class=\"tabs\">{}{}</ul>", all, each)
}

fn table(visit: &Visit, entries: &[QuarantineEntry], here: &str) -> Html {
    let columns = html!(
        "<th>Found</th><th>Subject and reason</th><th>From</th><th>To</th><th class=\"number\">Size</th><th>Since</th><th>Deleted</th>"
    );
    let choices = html!(
        "<details class=\"ask\"><summary class=\"button\">Release…</summary><p>This sends the chosen mail on as it is. Infected mail is released one by one, \
         on its own page, with a reason.</p><label>To somebody else instead <input type=\"email\" name=\"to\" maxlength=\"320\"></label>\
         <button name=\"action\" value=\"release\">Release the chosen</button></details>\
         <details class=\"ask\"><summary class=\"button danger\">Delete…</summary><p>This drops the chosen mail. Nobody is told, and it cannot be undone.</p>\
         <button class=\"danger\" name=\"action\" value=\"delete\">Delete the chosen</button></details>"
    );
    mails(
        visit,
        ("quarantine/decide", here),
        &columns,
        &groups(entries).iter().take(SHOWN_MAX).map(|group| group.row()).collect(),
        &choices,
    )
}

pub(super) async fn page(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(message): Path<String>,
) -> PageResult {
    let page = site.mail.quarantine.show(&message).await?;
    let preview = preview::of(page.file.clone()).await;
    let trail = super::audit::trail(&site, &page.entry.message, 20).await?;
    let entry = &page.entry;
    let body = html!(
        "<h1>{}</h1><p>{} <span class=\"faint\">Message {}{}</span></p>\
         <section class=\"why\"><h2>Why</h2><p>{}</p><h2>Until when</h2><p>{}</p>\
         <h2>What you can do</h2>{}</section>\
         <section><h2>The mail</h2><dl class=\"facts\"><dt>From</dt><dd>{}</dd><dt>To</dt><dd>{}</dd><dt>Sent by</dt><dd>{}</dd><dt>Here since</dt><dd>{}</dd>\
         <dt>Size</dt><dd>{}</dd></dl></section>{}{}{}{}",
        title(&entry.subject),
        status(&entry.queue, name_of(&entry.queue)),
        entry.message,
        super::trace::link(&entry.message),
        sentence(&entry.reason),
        until(entry),
        choices(&visit, &page),
        if entry.sender.is_empty() { "<>" } else { &entry.sender },
        entry.recipients.iter().take(50).cloned().collect::<Vec<_>>().join(", "),
        match entry.user.as_str() {
            "" => html!("{}, from outside", entry.source),
            user => html!("<a href=\"/throttle/users/{}\">{}</a> at {}", Piece(user), user, entry.source),
        },
        time(&entry.since),
        size(entry.size_bytes.max(0) as u64),
        findings(&page.verdict),
        preview.html(),
        headers(&page.header),
        trail
    );
    Ok(Sheet::new("Quarantined mail", Here::Quarantine, body).page(&site, &visit).await)
}

/// When it will be deleted.
pub(super) fn until(entry: &QuarantineEntry) -> Html {
    match &entry.until {
        Some(until) => html!("It is deleted {}, or earlier if the quarantine is full.", time(until)),
        None => html!("It is kept until its time is over, and then deleted."),
    }
}

fn choices(visit: &Visit, page: &QuarantinePage) -> Html {
    let entry = &page.entry;
    let to = count(entry.recipients.len() as u64, "recipient");
    let common = html!(
        "{}{}<input type=\"hidden\" name=\"message\" value=\"{}\">",
        token(visit),
        back("/quarantine"),
        entry.message
    );
    let instead = html!("<label>To somebody else instead <input type=\"email\" name=\"to\" maxlength=\"320\"></label>");
    let release = match (entry.queue == "virus", visit.may(Role::Admin)) {
        (true, false) => html!("<p class=\"faint\">Infected mail is released by administrators only.</p>"),
        (true, true) => html!(
            "<details class=\"ask\"><summary class=\"button danger\">Release…</summary><p>A scanner says that this mail is dangerous. It goes to {} as it is. \
             Your reason is recorded in the audit.</p><form method=\"post\" action=\"/quarantine/decide\">{}<label>Why do you release it? \
             <input name=\"reason\" required minlength=\"5\" maxlength=\"200\"></label>{}\
             <button class=\"danger\" name=\"action\" value=\"release\">Release infected mail to {}</button></form></details>",
            to,
            common,
            instead,
            to
        ),
        (false, _) => html!(
            "<details class=\"ask\"><summary class=\"button\">Release…</summary><p>{}</p><form method=\"post\" action=\"/quarantine/decide\">{}{}\
             <button name=\"action\" value=\"release\">Release to {} as it is</button></form></details>",
            risk(&entry.queue),
            common,
            instead,
            to
        ),
    };
    // Mail about which nobody decides is deleted in the end: the safe action is to do that sooner.
    html!(
        "<div class=\"actions\"><details class=\"ask\"><summary class=\"button main\">Delete…</summary><p>This drops the mail. Nobody is told, and it cannot be undone.</p>\
         <form method=\"post\" action=\"/quarantine/decide\">{}<button class=\"danger\" name=\"action\" value=\"delete\">Delete this mail</button></form></details>{}{}{}</div>\
         <p class=\"faint\">If you do nothing, it is deleted then.</p>",
        common,
        release,
        of_mail(visit, entry),
        alike(entry)
    )
}

/// The risk of releasing this mail unchanged.
fn risk(queue: &str) -> &'static str {
    match queue {
        "ext" => "It has an attachment that runs on a double click, which is why it is here. It goes as it is.",
        "spam" => "It goes to whom it was for, as it is.",
        _ => "No scanner could say that it is harmless. It goes as it is.",
    }
}

/// Links to lists of similar mail: from the same sender, or with the same subject.
fn alike(entry: &QuarantineEntry) -> Html {
    let link = |words: &str, text: &str| match text.trim() {
        "" => Html::none(),
        text => html!("<a class=\"button\" href=\"/quarantine?q={}\">{}</a>", Piece(text), words),
    };
    html!("{}{}", link("Others with this subject", &entry.subject), link("Others from this sender", &entry.sender))
}

/// The results of each scanner.
fn findings(verdict: &Value) -> Html {
    let Some(findings) = verdict["findings"].as_array().filter(|findings| !findings.is_empty()) else {
        return Html::none();
    };
    let row = |finding: &Value| {
        let took =
            finding["took"]["secs"].as_f64().unwrap_or(0.0) + finding["took"]["nanos"].as_f64().unwrap_or(0.0) / 1e9;
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            scanner(finding["scanner"].as_str().unwrap_or("–")),
            outcome(&finding["outcome"]),
            finding["place"].as_str().unwrap_or_default(),
            seconds(took)
        )
    };
    html!(
        "<section><h2>What the scanners said</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Scanner</th><th>Outcome</th><th>Where</th>\
         <th class=\"number\">Took</th></tr></thead><tbody>{}</tbody></table></div></section>",
        findings.iter().take(100).map(row).collect::<Html>()
    )
}

/// A scanner's name; for rules that people made it is a link to them.
fn scanner(name: &str) -> Html {
    if name == "rules" { html!("<a href=\"/rules\">rules</a>") } else { html!("{}", name) }
}

/// An outcome in words: `infected: Eicar`.
fn outcome(value: &Value) -> Html {
    match value {
        Value::String(word) => status(word, word),
        Value::Object(fields) => fields
            .iter()
            .map(|(kind, inner)| {
                let more = match inner {
                    Value::Object(inner) => {
                        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                        inner.iter().map(|(_, value)| text(value)).collect::<Vec<_>>().join(", ")
                    }
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                html!("{} {}", status(kind, kind), more)
            })
            .collect(),
        _ => html!("–"),
    }
}

pub(super) async fn decide(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let (decision, selection) = match chosen(&sent) {
        Ok(chosen) => chosen,
        Err(problem) => return Ok(refused(&site, &visit, &sent, ("/quarantine", problem.to_owned()))),
    };
    let decision = match decision {
        QuarantineDecision::Release => match QuarantineDecision::release(sent.value("to")) {
            Ok(decision) => decision,
            Err(error) => return Ok(ended(&site, &visit, &sent, ("/quarantine", Err::<String, _>(error)))),
        },
        decision => decision,
    };
    if let Some(problem) = danger(&site, &visit, &sent, (&selection, &decision)).await? {
        return Ok(refused(&site, &visit, &sent, ("/quarantine", problem)));
    }
    // This may have changed since it was checked above, so the decision is made row by row.
    let authority = match visit.may(Role::Admin) {
        true => Authority::Administrator { reason: sent.value("reason").to_owned() },
        false => Authority::Operator,
    };
    let decided = site.mail.quarantine.decide(&selection, &decision, &authority, &visit.actor()).await;
    let words = decided.map(|result| {
        let (mails, to) = (count(result.messages.len() as u64, "mail"), count(result.recipients as u64, "recipient"));
        match &decision {
            QuarantineDecision::Release => format!("{mails} to {to} on the way."),
            QuarantineDecision::ReleaseTo(other) => format!("{mails} on the way to {}.", other.as_str()),
            QuarantineDecision::Delete => format!("{mails} to {to} deleted."),
        }
    });
    Ok(ended(&site, &visit, &sent, ("/quarantine", words)))
}

/// What the visitor wants to do with which mail, or what is missing.
pub(super) fn chosen(sent: &Form) -> Result<(QuarantineDecision, QuarantineSelection), &'static str> {
    let decision = match sent.value("action") {
        "release" => QuarantineDecision::Release,
        "delete" => QuarantineDecision::Delete,
        _ => return Err(NOT_SAID_WHAT),
    };
    // The checkbox of a group stands for all of its mails.
    let chosen = sent.values("message");
    let messages =
        chosen.iter().flat_map(|ids| ids.split(',')).filter(|id| !id.is_empty()).map(str::to_owned).collect();
    let selection = QuarantineSelection { messages, ..QuarantineSelection::default() };
    if selection.messages.is_empty() { Err(NOT_SAID_WHICH) } else { Ok((decision, selection)) }
}

/// Why infected mail may not be released in this way.
async fn danger(
    site: &Site,
    visit: &Visit,
    sent: &Form,
    (selection, decision): (&QuarantineSelection, &QuarantineDecision),
) -> Result<Option<String>, Trouble> {
    if *decision == QuarantineDecision::Delete {
        return Ok(None);
    }
    let (entries, more) = site.mail.quarantine.newest(selection, selection.messages.len()).await?;
    if more {
        return Ok(Some("These are too many to look at before they go. Choose fewer at once.".to_owned()));
    }
    let infected: Vec<&QuarantineEntry> = entries.iter().filter(|entry| entry.queue == "virus").collect();
    let [_] = infected.as_slice() else {
        let many = "Infected mail is released one by one, on its own page, with a reason.";
        return Ok((!infected.is_empty()).then(|| many.to_owned()));
    };
    let reason = sent.value("reason");
    if !visit.may(Role::Admin) {
        return Ok(Some("Infected mail is released by administrators only.".to_owned()));
    }
    if entries.len() > 1 || reason.chars().count() < 5 {
        return Ok(Some(
            "Infected mail is released one by one, on its own page, with a reason of five letters or more.".to_owned(),
        ));
    }
    Ok(None)
}
