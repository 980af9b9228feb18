//! Users as an administrator makes, changes and removes them: forms on the pages of the throttle and of a user.

use super::{Asking, Sent, ended, refused, user_address};
use crate::form::Form;
use crate::frame::{back, token};
use crate::html;
use crate::html::{Html, Piece};
use crate::session::Visit;
use crate::site::Site;
use crate::words::decimal;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_core::throttle::{PARAMS, Param, ParamKind};
use weir_foundation::console_accounts::Role;
use weir_foundation::secret::fresh_password;
use weir_mail::operations::{Change, NewUser, OwnThrottle, ParamValue, Profile, UserPage};

const HERE: &str = "/throttle";
const PROFILES: [(Profile, &str); 4] = [
    (Profile::Person, "a person"),
    (Profile::List, "somebody who writes to many people at once"),
    (Profile::Application, "a program"),
    (Profile::Exempt, "never throttled"),
];

/// The form for adding a user; empty for visitors who may not.
pub(super) fn adding(visit: &Visit) -> Html {
    if !visit.may(Role::Admin) {
        return Html::none();
    }
    html!(
        "<details class=\"ask\"><summary class=\"button\">Add a user…</summary><form class=\"filter\" method=\"post\" action=\"/users/add\">{}{}\
         <label>Login <input name=\"name\" required maxlength=\"255\" autocomplete=\"off\" placeholder=\"ann@example.org\"></label>\
         <label>Sends as, if not as the login <input name=\"addresses\" maxlength=\"2000\" placeholder=\"ann@example.org, @lists.example.org\"></label>\
         <label>Sees the spam to, besides the login <input name=\"reads\" maxlength=\"2000\" placeholder=\"ann.smith@example.org\"></label>\
         <label>Notices go to, outside this system <input name=\"contact\" maxlength=\"255\"></label>\
         <label>Kind <select name=\"profile\">{}</select></label>\
         <label>Password <select name=\"password\"><option value=\"make\">make one, and show it once</option><option value=\"none\">none: another system checks it</option></select></label>\
         <button class=\"main\">Add the user</button></form></details>",
        token(visit),
        back(HERE),
        profiles("person")
    )
}

fn profiles(current: &str) -> Html {
    let option = |(profile, about): (Profile, &str)| {
        let word = profile.as_str();
        match word == current {
            true => html!("<option value=\"{}\" selected>{}: {}</option>", word, word, about),
            false => html!("<option value=\"{}\">{}: {}</option>", word, word, about),
        }
    };
    PROFILES.into_iter().map(option).collect()
}

/// What an administrator can change about a user; empty for visitors who may not.
pub(super) fn section(visit: &Visit, page: &UserPage) -> Html {
    // A user whom only the throttle knows has no account that could be changed.
    if !visit.may(Role::Admin) || page.user.created.is_empty() {
        return Html::none();
    }
    let name = &page.user.name;
    let form = |action: &str, fields: Html| {
        html!(
            "<form class=\"filter\" method=\"post\" action=\"/users/{}/{}\">{}{}{}</form>",
            Piece(name),
            action,
            token(visit),
            back(&user_address(name)),
            fields
        )
    };
    html!(
        "<section><h2>Change this user</h2><div class=\"actions\">\
         <details class=\"ask\"><summary class=\"button\">Addresses and kind…</summary>{}</details>\
         <details class=\"ask\"><summary class=\"button\">Limits…</summary>{}</details>\
         <details class=\"ask\"><summary class=\"button\">New password…</summary><p>The old one is no good from then on. The new one is shown once.</p>{}</details>\
         <details class=\"ask\"><summary class=\"button danger\">Remove…</summary><p>Logins fail, open connections end, and what Weir has learned about {} is forgotten. \
         Mail that is held must be released or deleted before.</p>{}</details></div></section>",
        form("change", account(page)),
        form("limits", limits(page)),
        form("password", html!("<button>Give {} a new password</button>", name)),
        name,
        form("remove", html!("<button class=\"danger\">Remove {}</button>", name))
    )
}

fn account(page: &UserPage) -> Html {
    html!(
        "<label>Sends as <input name=\"addresses\" maxlength=\"20000\" value=\"{}\"></label>\
         <label>Notices go to <input name=\"contact\" maxlength=\"255\" value=\"{}\"></label><label>Kind <select name=\"profile\">{}</select></label>\
         <label>Mail never waits to <input name=\"trusted\" maxlength=\"20000\" value=\"{}\"></label>\
         <label>Sees the spam to <input name=\"reads\" maxlength=\"5000\" value=\"{}\"></label><button>Save</button>",
        page.user.addresses.join(", "),
        page.user.contact,
        profiles(&page.user.profile),
        page.trusted.join(", "),
        page.reads.join(", ")
    )
}

/// The user's own limits: an empty field changes nothing.
fn limits(page: &UserPage) -> Html {
    let own = |param: &Param| page.own_parameters.iter().any(|own| own == param.stored);
    let field = |param: &Param| {
        let value = param.value(&page.throttle.params.0);
        let (now, unit) = match param.kind {
            ParamKind::Rate => (decimal(60e9 / value.max(1) as f64), " a minute"),
            ParamKind::Cap if value == 0 => ("no limit".to_owned(), ""),
            _ => (value.to_string(), ""),
        };
        let source = if own(param) { "set for this user" } else { "of the profile" };
        html!(
            "<label>{}{} <small>now {}, {}</small><input name=\"{}\" inputmode=\"decimal\" maxlength=\"20\"></label>",
            param.about,
            unit,
            now,
            source,
            param.name
        )
    };
    html!(
        "{}<label><input type=\"checkbox\" name=\"reset\"> First forget all limits of the user's own</label><button>Save</button>",
        numeric().map(field).collect::<Html>()
    )
}

