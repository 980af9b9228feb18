//! A user's own page: which of their mail is held, and why.
//!
//! With the password of a mail account a user can look, and delete what they did not send. Releasing mail needs more than a password,
//! because malware that sends in somebody's name knows the password too. Mail is released by an operator, by somebody who came through the
//! link that was sent to the contact address, or by an answer to the notice there. A site may let users release what is only delayed
//! (`submission.users_release`).

use super::held::{title, words};
use super::{Asking, NOT_SAID_WHICH, PageResult, Sent, Trouble, ended, refused};
use crate::form::Form;
use crate::frame::{Here, Sheet, back, choice, empty, mails, numbers, token};
use crate::html;
use crate::html::Html;
use crate::logins::everywhere;
use crate::session::{Visit, Way};
use crate::site::Site;
use crate::trouble::sentence;
use crate::words::{count, grouped, time};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;
use weir_foundation::OperationError;
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{Change, Decision, HeldMessage, HeldSelection, MayRelease, UserPage};

const MAILS_MAX: usize = 200;

fn own(visit: &Visit) -> HeldSelection {
    HeldSelection { user: visit.known.name.clone(), ..HeldSelection::default() }
}

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let page = match site.mail.users.show(&visit.known.name).await {
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
    let list = site.mail.held.first(&own(&visit), MAILS_MAX).await?;
    let may = site.mail.users.may_release(&visit.known.name, visit.link()).await?;
    let frozen = is_frozen(&site, &visit).await?;
    let locked = match &page.user.locked_since {
        Some(_) => format!("A person has locked your account: {}. ", page.user.locked_reason),
        None => String::new(),
    };
    let mails = if list.messages.is_empty() {
        empty("None of your mail is held.", &Html::none())
    } else {
        table(&visit, &list.messages, may, frozen)
    };
    let body = html!(
        "<h1>Your mail</h1><p class=\"lead\">{}{}</p>{}<section><h2>Held mail</h2>{}</section>\
         <p><a href=\"/me/quarantine\">Spam to you</a> is kept for a while too.</p>\
         <p class=\"faint\">{} Did you not? Then somebody uses your account: change your password, and delete what is held.</p>{}",
        locked,
        sentence(&page.throttle.in_words),
        numbers(&[
            ("held", count(page.throttle.held as u64, "recipient")),
            ("new addresses at once", grouped(page.throttle.slack.into())),
        ]),
        mails,
        advice(may, &page.user.contact),
        own_account(&visit, &page, frozen)
    );
    Ok(Sheet::new("Your mail", Here::Mine, body).page(&site, &visit).await)
}

/// Whether somebody who logged in with a password may decide nothing, because the account is stopped or locked and the password may be stolen.
async fn is_frozen(site: &Site, visit: &Visit) -> Result<bool, OperationError> {
    if visit.link().is_some() || visit.may(Role::Operator) {
        return Ok(false);
    }
    site.mail.users.is_frozen(&visit.known.name).await
}

/// The message for such a visitor.
fn frozen() -> Trouble {
    let hint = "Follow the link in the latest notice at your contact address, or ask an administrator.";
    Trouble::new(StatusCode::FORBIDDEN, "A password is not enough while your account is stopped or locked.", hint)
}

