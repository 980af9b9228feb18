//! Accounts of the console.

use super::input::{Body, By, Name};
use super::problem::Problem;
use super::users::NewPassword;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_mail::desk::{AccountView, Desk, NewAccount};

pub(super) async fn list(State(desk): State<Desk>) -> Result<Json<Vec<AccountView>>, Problem> {
    Ok(Json(desk.account_list().await?))
}

pub(super) async fn add(
    State(desk): State<Desk>,
    By(actor): By,
    Body(new): Body<NewAccount>,
) -> Result<(StatusCode, Json<AccountView>), Problem> {
    Ok((StatusCode::CREATED, Json(desk.account_add(new, &actor).await?)))
}

pub(super) async fn password(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
    Body(new): Body<NewPassword>,
) -> Result<Json<Vec<AccountView>>, Problem> {
    desk.account_password(&name, &new.password, &actor).await?;
    list(State(desk)).await
}

/// Takes the second factor of somebody who has lost it away.
pub(super) async fn codes_off(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<AccountView>>, Problem> {
    desk.second_factor_end(&name, &actor).await?;
    list(State(desk)).await
}

pub(super) async fn remove(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<AccountView>>, Problem> {
    desk.account_remove(&name, &actor).await?;
    list(State(desk)).await
}
