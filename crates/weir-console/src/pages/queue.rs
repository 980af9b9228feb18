//! The page of outgoing mail that waits for delivery: what waits, why, and when it is tried again, with buttons to try now or to delete it.

use super::{Asking, NOT_SAID_WHAT, NOT_SAID_WHICH, PageResult, Sent, ended, query, refused};
use crate::frame::{Here, Sheet, choice, empty, mails};
use crate::html;
use crate::html::{Html, Piece};
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, size, time};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{QueueEntry, QueueSelection};

const HERE: &str = "/queue";
/// Mails in one table; a filter finds the rest.
const SHOWN_MAX: usize = 200;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let (user, domain) = (asked.value("user"), asked.value("domain"));
    let selection =
        QueueSelection { user: user.to_owned(), domain: domain.to_owned(), all: true, ..QueueSelection::default() };
    let list = site.mail.queue.list(&selection).await?;
    let here = html!("/queue?user={}&domain={}", Piece(user), Piece(domain)).into_string();
    let lead = match list.total {
        0 => "Nothing waits for delivery.".to_owned(),
        total => format!(
            "{} for delivery.",
            if total == 1 { "1 mail waits".to_owned() } else { format!("{} mails wait", grouped(total as u64)) }
        ),
    };
    let table = match list.messages.as_slice() {
        [] => empty(
            "No outgoing mail is here.",
            &html!("Mail that a server does not take yet waits here and is tried again."),
        ),
        some => table(&visit, &some[..some.len().min(SHOWN_MAX)], &here),
    };
    let rest = match list.total > SHOWN_MAX {
        true => {
            html!("<p class=\"faint\">These are the oldest {}. Name a user or a domain to see others.</p>", SHOWN_MAX)
        }
        false => Html::none(),
    };
    let parts = [
        html!("<h1>Outgoing queue</h1><p class=\"lead\">{}</p>", lead),
        html!(
            "<form class=\"filter\"><label>User <input name=\"user\" value=\"{}\"></label>\
             <label>To the domain <input name=\"domain\" value=\"{}\"></label><button>Filter</button></form>",
            user,
            domain
        ),
        html!("{}{}", table, rest),
    ];
    Ok(Sheet::live("Outgoing queue", Here::Queue, &parts).page(&site, &visit).await)
}

fn table(visit: &Visit, entries: &[QueueEntry], here: &str) -> Html {
    let row = |entry: &QueueEntry| {
        let said = entry.recipients.iter().map(|to| to.last_answer.as_str()).find(|said| !said.is_empty());
        let addresses: Vec<String> = entry.recipients.iter().map(|to| to.address.clone()).collect();
        html!(
            "<tr>{}<td class=\"main\">{}<br><small>{}{}</small></td><td data-name=\"User\">{}</td><td class=\"number\" data-name=\"Size\">{}</td><td data-name=\"Accepted\">{}</td><td class=\"number\" data-name=\"Tried\">{}</td><td data-name=\"Next try\">{}</td></tr>",
            choice(&entry.message),
            crate::frame::several(&addresses),
            said.unwrap_or("not tried yet"),
            super::trace::link(&entry.message),
            match entry.user.as_str() {
                "" => html!("Weir itself"),
                user => html!("<a href=\"/throttle/users/{}\">{}</a>", Piece(user), user),
            },
            size(entry.size_bytes),
            time(&entry.accepted),
            grouped(entry.attempts.into()),
            entry.next_attempt.as_deref().map_or_else(|| html!("now"), time)
        )
    };
    let columns = html!(
        "<th>To, and the last answer</th><th>User</th><th class=\"number\">Size</th><th>Accepted</th><th class=\"number\">Tried</th><th>Next try</th>"
    );
    let delete = if visit.may(Role::Admin) {
        html!(
            "<details class=\"ask\"><summary class=\"button danger\">Delete…</summary><p>This drops the chosen mail. Its senders are not told, and it cannot be undone.</p>\
             <button class=\"danger\" name=\"action\" value=\"delete\">Delete the chosen</button></details>"
        )
    } else {
        Html::none()
    };
    let choices = html!("<button name=\"action\" value=\"retry\">Try the chosen now</button>{}", delete);
    mails(visit, ("queue/decide", here), &columns, &entries.iter().map(row).collect(), &choices)
}

pub(super) async fn decide(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let selection = QueueSelection { messages: sent.values("message"), ..QueueSelection::default() };
    if selection.messages.is_empty() {
        return refused(&site, &visit, &sent, (HERE, NOT_SAID_WHICH.to_owned()));
    }
    let (done, what) = match sent.value("action") {
        "retry" => (site.mail.queue.retry(&selection, &visit.actor()).await, "tried now"),
        "delete" if !visit.may(Role::Admin) => {
            let words = "Only administrators can delete outgoing mail.".to_owned();
            return refused(&site, &visit, &sent, (HERE, words));
        }
        "delete" => (site.mail.queue.delete(&selection, &visit.actor()).await, "deleted"),
        _ => return refused(&site, &visit, &sent, (HERE, NOT_SAID_WHAT.to_owned())),
    };
    let words = done.map(|done| format!("{} {what}.", count(done.messages.len() as u64, "mail")));
    ended(&site, &visit, &sent, (HERE, words))
}
