//! The lab's machines: a table on the lab's page, where they are drained, preferred, taken out and invited.

use super::{Asking, Sent, Trouble, ended, refused};
use crate::frame::{back, status, token};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use crate::words::time_ns;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::time::Duration;
use weir_foundation::console_accounts::Role;
use weir_lab::node::Node;
use weir_lab::operations::NodeLine;

/// How long a token for joining is valid.
const INVITED_FOR: Duration = Duration::from_secs(3_600);

/// The machines, as a section of a page.
pub(super) fn section(visit: &Visit, nodes: &[NodeLine]) -> Html {
    if nodes.is_empty() {
        return Html::none();
    }
    let row = |node: &NodeLine| {
        let state = match (node.leads, node.drained) {
            (true, _) => status("leads", "leads"),
            (false, true) => status("waiting", "takes no more samples"),
            (false, false) => status("", "follows"),
        };
        let change = if visit.may(Role::Admin) {
            html!(
                "<form method=\"post\" action=\"/lab/drain\">{}{}<input type=\"hidden\" name=\"node\" value=\"{}\"><button name=\"drained\" value=\"{}\">{}</button></form>\
                 <details class=\"ask\"><summary class=\"button\">Change…</summary><form method=\"post\" action=\"/lab/priority\">{}{}<input type=\"hidden\" name=\"node\" value=\"{}\">\
                 <label>Priority, the lowest leads <input name=\"priority\" type=\"number\" min=\"0\" max=\"255\" value=\"{}\" required></label><button>Set</button></form>\
                 <form method=\"post\" action=\"/lab/remove\">{}{}<input type=\"hidden\" name=\"node\" value=\"{}\"><button class=\"danger\">Take it out of the lab</button></form></details>",
                token(visit),
                back("/lab"),
                node.name,
                if node.drained { "no" } else { "yes" },
                if node.drained { "Give it samples again" } else { "Give it no more samples" },
                token(visit),
                back("/lab"),
                node.name,
                node.priority,
                token(visit),
                back("/lab"),
                node.name
            )
        } else {
            Html::none()
        };
        let seen = if node.seen_at > 0 { time_ns(node.seen_at) } else { html!("never") };
        html!(
            "<tr><td class=\"main\">{}<br><small>{}</small></td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            node.name,
            node.address,
            state,
            node.role,
            node.priority,
            node.index.map_or_else(|| "–".to_owned(), |index| index.to_string()),
            seen,
            change
        )
    };
    html!(
        "<section><h2>Machines</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Machine</th><th>State</th><th>Role</th>\
         <th class=\"number\">Priority</th><th class=\"number\">Processing index</th><th>At work</th><th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div>{}</section>",
        nodes.iter().map(row).collect::<Html>(),
        if visit.may(Role::Admin) { invitation(visit) } else { Html::none() }
    )
}

/// The form that makes a token for one more machine.
fn invitation(visit: &Visit) -> Html {
    html!(
        "<form class=\"filter\" method=\"post\" action=\"/lab/invite\">{}{}<label>Role of a new machine <select name=\"role\"><option value=\"worker\">worker</option>\
         <option value=\"dispatcher\">dispatcher</option><option value=\"eligible\">eligible</option></select></label>\
         <label>Priority <input name=\"priority\" type=\"number\" min=\"0\" max=\"255\" value=\"100\" required></label><button>Invite a machine</button></form>\
         <p class=\"faint\">This makes a token that is good for an hour; <code>weir lab join</code> takes it on the new machine.</p>",
        token(visit),
        back("/lab")
    )
}

pub(super) async fn drain(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let (name, drained) = (sent.value("node"), sent.value("drained") == "yes");
    let what = if drained { "takes no more samples" } else { "takes samples again" };
    site.administration.audit.note(&visit.actor(), "lab.drain", name, what).await?;
    let done = node(&site)?.drain(name, drained).await;
    Ok(ended(&site, &visit, &sent, ("/lab", done.map(|()| format!("{name} {what}.")))))
}

pub(super) async fn remove(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let name = sent.value("node");
    site.administration.audit.note(&visit.actor(), "lab.remove", name, "is taken out of the lab").await?;
    let done = node(&site)?.take_out(name).await;
    Ok(ended(&site, &visit, &sent, ("/lab", done.map(|_| format!("{name} is removed from the lab.")))))
}

pub(super) async fn prioritise(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let name = sent.value("node");
    let Some(priority) = priority(&sent) else { return Ok(no_priority(&site, &visit, &sent)) };
    site.administration.audit.note(&visit.actor(), "lab.priority", name, &format!("priority {priority}")).await?;
    let done = node(&site)?.prioritise(name, priority).await;
    Ok(ended(&site, &visit, &sent, ("/lab", done.map(|_| format!("{name} has the priority {priority}.")))))
}

pub(super) async fn invite(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let role = sent.value("role");
    let Some(priority) = priority(&sent) else { return Ok(no_priority(&site, &visit, &sent)) };
    let detail = format!("role {role}, priority {priority}, good for {} s", INVITED_FOR.as_secs());
    site.administration.audit.note(&visit.actor(), "lab.invite", "lab", &detail).await?;
    let invited = node(&site)?.invite(role, priority, INVITED_FOR).await;
    let words = invited.map(|invited| {
        format!("A machine joins with the token {} within the hour. It is shown only this once.", invited.token)
    });
    Ok(ended(&site, &visit, &sent, ("/lab", words)))
}

fn priority(sent: &crate::form::Form) -> Option<u8> {
    sent.value("priority").parse().ok()
}

fn no_priority(site: &Site, visit: &Visit, sent: &crate::form::Form) -> Response {
    refused(site, visit, sent, ("/lab", "A priority is a number from 0 to 255.".to_owned()))
}

/// The lab of this machine.
pub(super) fn node(site: &Site) -> Result<&Node, Trouble> {
    let nothing =
        || Trouble::new(StatusCode::NOT_FOUND, "this machine has no lab", "set lab.enabled, and start Weir again");
    site.lab.as_ref().ok_or_else(nothing)
}
