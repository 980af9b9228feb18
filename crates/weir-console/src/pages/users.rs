//! The page of one user: why they are stopped, how their delay queue drains, and their parameters; with buttons to lock and unlock.

use super::{Asking, PageResult, Sent, ended, held, user_address};
use crate::evidence::Evidence;
use crate::frame::{Here, Sheet, WIDE, back, numbers, plot, status, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::incidents::{Incidents, PastStop};
use crate::session::Visit;
use crate::site::Site;
use crate::trouble::sentence;
use crate::words::{count, cut, decimal, grouped, now, parsed, time};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use std::time::Duration;
use weir_chart::{Axis, Chart};
use weir_core::throttle::{PARAMS, Recipients};
use weir_foundation::console_accounts::Role;
use weir_foundation::secret::fresh_password;
use weir_lab::operations::{SampleFilter, SampleLine};
use weir_mail::accounts::WrongLogins;
use weir_mail::operations::{HeldList, HeldSelection, OWN_CONTACT, UserPage};

const MAILS_MAX: usize = 200;
/// Among how many of the newest samples those of a user are searched, and how many of theirs are shown.
const SAMPLES_LOOKED_AT: i64 = 500;
const SAMPLES_SHOWN: usize = 10;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, Path(name): Path<String>) -> PageResult {
    let page = site.mail.users.show(&name).await?;
    let selection = HeldSelection { user: page.user.name.clone(), ..HeldSelection::default() };
    let mut list = site.mail.held.list(&selection).await?;
    let queue = queue_chart(&page, &list);
    let evidence = evidence(&site, &page, &list).await;
    let found = list.messages.len();
    list.messages.truncate(MAILS_MAX);
    let here = user_address(&page.user.name);
    let held = if list.messages.is_empty() {
        Html::none()
    } else {
        html!(
            "<section><h2>Held mail</h2>{}{}{}</section>",
            bulk(&visit, &page, (found, list.more), &here),
            if site.lab.is_some() { to_lab(&visit, &page, &here) } else { Html::none() },
            held::table(&visit, &list.messages, &here)
        )
    };
    let past = Incidents::new(&site.administration.foundation).stops_of(&page.user.name).await?;
    let trail = super::audit::trail(&site, &page.user.name, 20).await?;
    let parts = [
        html!(
            "<h1>{}</h1><p>{}</p><section class=\"why\"><h2>Now</h2><p>{}</p>{}<h2>What you can do</h2>{}</section>",
            page.user.name,
            status(&page.user.state, &page.user.state),
            sentence(&state(&page)),
            evidence,
            choices(&visit, &page, &here)
        ),
        numbers(&[
            ("held", count(page.throttle.held as u64, "recipient")),
            ("new addresses at once", grouped(page.throttle.slack.into())),
            ("recipients of one mail at once", grouped(page.throttle.multi_slack.into())),
            ("open connections", grouped(page.sessions as u64)),
        ]),
        queue,
        held,
        about(&page),
        logins(&page.wrong_logins),
        stops(&past),
        super::user_admin::section(&visit, &page),
        trail,
    ];
    Ok(Sheet::live(page.user.name.clone(), Here::Throttle, &parts).page(&site, &visit).await)
}

fn state(page: &UserPage) -> String {
    match &page.user.locked_since {
        Some(_) => format!("locked by a person: {}. {}", page.user.locked_reason, sentence(&page.throttle.in_words)),
        None => page.throttle.in_words.clone(),
    }
}

fn choices(visit: &Visit, page: &UserPage, here: &str) -> Html {
    let unlock = html!(
        "<form method=\"post\" action=\"/throttle/users/{}/unlock\">{}{}<button>Unlock: {} may send, what waits drains one by one</button></form>",
        Piece(&page.user.name),
        token(visit),
        back(here),
        page.user.name
    );
    let lock = html!(
        "<details class=\"ask\"><summary class=\"button\">Lock…</summary><p>Logins fail with your reason, open connections end, and what waits \
         stands still until somebody unlocks.</p><form method=\"post\" action=\"/throttle/users/{}/lock\">{}{}<label>Reason, which the user reads \
         <input name=\"reason\" required maxlength=\"200\" placeholder=\"your password was found in a leak\"></label>\
         <button class=\"danger\">Lock {}</button></form></details>",
        Piece(&page.user.name),
        token(visit),
        back(here),
        page.user.name
    );
    let stopped = page.user.state != "active" || page.throttle.state == "stopped";
    // A user whom only the throttle knows has no account that could be locked.
    let lock = if page.user.created.is_empty() { Html::none() } else { lock };
    let secure = if stopped && !page.user.created.is_empty() { securing(visit, page, here) } else { Html::none() };
    html!("<div class=\"actions\">{}{}{}</div>", secure, if stopped { unlock } else { Html::none() }, lock)
}