/// Password and contact address, as far as the visitor may change them.
fn own_account(visit: &Visit, page: &UserPage, frozen: bool) -> Html {
    if visit.may(Role::Operator) {
        return Html::none();
    }
    let old = match visit.way {
        Way::Password => html!(
            "<label>Password until now <input name=\"old\" type=\"password\" autocomplete=\"current-password\" required maxlength=\"1000\"></label>"
        ),
        Way::Provider | Way::Link { .. } => Html::none(),
    };
    let password = match page.has_password {
        true if frozen => html!(
            "<p class=\"faint\">While your account is stopped or locked, the password is changed through the link in a notice, or by an administrator.</p>"
        ),
        true => html!(
            "<form class=\"filter\" method=\"post\" action=\"/me/password\">{}{}{}<label>New password <input name=\"new\" type=\"password\" autocomplete=\"new-password\" \
             required minlength=\"8\" maxlength=\"1000\"></label><button>Change the password</button></form>",
            token(visit),
            back("/me"),
            old
        ),
        false => html!("<p class=\"faint\">Your password is kept elsewhere, and is changed there.</p>"),
    };
    let contact = match visit.way {
        Way::Link { .. } => html!(
            "<form class=\"filter\" method=\"post\" action=\"/me/contact\">{}{}<label>Notices go to <input name=\"contact\" type=\"email\" value=\"{}\" maxlength=\"255\"></label>\
             <button>Change the address</button></form>",
            token(visit),
            back("/me"),
            page.user.contact
        ),
        Way::Password | Way::Provider => html!(
            "<p class=\"faint\">Notices go to {}. Whoever knows your password must not be able to change that: the link in a notice leads to a page that can, and so can an administrator.</p>",
            if page.user.contact.is_empty() { "nobody" } else { &page.user.contact }
        ),
    };
    html!("<section><h2>Your account</h2>{}{}</section>", password, contact)
}

/// What to do with mail that one did send.
fn advice(may: MayRelease, contact: &str) -> String {
    let contact = if contact.is_empty() { "your contact address" } else { contact };
    match may {
        MayRelease::Yes => "Did you send this? Choose it, and release it.".to_owned(),
        MayRelease::NotByPassword | MayRelease::NotWhileStopped => format!(
            "Did you send this? Answer the notice that came to {contact}, or follow its link, or ask an administrator."
        ),
        MayRelease::OtherSituation => format!(
            "The link that you came by was about another situation: your account has been stopped or unlocked since. Did you send this? \
             Follow the link in the latest notice that came to {contact}."
        ),
    }
}

fn table(visit: &Visit, messages: &[HeldMessage], may: MayRelease, frozen: bool) -> Html {
    let row = |held: &HeldMessage| {
        let to: Vec<String> = held.recipients.iter().map(|recipient| recipient.address.clone()).collect();
        let next = held.recipients.iter().filter_map(|recipient| recipient.expected.as_deref()).min();
        html!(
            "<tr>{}<td class=\"main\">{}</td><td data-name=\"To\">{}</td><td data-name=\"Held\">{}</td><td data-name=\"Goes\">{}</td></tr>",
            choice(&held.message),
            title(&held.subject),
            crate::frame::several(&to),
            time(&held.since),
            next.map_or_else(|| html!("when somebody decides"), time)
        )
    };
    let release = match may {
        MayRelease::Yes => {
            html!("<button class=\"main\" formaction=\"/me/release\">Release the chosen: I sent it</button>")
        }
        _ => Html::none(),
    };
    let columns = html!("<th>Subject</th><th>To</th><th>Held</th><th>Goes</th>");
    let choices = if frozen {
        html!(
            "<span class=\"faint\">A password is not enough to decide about this while your account is stopped or locked.</span>"
        )
    } else {
        delete_choice(&release)
    };
    mails(visit, ("me/delete", "/me"), &columns, &messages.iter().map(row).collect(), &choices)
}

fn delete_choice(release: &Html) -> Html {
    html!(
        "{}<details class=\"ask\"><summary class=\"button danger\">Delete…</summary>\
         <p>This drops the chosen mail. It cannot be undone.</p><button class=\"danger\">Delete the chosen</button></details>",
        release
    )
}

pub(super) async fn delete(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    // A stopped user with no waiting mail left may send again: somebody who stole the password must not be able to cause that.
    if is_frozen(&site, &visit).await? {
        return Err(frozen());
    }
    // Nor somebody who found the notice and follows its link.
    if !visit.may(Role::Operator) && !sent.values("message").is_empty() {
        let why = "what waited was deleted through the link in the notice";
        site.mail.users.lock_if_stopped(&visit.known.name, why, &visit.actor()).await?;
    }
    decide(&site, &visit, &sent, Decision::Delete).await
}

