//! Users.

use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use weir_mail::desk::{Change, Desk, LockDone, NewUser, UnlockDone, UserList, UserPage};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    #[serde(default)]
    after: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    pub(super) password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    reason: String,
}

pub(super) async fn list(State(desk): State<Desk>, Asked(from): Asked<After>) -> Result<Json<UserList>, Problem> {
    Ok(Json(desk.user_list(&from.after).await?))
}

pub(super) async fn add(
    State(desk): State<Desk>,
    By(actor): By,
    Body(new): Body<NewUser>,
) -> Result<(StatusCode, Json<UserPage>), Problem> {
    Ok((StatusCode::CREATED, Json(desk.user_add(new, &actor).await?)))
}

pub(super) async fn show(State(desk): State<Desk>, Name(name): Name) -> Result<Json<UserPage>, Problem> {
    Ok(Json(desk.user_show(&name).await?))
}

pub(super) async fn set(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
    Body(change): Body<Change>,
) -> Result<Json<UserPage>, Problem> {
    Ok(Json(desk.user_set(&name, &change, &actor).await?))
}

pub(super) async fn password(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
    Body(new): Body<NewPassword>,
) -> Result<Json<UserPage>, Problem> {
    desk.user_password(&name, &new.password, &actor).await?;
    Ok(Json(desk.user_show(&name).await?))
}

pub(super) async fn lock(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
    Body(why): Body<Reason>,
) -> Result<Json<LockDone>, Problem> {
    Ok(Json(desk.user_lock(&name, &why.reason, &actor).await?))
}

pub(super) async fn unlock(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<UnlockDone>, Problem> {
    Ok(Json(desk.user_unlock(&name, &actor).await?))
}
