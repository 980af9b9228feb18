//! The page of the throttle: who is stopped or waits, what is held, and all users.

use super::{Asking, PageResult, held, query};
use crate::frame::{Here, NARROW, Sheet, back, empty, plot, status, times, token};
use crate::history::History;
use crate::html;
use crate::html::{Html, Piece};
use crate::past::Over;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, time};
use axum::Extension;
use axum::extract::{RawQuery, State};
use std::time::Instant;
use weir_chart::Chart;
use weir_core::throttle::Params;
use weir_mail::operations::{BusyView, HeldSelection, UserList, UserView};

/// Mails in one table; a filter finds the rest.
const MAILS_MAX: usize = 200;
const BUSY_MAX: i64 = 50;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let asked = query(&asked);
    let over = Over::named(asked.value("over"));
    let (user, recipient, after) = (asked.value("user"), asked.value("to"), asked.value("after"));
    let selection =
        HeldSelection { user: user.to_owned(), recipient: recipient.to_owned(), all: true, ..HeldSelection::default() };
    let list = site.mail.held.first(&selection, MAILS_MAX).await?;
    let (busy, users) = (site.mail.throttles.busy(BUSY_MAX).await?, site.mail.users.list(after).await?);
    let totals = site.pulse().await.status.as_ref().map(|status| status.totals).unwrap_or_default();
    let (now, history) = (Instant::now(), site.history_over(over).await);
    let chart = history
        .chart(now, "Recipients held", ("held", "recipients"))
        .steps("held", history.gauge(|reading| reading.held, now))
        .when_empty("mail to many new people would fill this: weir demo outbreak");
    let longest = longest_queue(&history, &busy, now);
    let lead = match (totals.stopped, totals.held_recipients) {
        (0, 0) => "Nobody's mail waits.".to_owned(),
        (0, held) => format!("{} wait, and are sent automatically.", count(held, "recipient")),
        (stopped, held) => format!("{} stopped. {} wait.", people(stopped), count(held, "recipient")),
    };
    let held = if list.messages.is_empty() {
        let how = html!("Mail to many new people is held here. <code>weir demo outbreak</code> shows it.");
        if user.is_empty() && recipient.is_empty() {
            empty("Nothing is held.", &how)
        } else {
            empty("No held mail matches.", &Html::none())
        }
    } else {
        held::table(&visit, &list.messages, "/throttle")
    };
    let rest = if list.more {
        html!(
            "<p class=\"faint\">These are the first {} mails. Name a user or a recipient to see others.</p>",
            MAILS_MAX
        )
    } else {
        Html::none()
    };
    let parts = [
        html!(
            "<h1>Throttle</h1><p class=\"lead\">{}</p><p><a href=\"/bans\">Addresses that are banned after failed logins</a></p>",
            lead
        ),
        html!("<div class=\"two\">{}{}</div>", plot(&longest, NARROW), plot(&chart, NARROW)),
        times("throttle", over),
        busy_table(&visit, &busy),
        html!(
            "<section><h2 id=\"held\">Held mail</h2><form class=\"filter\"><label>User <input name=\"user\" value=\"{}\"></label>\
             <label>Recipient <input name=\"to\" value=\"{}\"></label><button>Filter</button></form></section>",
            user,
            recipient
        ),
        html!("{}{}", held, rest),
        user_table(&visit, &users),
    ];
    Ok(Sheet::live("Throttle", Here::Throttle, &parts).page(&site, &visit).await)
}

/// The longest delay queue of one account over time, and the length at which its account is stopped.
fn longest_queue(history: &History, busy: &[BusyView], now: Instant) -> Chart {
    let chart = history
        .chart(now, "The longest delay queue of one account", ("longest queue", "recipients"))
        .steps("longest", history.gauge(|reading| reading.held_most, now))
        .when_empty("an account that mails many new people would fill this");
    let longest = busy.iter().max_by_key(|busy| busy.throttle.held);
    let stops_at = longest.map_or_else(|| Params::default().stop_at, |busy| busy.throttle.params.0.stop_at);
    chart.level(format!("stopped above {stops_at}"), f64::from(stops_at))
}

fn people(number: i64) -> String {
    if number == 1 { "One user is".to_owned() } else { format!("{number} users are") }
}

fn busy_table(visit: &Visit, busy: &[BusyView]) -> Html {
    if busy.is_empty() {
        return Html::none();
    }
    let row = |busy: &BusyView| {
        let throttle = &busy.throttle;
        let unlock = html!(
            "<form method=\"post\" action=\"/throttle/users/{}/unlock\">{}{}<button>Unlock</button></form>",
            Piece(&busy.user),
            token(visit),
            back("/throttle")
        );
        html!(
            "<tr><td class=\"main\"><a href=\"/throttle/users/{}\">{}</a></td><td>{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Piece(&busy.user),
            busy.user,
            status(&throttle.state, &throttle.state),
            grouped(throttle.held as u64),
            throttle.next_at.as_deref().map(time),
            throttle.last_at.as_deref().map(time),
            if throttle.state == "stopped" { unlock } else { Html::none() }
        )
    };
    html!(
        "<section><h2>Stopped and waiting</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>User</th><th>State</th><th class=\"number\">Held</th>\
         <th>Next goes</th><th>Last goes</th><th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div></section>",
        busy.iter().map(row).collect::<Html>()
    )
}

fn user_table(visit: &Visit, users: &UserList) -> Html {
    let adding = super::user_admin::adding(visit);
    if users.users.is_empty() {
        let how = html!("<code>weir user add ann@example.org</code> makes one.");
        return html!("<section><h2>Users</h2>{}{}</section>", empty("There is no user yet.", &how), adding);
    }
    let row = |user: &UserView| {
        html!(
            "<tr><td class=\"main\"><a href=\"/throttle/users/{}\">{}</a></td><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            Piece(&user.name),
            user.name,
            status(&user.state, &user.state),
            user.profile,
            crate::frame::several(&user.addresses),
            if user.held > 0 { grouped(user.held as u64) } else { "0".to_owned() }
        )
    };
    let next = users
        .next
        .as_deref()
        .map(|next| html!("<p><a href=\"/throttle?after={}\">The next users</a></p>", Piece(next)));
    html!(
        "<section><h2>Users</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>User</th><th>State</th><th>Kind</th><th>Sends as</th>\
         <th class=\"number\">Held</th></tr></thead><tbody>{}</tbody></table></div>{}{}</section>",
        users.users.iter().map(row).collect::<Html>(),
        next,
        adding
    )
}
