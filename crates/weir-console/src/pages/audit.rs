//! The page with the audit trail: who did what, and when.

use super::{Asking, PageResult, Trouble, query};
use crate::frame::{Here, Sheet, empty};
use crate::html;
use crate::html::{Html, Piece};
use crate::site::Site;
use crate::words::time;
use axum::Extension;
use axum::extract::{RawQuery, State};
use weir_foundation::audit::AuditView;
use weir_foundation::date::asked_time;
use weir_store::records::AuditFilter;

const LINES: i64 = 200;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let subject = asked.value("subject");
    let filter = AuditFilter {
        subject: subject.to_owned(),
        who: asked.value("who").to_owned(),
        what: asked.value("what").to_owned(),
        since: asked_time(asked.value("since"))?,
        until: asked_time(asked.value("until"))?,
    };
    let lines = site.administration.audit.filtered(&filter, LINES).await?;
    let shown = if lines.is_empty() {
        empty("There are no entries.", &html!("Every login, release, deletion, lock and change is recorded here."))
    } else {
        html!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>When</th><th>Who</th><th>Did</th><th>To</th><th>More</th></tr></thead><tbody>{}</tbody></table></div>",
            lines.iter().map(row).collect::<Html>()
        )
    };
    let parts = [
        html!(
            "<h1>Audit</h1><p class=\"lead\">Who did what, the newest first.</p><form class=\"filter\"><label>About \
             <input name=\"subject\" value=\"{}\" placeholder=\"a user or a message id\"></label><label>By <input name=\"who\" value=\"{}\"></label>\
             <label>What <input name=\"what\" value=\"{}\" placeholder=\"held.release\"></label><label>Since <input name=\"since\" value=\"{}\" \
             placeholder=\"2h, or 2026-11-17\"></label><label>Until <input name=\"until\" value=\"{}\"></label><button>Filter</button></form>",
            subject,
            filter.who,
            filter.what,
            asked.value("since"),
            asked.value("until")
        ),
        shown,
    ];
    Ok(Sheet::live("Audit", Here::Audit, &parts).page(&site, &visit).await)
}

fn row(line: &AuditView) -> Html {
    html!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td><a href=\"/search?q={}\">{}</a></td><td class=\"main\">{}</td></tr>",
        time(&line.at),
        line.actor,
        line.action,
        Piece(&line.subject),
        line.subject,
        line.detail
    )
}

/// The history of one thing; empty if there is none.
pub(super) async fn trail(site: &Site, subject: &str, lines: i64) -> Result<Html, Trouble> {
    let lines = site.administration.audit.newest(subject, lines).await?;
    if lines.is_empty() {
        return Ok(Html::none());
    }
    let line = |line: &AuditView| {
        html!(
            "<li>{} <b>{}</b> by {} <span class=\"faint\">{}</span></li>",
            time(&line.at),
            line.action,
            line.actor,
            line.detail
        )
    };
    Ok(html!(
        "<section><h2>What was done</h2><ol class=\"timeline\">{}</ol></section>",
        lines.iter().map(line).collect::<Html>()
    ))
}
