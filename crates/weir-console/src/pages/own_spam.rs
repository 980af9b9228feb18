//! A user's own spam: what came for them from outside and is kept. Digests link here, with one address per message.
//!
//! A user decides for their own addresses, and only about spam: nothing else in the quarantine is shown to them.

use super::held::title;
use super::quarantine::chosen;
use super::{Asking, PageResult, Sent, Trouble, ended, refused};
use crate::frame::{Here, Sheet, back, choice, empty, mails, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::preview;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, size, time};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{Authority, QuarantineDecision, QuarantineEntry, QuarantineSelection};

/// How many addresses of one user are used, how many mails to each are counted, and how many mails are shown.
const ADDRESSES_MAX: usize = 50;
const FOUND_MAX: usize = 1_000;
const SHOWN_MAX: usize = 200;
const HERE: &str = "/me/quarantine";

/// The visitor's mailboxes, which are not all addresses that they may send as. An account of the console may have the name of a user
/// without being that user.
async fn addresses(site: &Site, visit: &Visit) -> Result<Vec<String>, Trouble> {
    if visit.may(Role::Operator) {
        let hint = "The quarantine shows everybody's";
        return Err(Trouble::new(StatusCode::FORBIDDEN, "This is for users of the mail gate.", hint));
    }
    let mut addresses = site.mail.users.show(&visit.known.name).await?.reads;
    addresses.truncate(ADDRESSES_MAX);
    Ok(addresses)
}

/// The spam to these addresses, the newest first.
async fn own(site: &Site, addresses: &[String], messages: &[String]) -> Result<Vec<QuarantineEntry>, Trouble> {
    let mut found: Vec<QuarantineEntry> = Vec::new();
    for address in addresses {
        let selection = QuarantineSelection {
            messages: messages.to_vec(),
            queue: "spam".to_owned(),
            recipient: address.clone(),
            ..QuarantineSelection::default()
        };
        let (entries, _) = site.mail.quarantine.newest(&selection, FOUND_MAX).await?;
        let new = |entry: &QuarantineEntry| !found.iter().any(|known| known.message == entry.message);
        let entries: Vec<_> = entries.into_iter().filter(new).collect();
        found.extend(entries);
    }
    found.sort_by(|a, b| b.since.cmp(&a.since));
    Ok(found)
}

pub(super) async fn list(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let addresses = addresses(&site, &visit).await?;
    let entries = own(&site, &addresses, &[]).await?;
    let table = match entries.is_empty() {
        true => empty("No spam to you is kept.", &html!("<a href=\"/me\">Your held mail</a> is another page.")),
        false => table(&visit, &entries),
    };
    let body = html!(
        "<h1>Spam to you</h1><p class=\"lead\">{}</p>{}<p class=\"faint\">{}</p>",
        match entries.len() {
            0 => "Nothing is kept.".to_owned(),
            some => format!("{} kept. Each is deleted when its time is over.", count(some as u64, "message")),
        },
        table,
        whose(&addresses)
    );
    Ok(Sheet::new("Spam to you", Here::Mine, body).page(&site, &visit).await)
}

/// Whose mail is shown, so that somebody with another mailbox knows what to ask for.
fn whose(addresses: &[String]) -> String {
    match addresses {
        [] => "No mailbox is known to be yours. An administrator can name it (Sees the spam to).".to_owned(),
        some => format!("This is about {}. An administrator can name more mailboxes that are yours.", some.join(", ")),
    }
}

fn table(visit: &Visit, entries: &[QuarantineEntry]) -> Html {
    let row = |entry: &QuarantineEntry| {
        html!(
            "<tr>{}<td class=\"main\"><a href=\"/me/quarantine/{}\">{}</a></td><td data-name=\"From\">{}</td><td class=\"number\" data-name=\"Size\">{}</td><td data-name=\"Since\">{}</td></tr>",
            choice(&entry.message),
            Piece(&entry.message),
            title(&entry.subject),
            if entry.sender.is_empty() { "<>" } else { &entry.sender },
            size(entry.size_bytes.max(0) as u64),
            time(&entry.since)
        )
    };
    let columns = html!("<th>Subject</th><th>From</th><th class=\"number\">Size</th><th>Since</th>");
    let choices = html!(
        "<button name=\"action\" value=\"release\">Deliver the chosen to me</button>\
         <button class=\"danger\" name=\"action\" value=\"delete\">Delete the chosen</button>"
    );
    mails(visit, ("me/quarantine", HERE), &columns, &entries.iter().take(SHOWN_MAX).map(row).collect(), &choices)
}

pub(super) async fn page(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(message): Path<String>,
) -> PageResult {
    let addresses = addresses(&site, &visit).await?;
    let entries = own(&site, &addresses, std::slice::from_ref(&message)).await?;
    let gone = || {
        let hint = "It may have been delivered or deleted, or its time was over";
        Trouble::new(StatusCode::NOT_FOUND, "No such spam to you is kept.", hint)
    };
    let entry = entries.into_iter().find(|entry| entry.message == message).ok_or_else(gone)?;
    let preview = preview::of(site.mail.quarantine.show(&message).await?.file).await;
    let body = html!(
        "<h1>{}</h1><section class=\"why\"><h2>Why</h2><p>It was classified as spam.</p><h2>Until when</h2><p>{}</p>\
         <h2>What you can do</h2><form class=\"actions\" method=\"post\" action=\"/me/quarantine\">{}{}<input type=\"hidden\" name=\"message\" value=\"{}\">\
         <button class=\"main\" name=\"action\" value=\"release\">Deliver it to me</button><button class=\"danger\" name=\"action\" value=\"delete\">Delete it</button></form></section>\
         <section><h2>The mail</h2><dl class=\"facts\"><dt>From</dt><dd>{}</dd><dt>Here since</dt><dd>{}</dd><dt>Size</dt><dd>{}</dd></dl></section>{}",
        title(&entry.subject),
        super::quarantine::until(&entry),
        token(&visit),
        back(HERE),
        entry.message,
        if entry.sender.is_empty() { "<>" } else { &entry.sender },
        time(&entry.since),
        size(entry.size_bytes.max(0) as u64),
        preview.html()
    );
    Ok(Sheet::new("Spam to you", Here::Mine, body).page(&site, &visit).await)
}

pub(super) async fn decide(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let (decision, selection) = match chosen(&sent) {
        Ok(chosen) => chosen,
        Err(problem) => return Ok(refused(&site, &visit, &sent, (HERE, problem.to_owned()))),
    };
    // The decision is made row by row, so that nobody else's mail can be named.
    let authority = Authority::User { addresses: addresses(&site, &visit).await? };
    let decided = site.mail.quarantine.decide(&selection, &decision, &authority, &visit.actor()).await;
    let words = decided.map(|done| match decision {
        QuarantineDecision::Release | QuarantineDecision::ReleaseTo(_) => {
            format!("{} on the way to you.", count(done.messages.len() as u64, "mail"))
        }
        QuarantineDecision::Delete => format!("{} deleted.", count(done.messages.len() as u64, "mail")),
    });
    Ok(ended(&site, &visit, &sent, (HERE, words)))
}
