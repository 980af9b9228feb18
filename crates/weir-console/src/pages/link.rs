//! The link in a notice, which opens a user's own page without a password.
//!
//! Programs that look at mail follow links, so following it shows one button, and only that begins a session. It is a session of
//! its own kind: the link went to the contact address, which a program that sends mail in somebody's name does not read, so what
//! is held may also be released with it.

use super::login::{begin, bound_form, from, welcome};
use super::{Sent, Trouble};
use crate::door::PeerAddress;
use crate::html;
use crate::html::Html;
use crate::session::Way;
use crate::site::Site;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use weir_foundation::console_accounts::{KnownAccount, Role};

pub(super) async fn page(
    State(site): State<Site>,
    headers: HeaderMap,
    Path(key): Path<String>,
) -> Result<Response, Trouble> {
    let (known, _) = known(&site, &key).await?;
    let fields = html!(
        "<input type=\"hidden\" name=\"key\" value=\"{}\"><p>Look at the held mail of <b>{}</b>.</p><button class=\"main\">Go on</button>",
        key,
        known.name
    );
    Ok(bound_form(&site, &headers, ("link", ""), (&fields, &Html::none()), None))
}

pub(super) async fn enter(
    State(site): State<Site>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let (known, situation) = known(&site, sent.value("key")).await?;
    let from = from(&site, &headers, peer);
    let visit = begin(&site, &headers, (known, Way::Link { situation }), from).await?;
    Ok(welcome(&site, &headers, &visit, ""))
}

/// Whose page it is, and the situation in which the link was made.
async fn known(site: &Site, key: &str) -> Result<(KnownAccount, u32), Trouble> {
    let nothing = || {
        let hint = "Links are valid for seven days, until the contact address changes, and until the account is stopped or unlocked. \
                    Follow the link in the latest notice, log in, or ask an administrator.";
        Trouble::new(StatusCode::NOT_FOUND, "This link is not valid, or no longer valid.", hint)
    };
    let (name, situation) = site.mail.users.of_link(key).await?.ok_or_else(nothing)?;
    // Never an account of the console, because that needs a password.
    let known = site.administration.accounts.known(&name).await?;
    let known = known.filter(|known| known.role == Role::User).ok_or_else(nothing)?;
    Ok((known, situation))
}
