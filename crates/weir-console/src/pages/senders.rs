//! Senders that are allowed or blocked: who, since when and why, and how to change that.

use super::{Asking, NOT_SAID_WHAT, NOT_SAID_WHICH, PageResult, Sent, ended, refused};
use crate::frame::{Here, Sheet, back, empty, status, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, time};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_mail::operations::{NewSender, QuarantineEntry, SenderVerdict, SenderView};

const HERE: &str = "/senders";
/// Senders in one table.
const SHOWN_MAX: usize = 500;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let senders = site.mail.senders.list().await?;
    let many = |rule: &str| senders.iter().filter(|sender| sender.rule == rule).count() as u64;
    let lead = format!("{} allowed, {} blocked.", count(many("allow"), "sender"), many("block"));
    let parts = [
        html!("<h1>Senders</h1><p class=\"lead\">{}</p>", lead),
        html!(
            "<p class=\"faint\">Mail from a blocked sender is not taken. What spam filters say of an allowed one does not count, if SPF, DKIM or DMARC \
             confirms that it is the sender; malware and forbidden attachments are kept all the same. A domain is also everything below it, and the \
             nearest name counts.</p>"
        ),
        table(&visit, &senders),
        form(&visit),
    ];
    Ok(Sheet::live("Senders", Here::Quarantine, &parts).page(&site, &visit).await)
}

fn table(visit: &Visit, senders: &[SenderView]) -> Html {
    if senders.is_empty() {
        return empty("No sender is allowed or blocked.", &Html::none());
    }
    let row = |sender: &SenderView| {
        let rule = match sender.rule.as_str() {
            "allow" => status("open", "allowed"),
            _ => status("stopped", "blocked"),
        };
        html!(
            "<tr><td class=\"main\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><form method=\"post\" action=\"/senders/remove\">{}{}\
             <input type=\"hidden\" name=\"who\" value=\"{}\"><button>Remove</button></form></td></tr>",
            sender.who,
            rule,
            sender.about,
            sender.by,
            time(&sender.since),
            token(visit),
            back(HERE),
            sender.who
        )
    };
    let rest = match senders.len().saturating_sub(SHOWN_MAX) {
        0 => Html::none(),
        more => html!(
            "<p class=\"faint\">And {}: <code>weir senders list</code> shows all.</p>",
            count(more as u64, "other")
        ),
    };
    html!(
        "<section><h2>The list</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Sender</th><th>Rule</th><th>Why</th><th>By</th><th>Since</th>\
         <th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div>{}</section>",
        senders.iter().take(SHOWN_MAX).map(row).collect::<Html>(),
        rest
    )
}

fn form(visit: &Visit) -> Html {
    html!(
        "<section><h2>Allow or block a sender</h2><form class=\"filter\" method=\"post\" action=\"/senders/set\">{}{}\
         <label>Address or domain <input name=\"who\" required maxlength=\"320\" placeholder=\"ann@example.org or example.org\"></label>\
         <label>Why <input name=\"about\" maxlength=\"200\"></label>\
         <button name=\"rule\" value=\"allow\">Allow</button><button class=\"danger\" name=\"rule\" value=\"block\">Block</button></form></section>",
        token(visit),
        back(HERE)
    )
}

/// Buttons for the sender of a quarantined mail; none if the mail came from one of our users, or has no sender.
pub(super) fn of_mail(visit: &Visit, entry: &QuarantineEntry) -> Html {
    let (sender, user) = (entry.sender.as_str(), entry.user.as_str());
    let Some((_, domain)) = sender.rsplit_once('@').filter(|_| user.is_empty()) else { return Html::none() };
    let here = html!("/quarantine/{}", Piece(&entry.message)).into_string();
    let form = |rule: &str, class: &str, word: &str| {
        html!(
            "<form method=\"post\" action=\"/senders/set\">{}{}<input type=\"hidden\" name=\"rule\" value=\"{}\">\
             <input type=\"hidden\" name=\"about\" value=\"{}\">\
             <button class=\"{}\" name=\"who\" value=\"{}\">{} {}</button><button class=\"{}\" name=\"who\" value=\"{}\">{} all of {}</button></form>",
            token(visit),
            back(&here),
            rule,
            format!("mail {}", entry.message),
            class,
            sender,
            word,
            sender,
            class,
            domain,
            word,
            domain
        )
    };
    html!(
        "<details class=\"ask\"><summary class=\"button\">Block the sender…</summary><p>No more mail from it is taken. What is here stays.</p>{}</details>\
         <details class=\"ask\"><summary class=\"button\">Allow the sender…</summary><p>What spam filters say of it does not count any more, where SPF, DKIM or \
         DMARC confirms it. Malware is kept all the same, and this mail stays here.</p>{}</details>",
        form("block", "danger", "Block"),
        form("allow", "", "Allow")
    )
}

pub(super) async fn set(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let rule = match sent.value("rule") {
        "allow" => SenderVerdict::Allow,
        "block" => SenderVerdict::Block,
        _ => return refused(&site, &visit, &sent, (HERE, NOT_SAID_WHAT.to_owned())),
    };
    let who = sent.value("who").to_owned();
    if who.is_empty() {
        return refused(&site, &visit, &sent, (HERE, NOT_SAID_WHICH.to_owned()));
    }
    let new = NewSender { who, rule, about: sent.value("about").to_owned() };
    let set = site.mail.senders.set(&new, &visit.actor()).await;
    let words = set.map(|done| match rule {
        SenderVerdict::Allow => format!("{} is allowed where SPF, DKIM or DMARC confirms it.", done.who),
        SenderVerdict::Block => format!("{} is blocked.", done.who),
    });
    ended(&site, &visit, &sent, (HERE, words))
}

pub(super) async fn remove(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let who = sent.value("who").to_owned();
    let removed = site.mail.senders.remove(&who, &visit.actor()).await;
    ended(&site, &visit, &sent, (HERE, removed.map(|_| format!("{who} is neither allowed nor blocked any more."))))
}
