//! Held mail.

use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use weir_mail::desk::{Analysed, Decision, Desk, HeldDone, HeldList, HeldPage, HeldSelection, LearnedView};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filter {
    message: String,
    user: String,
    recipient: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    #[serde(default)]
    selection: HeldSelection,
    #[serde(default)]
    trust: bool,
}

/// Which mail, where there is nothing more to say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    #[serde(default)]
    selection: HeldSelection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Days {
    #[serde(default = "month")]
    days: i64,
}

fn month() -> i64 {
    30
}

pub(super) async fn list(State(desk): State<Desk>, Asked(filter): Asked<Filter>) -> Result<Json<HeldList>, Problem> {
    let messages = if filter.message.is_empty() { Vec::new() } else { vec![filter.message] };
    let selection = HeldSelection { messages, user: filter.user, recipient: filter.recipient, all: true };
    Ok(Json(desk.held_list(&selection).await?))
}

pub(super) async fn show(State(desk): State<Desk>, Name(message): Name) -> Result<Json<HeldPage>, Problem> {
    Ok(Json(desk.held_show(&message).await?))
}

pub(super) async fn release(
    State(desk): State<Desk>,
    By(actor): By,
    Body(release): Body<Release>,
) -> Result<Json<HeldDone>, Problem> {
    let decision = if release.trust { Decision::Trust } else { Decision::Release };
    Ok(Json(desk.held_decide(&release.selection, decision, &actor).await?))
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    By(actor): By,
    Body(delete): Body<Delete>,
) -> Result<Json<HeldDone>, Problem> {
    Ok(Json(desk.held_decide(&delete.selection, Decision::Delete, &actor).await?))
}

pub(super) async fn analyse(
    State(desk): State<Desk>,
    By(actor): By,
    Body(which): Body<Delete>,
) -> Result<Json<Analysed>, Problem> {
    Ok(Json(desk.held_analyse(&which.selection, &actor).await?))
}

pub(super) async fn learned(
    State(desk): State<Desk>,
    Asked(back): Asked<Days>,
) -> Result<Json<Vec<LearnedView>>, Problem> {
    Ok(Json(desk.learned(back.days).await?))
}
