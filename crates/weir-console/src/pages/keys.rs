//! Keys that sign outgoing mail: a table on the settings' page, where one is made.

use super::{Asking, Sent, ended, refused};
use crate::frame::{back, empty, status, token};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_mail::operations::{KeyKind, KeyView, NewKey};

const HERE: &str = "/settings";

/// The keys, as a section of a page.
pub(super) fn section(visit: &Visit, keys: &[KeyView]) -> Html {
    let row = |key: &KeyView| {
        html!(
            "<tr><td class=\"main\">{}</td><td>{}</td><td>{}</td><td class=\"main\"><details><summary>What to publish</summary><code class=\"wrap\">{}</code></details></td></tr>",
            key.domain,
            key.selector,
            if key.signs { status("open", "signs") } else { status("", "only published") },
            key.record
        )
    };
    let table = if keys.is_empty() {
        empty("No key signs outgoing mail.", &html!("With one, others can see that mail is yours."))
    } else {
        html!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Domain</th><th>Selector</th><th>State</th><th>In the DNS</th></tr></thead><tbody>{}</tbody></table></div>",
            keys.iter().map(row).collect::<Html>()
        )
    };
    html!(
        "<section><h2 id=\"dkim\">Keys that sign outgoing mail</h2>{}<form class=\"filter\" method=\"post\" action=\"/settings/dkim\">{}{}\
         <label>Domain <input name=\"domain\" required maxlength=\"253\" placeholder=\"example.org\"></label>\
         <label>Kind <select name=\"kind\"><option value=\"rsa\">rsa</option><option value=\"ed25519\">ed25519</option></select></label><button>Make a key</button></form></section>",
        table,
        token(visit),
        back(HERE)
    )
}

pub(super) async fn add(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let kind = match sent.value("kind") {
        "rsa" => KeyKind::Rsa,
        "ed25519" => KeyKind::Ed25519,
        _ => return refused(&site, &visit, &sent, (HERE, "A key is of a kind: rsa or ed25519.".to_owned())),
    };
    let new = NewKey { domain: sent.value("domain").to_owned(), selector: String::new(), kind };
    let made = site.mail.dkim.add(new, &visit.actor()).await;
    let words =
        made.map(|key| format!("There is a key {} for {}. Publish its record, below.", key.selector, key.domain));
    ended(&site, &visit, &sent, (HERE, words))
}