/// The parameters that are numbers.
fn numeric() -> impl Iterator<Item = &'static Param> {
    PARAMS.iter().filter(|param| !matches!(param.kind, ParamKind::Choice(_)))
}

/// `a@x, b@y`, or one on each line.
fn listed(text: &str) -> Vec<String> {
    let pieces = text.split([',', '\n', ' ']).map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(str::to_owned).collect()
}

fn profile(sent: &Form) -> Option<Profile> {
    let word = sent.value("profile");
    PROFILES.into_iter().map(|(profile, _)| profile).find(|profile| profile.as_str() == word)
}

pub(super) async fn add(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let Some(profile) = profile(&sent) else {
        return refused(&site, &visit, &sent, (HERE, "Choose the kind of the user.".to_owned()));
    };
    let password = (sent.value("password") == "make").then(fresh_password);
    let new = NewUser {
        name: sent.value("name").to_owned(),
        password: password.clone(),
        addresses: listed(sent.value("addresses")),
        contact: sent.value("contact").to_owned(),
        profile,
        reads: listed(sent.value("reads")),
    };
    let added = site.mail.users.add(new, &visit.actor()).await;
    let words = added.map(|page| match password {
        Some(password) => {
            format!("{} is a user. The password is {password} and is shown only this once.", page.user.name)
        }
        None => format!("{} is a user, without a password here.", page.user.name),
    });
    ended(&site, &visit, &sent, (HERE, words))
}

pub(super) async fn change(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let changed = async {
        let before = site.mail.users.show(&name).await?;
        let trusted = listed(sent.value("trusted"));
        let change = Change {
            addresses: Some(listed(sent.value("addresses"))),
            contact: Some(sent.value("contact").to_owned()),
            profile: profile(&sent),
            trust: trusted.iter().filter(|address| !before.trusted.contains(address)).cloned().collect(),
            distrust: before.trusted.iter().filter(|address| !trusted.contains(address)).cloned().collect(),
            reads: Some(listed(sent.value("reads"))),
            ..Change::default()
        };
        site.mail.users.set(&name, &change, &visit.actor()).await
    };
    let words = changed.await.map(|page| format!("{} is changed.", page.user.name));
    ended(&site, &visit, &sent, (&user_address(&name), words))
}

pub(super) async fn limits_change(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let throttle = match asked(&sent) {
        Ok(throttle) => throttle,
        Err(words) => return refused(&site, &visit, &sent, (&user_address(&name), words)),
    };
    let change = Change { throttle, ..Change::default() };
    let changed = site.mail.users.set(&name, &change, &visit.actor()).await;
    ended(
        &site,
        &visit,
        &sent,
        (&user_address(&name), changed.map(|page| format!("The limits of {} are changed.", page.user.name))),
    )
}

fn asked(sent: &Form) -> Result<OwnThrottle, String> {
    let mut throttle = OwnThrottle::default().resetting(sent.has("reset"));
    for param in numeric() {
        let text = sent.value(param.name);
        if text.is_empty() {
            continue;
        }
        let asked = match param.kind {
            ParamKind::Rate => text.parse().ok().map(ParamValue::PerMin),
            _ => text.parse().ok().map(ParamValue::Number),
        };
        let wrong = || format!("“{}” needs a number; {} is not one.", param.about, text);
        throttle = throttle.with(param.name, asked.ok_or_else(wrong)?);
    }
    Ok(throttle)
}

pub(super) async fn password(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    let password = fresh_password();
    let changed = site.mail.users.set_password(&name, &password, &visit.actor()).await;
    let words = changed.map(|()| format!("The new password of {name} is {password} and is shown only this once."));
    ended(&site, &visit, &sent, (&user_address(&name), words))
}

pub(super) async fn remove(
    State(site): State<Site>,
    Extension(visit): Asking,
    Path(name): Path<String>,
    Extension(sent): Sent,
) -> Response {
    match site.mail.users.remove(&name, &visit.actor()).await {
        Ok(removed) => {
            let words = format!("The user {} is removed.", removed.name);
            super::done(&site, &visit, words, HERE)
        }
        Err(error) => {
            ended::<weir_foundation::OperationError>(&site, &visit, &sent, (&user_address(&name), Err(error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_typed_as_people_type_them() {
        assert_eq!(listed("a@x, b@y\n c@z "), ["a@x", "b@y", "c@z"]);
        assert!(listed(" , ").is_empty());
    }

    #[test]
    fn limits_that_are_left_empty_stay_and_what_is_no_number_is_refused() {
        let form = |text: &str| asked(&Form::read(text.as_bytes()));
        assert_eq!(form("rate=&stop_at=").unwrap(), OwnThrottle::default());
        let one = form("stop_at=20&rate=0.5&reset=on").unwrap();
        assert_eq!(
            serde_json::to_value(&one).unwrap(),
            serde_json::json!({ "reset": true, "stop_at": 20, "rate_per_min": 0.5 })
        );
        assert!(form("stop_at=many").unwrap_err().contains("many is not one"));
    }
}
