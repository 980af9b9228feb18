//! Quarantined mail.

use super::Rank;
use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use weir_foundation::Actor;
use weir_foundation::console_accounts::Role;
use weir_mail::desk::{
    Authority, Desk, QuarantineDecision, QuarantineDone, QuarantineList, QuarantinePage, QuarantineSelection,
};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filter {
    message: String,
    queue: String,
    recipient: String,
    sender: String,
    older_than_s: u64,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    selection: QuarantineSelection,
}

pub(super) async fn list(
    State(desk): State<Desk>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<QuarantineList>, Problem> {
    let Filter { message, queue, recipient, sender, older_than_s, text } = filter;
    let messages = if message.is_empty() { Vec::new() } else { vec![message] };
    let selection = QuarantineSelection { messages, queue, recipient, sender, older_than_s, text, all: true };
    Ok(Json(desk.quarantine_list(&selection).await?))
}

pub(super) async fn show(State(desk): State<Desk>, Name(message): Name) -> Result<Json<QuarantinePage>, Problem> {
    Ok(Json(desk.quarantine_show(&message).await?))
}

pub(super) async fn release(
    State(desk): State<Desk>,
    By(actor): By,
    rank: Option<Extension<Rank>>,
    Body(which): Body<Which>,
) -> Result<Json<QuarantineDone>, Problem> {
    decide(&desk, &which, (QuarantineDecision::Release, authority(rank)), &actor).await
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    By(actor): By,
    rank: Option<Extension<Rank>>,
    Body(which): Body<Which>,
) -> Result<Json<QuarantineDone>, Problem> {
    decide(&desk, &which, (QuarantineDecision::Delete, authority(rank)), &actor).await
}

/// Whoever owns the data folder is an administrator.
fn authority(rank: Option<Extension<Rank>>) -> Authority {
    match rank {
        None | Some(Extension(Rank(Role::Admin))) => Authority::Administrator,
        Some(Extension(Rank(Role::Operator | Role::User))) => Authority::Operator,
    }
}

async fn decide(
    desk: &Desk,
    which: &Which,
    (decision, authority): (QuarantineDecision, Authority),
    actor: &Actor,
) -> Result<Json<QuarantineDone>, Problem> {
    Ok(Json(desk.quarantine_decide(&which.selection, decision, &authority, actor).await?))
}
