//! The page of one's own console account, where the second factor is set up.

use super::{Asking, PageResult, Sent, Trouble, ended, failed, refused};
use crate::frame::{Here, Sheet, back, status, token};
use crate::html;
use crate::html::Html;
use crate::logins::everywhere;
use crate::session::Visit;
use crate::site::Site;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use std::time::Instant;
use weir_foundation::second_factor::RECOVERY_CODES;

const HERE: &str = "/account";

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let codes = if visit.known.code { on(&visit) } else { off(&visit) };
    Ok(framed(&site, &visit, codes).await)
}

async fn framed(site: &Site, visit: &Visit, codes: Html) -> Response {
    let body = html!(
        "<h1>{}</h1><p class=\"lead\">Your account of this console, as {}.</p><section><h2 id=\"codes\">A code besides the password</h2>{}</section>\
         <p class=\"faint\"><code>weir console passwd {}</code> on the machine gives it another password.</p>",
        visit.known.name,
        visit.known.role.as_str(),
        codes,
        visit.known.name
    );
    Sheet::new("Your account", Here::Nowhere, body).page(site, visit).await
}

fn off(visit: &Visit) -> Html {
    html!(
        "<p>{} A password is enough.</p><p class=\"faint\">An authenticator on your telephone makes a new code every half minute. Whoever has only your password does not get in.</p>\
         <form class=\"actions\" method=\"post\" action=\"/account/codes/begin\">{}<button class=\"main\">Set up an authenticator</button></form>",
        status("", "off"),
        token(visit)
    )
}

fn on(visit: &Visit) -> Html {
    html!(
        "<p>{} Every login asks for a code from your authenticator.</p><details class=\"ask\"><summary class=\"button danger\">Switch it off…</summary>\
         <p>After that the password is enough.</p><form method=\"post\" action=\"/account/codes/end\">{}{}<label>A code, or one of your recovery codes \
         <input name=\"code\" autocomplete=\"one-time-code\" required maxlength=\"40\"></label><button class=\"danger\">Switch codes off</button></form></details>",
        status("active", "on"),
        token(visit),
        back(HERE)
    )
}

pub(super) async fn begin(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let enrolment = site.administration.second_factor.begin(&visit.known.name).await?;
    Ok(framed(&site, &visit, waiting(&visit, (&enrolment.secret, &enrolment.uri))).await)
}

fn waiting(visit: &Visit, (secret, uri): (&str, &str)) -> Html {
    let groups: Vec<String> = secret.chars().collect::<Vec<_>>().chunks(4).map(|four| four.iter().collect()).collect();
    html!(
        "<p>Type this secret into your authenticator, or open the address below on the device that has it. Nothing changes until you have entered a first code.</p>\
         <dl class=\"facts\"><dt>Secret</dt><dd><code class=\"secret\">{}</code></dd><dt>Address</dt><dd><code>{}</code></dd></dl>\
         <form class=\"filter\" method=\"post\" action=\"/account/codes/confirm\">{}{}<label>The code that it shows now <input name=\"code\" inputmode=\"numeric\" \
         autocomplete=\"one-time-code\" required maxlength=\"40\"></label><button class=\"main\">Want a code from now on</button></form>",
        groups.join(" "),
        uri,
        token(visit),
        back(HERE)
    )
}

pub(super) async fn confirm(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let confirmed =
        site.administration.second_factor.confirm(&visit.known.name, sent.value("code"), &visit.actor()).await;
    let codes = match confirmed {
        Ok(codes) => codes,
        Err(error) => return Ok(failed(&site, &visit, &sent, (HERE, &Trouble::from(error)))),
    };
    let list: Html = codes.iter().map(|code| html!("<li><code>{}</code></li>", code)).collect();
    let shown = html!(
        "<p class=\"said done\" role=\"status\"><b>Done. </b>From now on every login wants a code.</p>\
         <p>If the authenticator is lost, each of these {} codes lets you in once. They are shown only now: print them, or write them down.</p>\
         <ul class=\"codes\">{}</ul><p><a class=\"button\" href=\"/account\">I have them</a></p>",
        RECOVERY_CODES,
        list
    );
    Ok(framed(&site, &visit, shown).await)
}

pub(super) async fn end(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let name = &visit.known.name;
    // A browser that was left open must not be enough; and nobody may try out codes here either.
    if site.sessions.logins.enter(name, everywhere(name), Instant::now()).is_err() {
        let words = "Too many codes were wrong. Wait a minute.".to_owned();
        return refused(&site, &visit, &sent, (HERE, words));
    }
    let ended_by = async {
        if !site.administration.second_factor.takes(name, sent.value("code")).await? {
            return Ok(None);
        }
        site.sessions.logins.succeeded(name, everywhere(name));
        site.administration.second_factor.end(name, &visit.actor()).await.map(Some)
    };
    match ended_by.await {
        Ok(None) => refused(&site, &visit, &sent, (HERE, "This code is wrong, or has been used already.".to_owned())),
        Ok(Some(())) => {
            let words = Ok::<_, Trouble>("A password is enough from now on.".to_owned());
            ended(&site, &visit, &sent, (HERE, words))
        }
        Err(error) => ended(&site, &visit, &sent, (HERE, Err::<String, weir_foundation::OperationError>(error))),
    }
}