/// The safe answer to a stolen account. Only an administrator may set a new password.
fn securing(visit: &Visit, page: &UserPage, here: &str) -> Html {
    let gives = visit.may(Role::Admin) && page.password_elsewhere.is_none();
    let password = if gives { ", gives it a new password" } else { "" };
    let elsewhere = page.password_elsewhere.as_ref().map_or_else(String::new, |who| {
        format!("The password is not changed by it: {who}. Change it there before you unlock the account. ")
    });
    html!(
        "<details class=\"ask\"><summary class=\"button main\">This was not {}: secure the account…</summary><p>This locks the account{}, and deletes {} that {}. \
         {}What is deleted cannot be brought back; nobody is told. Unlock the account when its owner has been reached.</p>\
         <form method=\"post\" action=\"/throttle/users/{}/secure\">{}{}<button class=\"main\">Lock{}, delete what is held</button></form></details>",
        page.user.name,
        password,
        count(page.throttle.held as u64, "recipient"),
        if page.throttle.held == 1 { "waits" } else { "wait" },
        elsewhere,
        Piece(&page.user.name),
        token(visit),
        back(here),
        if gives { ", new password" } else { "" }
    )
}

/// Evidence for a decision about a user whose mail waits: how similar it is, where it came from, and what the lab says about it.
async fn evidence(site: &Site, page: &UserPage, list: &HeldList) -> Html {
    if page.throttle.held == 0 {
        return Html::none();
    }
    let lab = lab_says(site, &page.user.name).await;
    html!("<h2>Evidence</h2>{}{}", Evidence::of(&list.messages, list.more).html(), lab)
}

/// Whether a sample came from mail of this user: held mail that was submitted, or mail that waited for the lab.
fn is_of(submitter: &str, user: &str) -> bool {
    submitter.strip_prefix("held ").or_else(|| submitter.strip_prefix("mail ")).is_some_and(|of| of == user)
}

/// What the lab says about samples from mail of this user.
async fn lab_says(site: &Site, user: &str) -> Html {
    let Some(node) = &site.lab else { return Html::none() };
    let Ok(samples) = node.list(&SampleFilter::default(), SAMPLES_LOOKED_AT).await else { return Html::none() };
    let theirs = samples.iter().filter(|sample| is_of(&sample.submitter, user));
    let line = |sample: &SampleLine| {
        html!(
            "<li>{} <a href=\"/lab/samples/{}\">{}</a></li>",
            status(&sample.verdict, &sample.verdict),
            sample.sample,
            cut(&sample.name, 100)
        )
    };
    let lines: Vec<Html> = theirs.take(SAMPLES_SHOWN).map(line).collect();
    match lines.is_empty() {
        true => html!("<p class=\"faint\">The lab has not looked at attachments of this user lately.</p>"),
        false => {
            html!("<p>The lab says of attachments:</p><ul class=\"bare\">{}</ul>", lines.into_iter().collect::<Html>())
        }
    }
}

fn bulk(visit: &Visit, page: &UserPage, (found, more): (usize, bool), here: &str) -> Html {
    if found < 2 {
        return Html::none();
    }
    let recipients = count(page.throttle.held as u64, "recipient");
    // A list is cut, but the decision is about everything.
    let mails =
        if more { format!("mail, more than {},", count(found as u64, "mail")) } else { count(found as u64, "mail") };
    html!(
        "<form class=\"actions\" method=\"post\" action=\"/throttle/decide\">{}{}<input type=\"hidden\" name=\"user\" value=\"{}\">\
         <button name=\"action\" value=\"release\">Release all {} to {}</button><details class=\"ask\"><summary class=\"button danger\">Delete all…</summary>\
         <p>This drops everything that {} has waiting. Nobody is told, and it cannot be undone.</p>\
         <button class=\"danger\" name=\"action\" value=\"delete\">Delete all {}</button></details></form>",
        token(visit),
        back(here),
        page.user.name,
        mails,
        recipients,
        page.user.name,
        mails
    )
}

