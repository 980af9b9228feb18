//! The page of one held message, and the decisions about held mail.

use super::{Asking, NOT_SAID_WHAT, NOT_SAID_WHICH, PageResult, Sent, Trouble, ended, refused};
use crate::form::Form;
use crate::frame::{Here, Sheet, back, choice, mails, status, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::preview;
use crate::session::Visit;
use crate::site::Site;
use crate::trouble::sentence;
use crate::words::{count, size, time};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_mail::operations::{Decision, HeldDone, HeldMessage, HeldPage, HeldSelection};

pub(super) async fn page(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(message): Path<String>,
) -> PageResult {
    let page = site.mail.held.show(&message).await?;
    let preview = preview::of(page.file.clone()).await;
    let trail = super::audit::trail(&site, &page.held.message, 20).await?;
    let head = html!(
        "<h1>{}</h1><p class=\"faint\">Held mail {}{}</p>\
         <section class=\"why\"><h2>Why</h2><p>{}</p><h2>Until when</h2>{}<h2>What you can do</h2>{}</section>",
        title(&page.held.subject),
        page.held.message,
        super::trace::link(&page.held.message),
        sentence(&page.why),
        until(&page),
        choices(&visit, &page)
    );
    let parts = [head, facts(&page), headers(&page.header), preview.html(), trail];
    Ok(Sheet::live("Held mail", Here::Throttle, &parts).page(&site, &visit).await)
}

/// A subject, or that there is none.
pub(super) fn title(subject: &str) -> String {
    if subject.trim().is_empty() { "(no subject)".to_owned() } else { subject.to_owned() }
}

fn until(page: &HeldPage) -> Html {
    let held = &page.held;
    if held.file_missing {
        return html!("<p>It cannot go: its file is missing.</p>");
    }
    if held.relay_down {
        return html!("<p>The relay {} keeps it and is down. It goes when the relay is back.</p>", held.relay);
    }
    if held.stopped {
        return html!("<p>Until somebody decides: {} is stopped, so nothing is sent automatically.</p>", held.user);
    }
    let line = |recipient: &weir_mail::operations::HeldRecipient| {
        let when = recipient.expected.as_deref().map_or_else(|| html!("when a person decides"), time);
        html!("<li>{} goes {}</li>", recipient.address, when)
    };
    html!("<ul>{}</ul>", held.recipients.iter().take(50).map(line).collect::<Html>())
}

fn choices(visit: &Visit, page: &HeldPage) -> Html {
    let held = &page.held;
    let recipients = count(held.recipients.len() as u64, "recipient");
    let form = |action: &str, class: &str, words: &str| {
        html!(
            "<form method=\"post\" action=\"/throttle/decide\">{}{}<input type=\"hidden\" name=\"message\" value=\"{}\">\
             <button name=\"action\" value=\"{}\" class=\"{}\">{}</button></form>",
            token(visit),
            back("/throttle"),
            held.message,
            action,
            class,
            words
        )
    };
    let first = if held.stopped {
        html!("<a class=\"button main\" href=\"/throttle/users/{}\">Look at {} first</a>", Piece(&held.user), held.user)
    } else {
        Html::none()
    };
    html!(
        "<div class=\"actions\">{}{}{}<details class=\"ask\"><summary class=\"button danger\">Delete…</summary>\
         <p>This drops the mail to {}. Nobody is told, and it cannot be undone.</p>{}</details></div>",
        first,
        form("release", if held.stopped { "" } else { "main" }, &format!("Release to {recipients} now")),
        form("trust", "", &format!("Release, and never hold mail of {} to them again", held.user)),
        recipients,
        form("delete", "danger", "Delete this mail")
    )
}

fn facts(page: &HeldPage) -> Html {
    let held = &page.held;
    let recipients: Vec<&str> = held.recipients.iter().take(50).map(|recipient| recipient.address.as_str()).collect();
    html!(
        "<section><h2>The mail</h2><dl class=\"facts\"><dt>From</dt><dd>{}</dd><dt>User</dt><dd><a href=\"/throttle/users/{}\">{}</a></dd>\
         <dt>To</dt><dd>{}</dd><dt>Held since</dt><dd>{}</dd><dt>Size</dt><dd>{}</dd><dt>Handed in by</dt><dd>{}</dd></dl></section>",
        held.sender,
        Piece(&held.user),
        held.user,
        recipients.join(", "),
        time(&held.since),
        page.size_bytes.map_or_else(|| "kept by another relay".to_owned(), size),
        held.source
    )
}

/// The first lines of a header, unchanged.
pub(super) fn headers(lines: &[String]) -> Html {
    if lines.is_empty() {
        return Html::none();
    }
    html!("<section><h2>Header</h2><pre class=\"mail\">{}</pre></section>", lines.join("\n"))
}

/// A table of held mail with buttons for decisions. `here` is the page to which to return.
pub(super) fn table(visit: &Visit, messages: &[HeldMessage], here: &str) -> Html {
    let row = |held: &HeldMessage| {
        let to: Vec<String> = held.recipients.iter().map(|recipient| recipient.address.clone()).collect();
        let next = held.recipients.iter().filter_map(|recipient| recipient.expected.as_deref()).min();
        let when = match next {
            _ if held.file_missing => status("failed", "its file is missing"),
            Some(next) => time(next),
            None if held.stopped => status("stopped", "user is stopped"),
            None => status("held", "relay is down"),
        };
        html!(
            "<tr>{}<td class=\"main\"><a href=\"/throttle/held/{}\">{}</a></td><td data-name=\"User\">{}</td><td data-name=\"To\">{}</td><td data-name=\"Held\">{}</td><td data-name=\"Goes\">{}</td></tr>",
            choice(&held.message),
            Piece(&held.message),
            title(&held.subject),
            held.user,
            crate::frame::several(&to),
            time(&held.since),
            when
        )
    };
    let columns = html!("<th>Subject</th><th>User</th><th>To</th><th>Held</th><th>Goes</th>");
    let choices = html!(
        "<button name=\"action\" value=\"release\">Release the chosen</button>\
         <button name=\"action\" value=\"trust\">Release and trust</button><details class=\"ask\"><summary class=\"button danger\">Delete…</summary>\
         <p>This drops the chosen mail. Nobody is told, and it cannot be undone.</p>\
         <button class=\"danger\" name=\"action\" value=\"delete\">Delete the chosen</button></details>"
    );
    mails(visit, ("throttle/decide", here), &columns, &messages.iter().map(row).collect(), &choices)
}

pub(super) async fn decide(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let decision = match sent.value("action") {
        "analyse" => return analyse(&site, &visit, &sent).await,
        "release" => Decision::Release,
        "trust" => Decision::Trust,
        "delete" => Decision::Delete,
        _ => return Ok(refused(&site, &visit, &sent, ("/throttle", NOT_SAID_WHAT.to_owned()))),
    };
    let selection = HeldSelection {
        messages: sent.values("message"),
        user: sent.value("user").to_owned(),
        ..HeldSelection::default()
    };
    if selection == HeldSelection::default() {
        return Ok(refused(&site, &visit, &sent, ("/throttle", NOT_SAID_WHICH.to_owned())));
    }
    let decided = site.mail.held.decide(&selection, decision, &visit.actor()).await;
    Ok(ended(&site, &visit, &sent, ("/throttle", decided.map(|result| words(decision, &result)))))
}

/// Submits the attachments of held mail to the lab.
async fn analyse(site: &Site, visit: &Visit, sent: &Form) -> Result<Response, Trouble> {
    let selection = HeldSelection { user: sent.value("user").to_owned(), ..HeldSelection::default() };
    let done = site.mail.held.analyse(&selection, &visit.actor()).await.map(|done| {
        format!(
            "{} looked into: {} new for the lab, {} known to it.",
            count(done.messages as u64, "mail"),
            count(done.submitted as u64, "attachment"),
            done.known
        )
    });
    Ok(ended(site, visit, sent, ("/throttle", done)))
}

pub(super) fn words(decision: Decision, result: &HeldDone) -> String {
    let mails = count(result.messages.len() as u64, "mail");
    let recipients = count(result.recipients as u64, "recipient");
    let mut words = match decision {
        Decision::Release => format!("{mails} to {recipients} on the way."),
        Decision::Trust => {
            format!(
                "{mails} to {recipients} on the way; {} trusted from now on.",
                count(result.trusted.len() as u64, "address")
            )
        }
        Decision::Delete => format!("{mails} to {recipients} deleted."),
    };
    if !result.stops_ended.is_empty() {
        words.push_str(&format!(" {} may send again.", result.stops_ended.join(", ")));
    }
    if !result.locked.is_empty() {
        let named = result.locked.join(", ");
        words.push_str(&format!(
            " {named} had been stopped and is locked now, until there is a new password or somebody unlocks the account."
        ));
    }
    if !result.relays_down.is_empty() {
        words.push_str(&format!(" The part of {} is done when it is back.", result.relays_down.join(", ")));
    }
    words
}
