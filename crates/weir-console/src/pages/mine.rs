//! A user's own page: what of their mail is held, and why.
//!
//! With the password of a mail account one looks, and drops what one did not send. Releasing needs more than a password: a program
//! that sends in somebody's name knows that password too. An operator releases, or the answer to the notice at the contact address.

use super::frame::{Here, Sheet, back, empty, numbers, token};
use super::held::title;
use super::trouble::sentence;
use super::{Answer, Asking, Sent, Trouble, done, refused};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, time};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_mail::desk::{Decision, HeldMessage, HeldSelection};

const MAILS_MAX: usize = 200;

fn own(visit: &Visit) -> HeldSelection {
    HeldSelection { user: visit.known.name.clone(), ..HeldSelection::default() }
}

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> Answer {
    let page = match site.desk.user_show(&visit.known.name).await {
        Ok(page) => page,
        Err(_) => {
            let body = html!(
                "<h1>{}</h1>{}",
                visit.known.name,
                empty("This account has no mail.", &html!("<a href=\"/\">The overview</a> shows all gates."))
            );
            return Ok(Sheet::new("Your mail", Here::Mine, body).page(&site, &visit).await);
        }
    };
    let mut list = site.desk.held_list(&own(&visit)).await?;
    list.messages.truncate(MAILS_MAX);
    let locked = match &page.user.locked_since {
        Some(_) => format!("A person has locked your account: {}. ", page.user.locked_reason),
        None => String::new(),
    };
    let mails = if list.messages.is_empty() {
        empty("None of your mail is held.", &Html::none())
    } else {
        table(&visit, &list.messages)
    };
    let body = html!(
        "<h1>Your mail</h1><p class=\"lead\">{}{}</p>{}<section><h2>Held mail</h2>{}</section>\
         <p class=\"faint\">Did you send this? Answer the notice that came to {}, or ask an administrator. Did you not? Then somebody uses your account: change your password, and delete what is held.</p>",
        locked,
        sentence(&page.throttle.in_words),
        numbers(&[
            ("held", count(page.throttle.held as u64, "recipient")),
            ("new addresses at once", grouped(page.throttle.slack.into())),
        ]),
        mails,
        if page.user.contact.is_empty() { "your contact address" } else { &page.user.contact }
    );
    Ok(Sheet::new("Your mail", Here::Mine, body).page(&site, &visit).await)
}

fn table(visit: &Visit, messages: &[HeldMessage]) -> Html {
    let row = |held: &HeldMessage| {
        let to: Vec<String> = held.recipients.iter().map(|recipient| recipient.address.clone()).collect();
        let next = held.recipients.iter().filter_map(|recipient| recipient.expected.as_deref()).min();
        html!(
            "<tr><td><input type=\"checkbox\" name=\"message\" value=\"{}\" aria-label=\"Choose this mail\"></td><td class=\"main\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            held.message,
            title(&held.subject),
            super::frame::several(&to),
            time(&held.since),
            next.map_or_else(|| html!("when somebody decides"), time)
        )
    };
    html!(
        "<form method=\"post\" action=\"/me/delete\" class=\"list\">{}{}<div class=\"scroll\"><table><thead><tr><th><input type=\"checkbox\" class=\"all\" aria-label=\"Choose all\"></th>\
         <th>Subject</th><th>To</th><th>Held</th><th>Goes</th></tr></thead><tbody>{}</tbody></table></div><div class=\"actions\"><details class=\"ask\"><summary class=\"button danger\">Delete…</summary>\
         <p>This drops the chosen mail. It cannot be undone.</p><button class=\"danger\">Delete the chosen</button></details></div></form>",
        token(visit),
        back("/me"),
        messages.iter().map(row).collect::<Html>()
    )
}

pub(super) async fn delete(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    // The user is part of the selection, so that nobody else's mail can be named.
    let selection = HeldSelection { messages: sent.values("message"), ..own(&visit) };
    if selection.messages.is_empty() {
        return Ok(refused(
            &site,
            &visit,
            &sent,
            ("/me", "No mail was chosen. Tick the mails that you mean.".to_owned()),
        ));
    }
    match site.desk.held_decide(&selection, Decision::Delete, &visit.actor()).await {
        Ok(result) => {
            Ok(done(&site, &visit, &sent, ("/me", format!("{} deleted.", count(result.messages.len() as u64, "mail"))))
                .await)
        }
        Err(error) => Ok(refused(&site, &visit, &sent, ("/me", Trouble::from(error).words()))),
    }
}