/// A button by which the lab examines the attachments of all held mail of this account.
fn to_lab(visit: &Visit, page: &UserPage, here: &str) -> Html {
    html!(
        "<form class=\"actions\" method=\"post\" action=\"/throttle/decide\">{}{}<input type=\"hidden\" name=\"user\" value=\"{}\">\
         <button name=\"action\" value=\"analyse\">Have the lab look at all attachments; the mail stays where it is</button></form>",
        token(visit),
        back(here),
        page.user.name
    )
}

/// How the delay queue drains (the paper's Figure 13 shows how one fills).
fn queue_chart(page: &UserPage, list: &HeldList) -> Html {
    let now = now();
    let recipients = list.messages.iter().flat_map(|held| &held.recipients);
    let mut due: Vec<f64> = recipients
        .filter_map(|recipient| parsed(recipient.expected.as_deref()?))
        .map(|at| (at - now).max(0) as f64 / 60.0)
        .collect();
    if due.is_empty() {
        return Html::none();
    }
    due.sort_by(f64::total_cmp);
    let all = due.len();
    let points =
        std::iter::once((0.0, all as f64)).chain(due.iter().enumerate().map(|(n, at)| (*at, (all - n - 1) as f64)));
    let stop_at = f64::from(page.throttle.params.0.stop_at);
    let chart =
        Chart::new("The delay queue", Axis::linear("time from now", "min"), Axis::linear("waiting", "recipients"))
            .steps("waiting", points)
            .level("more would stop the user", stop_at);
    html!("<section><h2>How the delay queue drains, in minutes from now</h2>{}</section>", plot(&chart, WIDE))
}

fn about(page: &UserPage) -> Html {
    let params = &page.throttle.params.0;
    let stored = |name: &str| PARAMS.iter().find(|param| param.name == name).map(|param| param.stored);
    let own = |name: &str| page.own_parameters.iter().any(|own| Some(own.as_str()) == stored(name));
    let source = |name: &str| if own(name) { "set for this user" } else { "of the profile" };
    let row = |name: &str, key: &str, value: String| {
        html!("<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td></tr>", name, value, source(key))
    };
    let per_min = |period: Duration| format!("{}/min", decimal(60.0 / period.as_secs_f64()));
    let cap = |cap: Option<u32>| cap.map_or_else(|| "no limit".to_owned(), |cap| grouped(cap.into()));
    let classed = params.recipients == Recipients::Classed;
    let class = |slack: u32| if classed { grouped(slack.into()) } else { "as anybody".to_owned() };
    let rows: Html = [
        row("new recipients, mail to one", "rate", per_min(params.rate_period)),
        row("new recipients, mail to several", "multi_rate", per_min(params.multi_rate_period)),
        row("addresses remembered", "working_set", grouped(params.working_set as u64)),
        row("stopped when more wait than", "stop_at", grouped(params.stop_at.into())),
        row("people written to before, at once", "correspondent_slack", class(params.correspondents.slack)),
        row("colleagues at once", "colleague_slack", class(params.colleagues.slack)),
        row("new networks at once", "new_networks", cap(Some(params.new_networks).filter(|most| *most > 0))),
        row("messages a day", "messages_a_day", cap(params.messages_a_day)),
        row("new recipients a day", "new_recipients_a_day", cap(params.new_recipients_a_day)),
    ]
    .into_iter()
    .collect();
    let trusted = match page.trusted.as_slice() {
        [] => "nobody".to_owned(),
        trusted => trusted.join(", "),
    };
    html!(
        "<section><h2>The rules for this user</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Rule</th><th class=\"number\">Value</th><th>Source</th></tr></thead>\
         <tbody>{}</tbody></table></div><dl class=\"facts\"><dt>Profile</dt><dd>{}</dd><dt>Sends as</dt><dd>{}</dd><dt>Notices go to</dt><dd>{}</dd>\
         <dt>Mail never waits to</dt><dd>{}</dd></dl>{}<p class=\"faint\">The rules are settings of <code>[throttle]</code>; \
         docs/algorithms/throttle.md explains them. <code>weir user set</code> changes them for one user.</p></section>",
        rows,
        page.user.profile,
        page.user.addresses.join(", "),
        if page.user.contact.is_empty() { "nobody" } else { &page.user.contact },
        trusted,
        own_contact(page)
    )
}

