//! Who is logged in at this console: a table on the settings' page, where a session can be ended.

use super::{Asking, Sent, ended};
use crate::frame::{back, token};
use crate::html;
use crate::html::Html;
use crate::session::{SessionLine, Visit};
use crate::site::Site;
use crate::words::{seconds, time};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use std::time::Instant;
use weir_foundation::OperationError;

const HERE: &str = "/settings";

/// The sessions, as a section of a page.
pub(super) fn section(site: &Site, visit: &Visit) -> Html {
    let own = site.sessions.number_of(&visit.id);
    let row = |line: &SessionLine| {
        let end = if own == Some(line.number) {
            html!("<span class=\"faint\">this one</span>")
        } else {
            html!(
                "<form method=\"post\" action=\"/settings/sessions/end\">{}{}<input type=\"hidden\" name=\"number\" value=\"{}\"><button class=\"danger\">Log out</button></form>",
                token(visit),
                back(HERE),
                line.number
            )
        };
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            line.name,
            line.role.as_str(),
            line.from,
            if line.by_link { ", by the link of a notice" } else { "" },
            time(&line.since),
            seconds(line.quiet_s as f64),
            end
        )
    };
    html!(
        "<section><h2 id=\"sessions\">Who is logged in</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Name</th><th>Role</th><th>From</th><th>Since</th><th>Quiet for</th><th><span class=\"unseen\">Actions</span></th></tr></thead>\
         <tbody>{}</tbody></table></div></section>",
        site.sessions.list(Instant::now()).iter().map(row).collect::<Html>()
    )
}

pub(super) async fn end(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let number = sent.value("number");
    let ended_whose = number.parse().ok().and_then(|number| site.sessions.end_number(number));
    let words = match ended_whose {
        Some(whose) => {
            let noted = site.administration.audit.note(&visit.actor(), "console.session.end", &whose, number).await;
            noted.map(|()| format!("{whose} is logged out."))
        }
        None => Err(OperationError::unknown("that session is over", "")),
    };
    ended(&site, &visit, &sent, (HERE, words))
}