pub(super) async fn release(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let hint = "Follow the link in the latest notice at your contact address, or ask an administrator.";
    let no = |why: &str| Err(Trouble::new(StatusCode::FORBIDDEN, why, hint));
    match site.mail.users.may_release(&visit.known.name, visit.link()).await? {
        MayRelease::Yes => decide(&site, &visit, &sent, Decision::Release).await,
        MayRelease::NotByPassword => no("A password is not enough to release mail."),
        MayRelease::NotWhileStopped => no("A password is not enough to release mail while you are stopped."),
        MayRelease::OtherSituation => no(
            "The link that you came by was about another situation: your account has been stopped or unlocked since.",
        ),
    }
}

async fn decide(site: &Site, visit: &Visit, sent: &Form, decision: Decision) -> Result<Response, Trouble> {
    // The user is part of the selection, so that nobody else's mail can be named.
    let selection = HeldSelection { messages: sent.values("message"), ..own(visit) };
    if selection.messages.is_empty() {
        return Ok(refused(site, visit, sent, ("/me", NOT_SAID_WHICH.to_owned())));
    }
    let decided = site.mail.held.decide(&selection, decision, &visit.actor()).await;
    Ok(ended(site, visit, sent, ("/me", decided.map(|result| words(decision, &result)))))
}

pub(super) async fn password(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let name = &visit.known.name;
    match is_frozen(&site, &visit).await {
        Ok(false) => {}
        Ok(true) => return refused(&site, &visit, &sent, ("/me", frozen().words())),
        Err(error) => return ended(&site, &visit, &sent, ("/me", Err::<String, _>(error))),
    }
    // An account of the console may have the name of a user without being that user.
    if visit.may(Role::Operator) {
        let words = "An administrator changes it: weir console passwd, or weir user passwd.".to_owned();
        return refused(&site, &visit, &sent, ("/me", words));
    }
    match may_change_password(&site, &visit, &sent).await {
        Ok(true) => {}
        Ok(false) => {
            let words = "The password until now is not right, or was wrong too often.".to_owned();
            return refused(&site, &visit, &sent, ("/me", words));
        }
        Err(error) => return ended(&site, &visit, &sent, ("/me", Err::<String, _>(error))),
    }
    // All sessions end with the old password, this one too.
    let words = site.mail.users.set_password(name, sent.exact("new"), &visit.actor()).await;
    ended(&site, &visit, &sent, ("/me", words.map(|()| "The password is changed.".to_owned())))
}

/// A visitor who came by the link need not know the old password: that may be the reason for coming.
async fn may_change_password(site: &Site, visit: &Visit, sent: &Form) -> Result<bool, OperationError> {
    if visit.link().is_some() {
        return Ok(true);
    }
    let name = &visit.known.name;
    if site.sessions.logins.enter(name, everywhere(name), Instant::now()).is_err() {
        return Ok(false);
    }
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let right = site.administration.accounts.login(name, sent.exact("old"), here).await?.is_some();
    if right {
        site.sessions.logins.succeeded(name, everywhere(name));
    }
    Ok(right)
}

pub(super) async fn contact(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    if visit.link().is_none() {
        let hint = "Follow the link in the notice at the address until now, or ask an administrator.";
        return Err(Trouble::new(StatusCode::FORBIDDEN, "A password is not enough to change where notices go.", hint));
    }
    let change = Change { contact: Some(sent.value("contact").to_owned()), ..Change::default() };
    let changed = site.mail.users.set(&visit.known.name, &change, &visit.actor()).await;
    let words = changed.map(|page| match page.user.contact.as_str() {
        "" => "Notices go to nobody from now on.".to_owned(),
        contact => format!("Notices go to {contact} from now on."),
    });
    Ok(ended(&site, &visit, &sent, ("/me", words)))
}