/// A warning, if the contact is the account's own.
fn own_contact(page: &UserPage) -> Html {
    match page.user.contact_is_own {
        true => {
            html!("<p class=\"said not\">{} {}. Give another contact below.</p>", page.user.contact, OWN_CONTACT)
        }
        false => Html::none(),
    }
}

/// Logins that failed.
fn logins(wrong: &WrongLogins) -> Html {
    if wrong.count == 0 {
        return Html::none();
    }
    let slowed = if wrong.slowed { " Logins from networks that the account does not use are slowed." } else { "" };
    html!(
        "<section><h2>Failed logins</h2><p>{} at the mail server and on the console in the last 24 hours from {}, the latest from {}.{}</p></section>",
        count(wrong.count, "failed login"),
        count(wrong.networks, "network"),
        wrong.from.join(", "),
        slowed
    )
}

/// The last times that this account was stopped.
fn stops(past: &[PastStop]) -> Html {
    if past.is_empty() {
        return Html::none();
    }
    let row = |stop: &PastStop| {
        html!(
            "<tr><td><a href=\"/incidents/{}\">{}</a></td><td>{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            stop.incident,
            time(&stop.began),
            stop.ended.as_deref().map_or_else(|| html!("–"), time),
            grouped(stop.held),
            stop.outcome
        )
    };
    html!(
        "<section><h2>When it was stopped</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Stopped</th><th>Over</th>\
         <th class=\"number\">Recipients held</th><th>What people did</th></tr></thead><tbody>{}</tbody></table></div></section>",
        past.iter().map(row).collect::<Html>()
    )
}

pub(super) async fn lock(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let locked = site.mail.users.lock(&name, sent.value("reason"), &visit.actor()).await;
    let words = locked.map(|locked| {
        let connections = count(locked.sessions_ended as u64, "open connection");
        format!("{name} is locked; {connections} ended.")
    });
    ended(&site, &visit, &sent, (&user_address(&name), words))
}

pub(super) async fn secure(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let password = visit.may(Role::Admin).then(fresh_password);
    let secured = site.mail.secure(&name, password.as_deref(), &visit.actor()).await;
    let words = secured.map(|done| {
        let held = count(done.messages_deleted as u64, "held mail");
        let queued = count(done.queued_deleted as u64, "mail");
        let problem = done.queue_problem.map_or_else(String::new, |problem| {
            format!(" Mail that waits for delivery could not be deleted, and may still go: {problem}.")
        });
        let password = match (&done.password_elsewhere, password.filter(|_| done.new_password)) {
            (None, Some(password)) => format!("The new password is {password} and is shown only this once."),
            (None, None) => "A password kept by Weir is no longer valid: an administrator sets a new one.".to_owned(),
            (Some(who), Some(password)) => format!(
                "The new password here is {password} and is shown only this once. It has to be changed elsewhere as well: {who}."
            ),
            (Some(who), None) => {
                format!(
                    "There is NO new password, and one kept by Weir is no longer valid: {who}. Change the password there before you unlock the account."
                )
            }
        };
        format!("{name} is locked; deleted: {held}, and {queued} that waited for delivery.{problem} {password}")
    });
    ended(&site, &visit, &sent, (&user_address(&name), words))
}

pub(super) async fn unlock(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let unlocked = site.mail.users.unlock(&name, &visit.actor()).await;
    let words = unlocked.map(|unlocked| match unlocked.held {
        0 => format!("{name} may send again. Nothing waits."),
        held => format!("{name} may send again. {} still wait, and go one by one.", count(held as u64, "recipient")),
    });
    ended(&site, &visit, &sent, (&user_address(&name), words))
}
