//! Accounts of the console: a table on the settings' page, where they are made, changed and removed.

use super::{Asking, Sent, ended, refused};
use crate::frame::{back, token};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use crate::words::time;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_foundation::console_accounts::{AccountView, NewAccount, Role};
use weir_foundation::secret::fresh_password;

const HERE: &str = "/settings";

/// The accounts, as a section of a page.
pub(super) fn section(visit: &Visit, accounts: &[AccountView]) -> Html {
    let row = |account: &AccountView| {
        html!(
            "<tr><td class=\"main\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            account.name,
            account.role.as_str(),
            time(&account.created),
            if account.codes { "wanted" } else { "no" },
            choices(visit, account)
        )
    };
    html!(
        "<section><h2 id=\"accounts\">Accounts of this console</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Name</th><th>Role</th><th>Made</th><th>Codes</th>\
         <th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div>\
         <form class=\"filter\" method=\"post\" action=\"/settings/accounts/add\">{}{}<label>Name <input name=\"name\" required maxlength=\"100\"></label>\
         <label>Role <select name=\"role\"><option value=\"operator\">operator</option><option value=\"admin\">admin</option></select></label><button>Make an account</button></form>\
         <p class=\"faint\">Weir makes the password and shows it once. Users of the mail gate log in with their own password and see their own held mail. \
         <code>weir console</code> does the same.</p></section>",
        accounts.iter().map(row).collect::<Html>(),
        token(visit),
        back(HERE)
    )
}

fn choices(visit: &Visit, account: &AccountView) -> Html {
    let form = |action: &str, class: &str, word: &str| {
        html!(
            "<form method=\"post\" action=\"/settings/accounts/{}\">{}{}<input type=\"hidden\" name=\"name\" value=\"{}\"><button class=\"{}\">{}</button></form>",
            action,
            token(visit),
            back(HERE),
            account.name,
            class,
            word
        )
    };
    html!(
        "<details class=\"ask\"><summary class=\"button\">Change…</summary><p>A new password ends the sessions of the old one.</p>{}{}{}</details>",
        form("password", "", "Make a new password"),
        if account.codes { form("codes-off", "", "Remove the lost codes") } else { Html::none() },
        form("remove", "danger", "Remove this account")
    )
}

pub(super) async fn add(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let role = match sent.value("role") {
        "operator" => Role::Operator,
        "admin" => Role::Admin,
        _ => return refused(&site, &visit, &sent, (HERE, "An account has a role: operator or admin.".to_owned())),
    };
    let password = fresh_password();
    let new = NewAccount { name: sent.value("name").to_owned(), role, password: password.clone() };
    let made = site.administration.accounts.add(new, &visit.actor()).await;
    let words =
        made.map(|made| format!("{} may log in. The password is {password} and is shown only this once.", made.name));
    ended(&site, &visit, &sent, (HERE, words))
}

pub(super) async fn password(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let (name, password) = (sent.value("name"), fresh_password());
    let changed = site.administration.accounts.set_password(name, &password, &visit.actor()).await;
    let words = changed.map(|()| format!("The new password of {name} is {password} and is shown only this once."));
    ended(&site, &visit, &sent, (HERE, words))
}

pub(super) async fn codes_off(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let name = sent.value("name");
    let ended_codes = site.administration.second_factor.end(name, &visit.actor()).await;
    ended(&site, &visit, &sent, (HERE, ended_codes.map(|_| format!("{name} logs in without codes."))))
}

pub(super) async fn remove(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let name = sent.value("name");
    let removed = site.administration.accounts.remove(name, &visit.actor()).await;
    ended(&site, &visit, &sent, (HERE, removed.map(|()| format!("The account {name} is removed."))))
}
