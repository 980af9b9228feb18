//! Accounts of the console.

use super::input::{Body, By, Name};
use super::problem::Problem;
use super::users::NewPassword;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_foundation::console_accounts::{AccountView, ConsoleAccounts, NewAccount};
use weir_foundation::second_factor::SecondFactor;

pub(super) async fn list(State(accounts): State<ConsoleAccounts>) -> Result<Json<Vec<AccountView>>, Problem> {
    Ok(Json(accounts.list().await?))
}

pub(super) async fn add(
    State(accounts): State<ConsoleAccounts>,
    By(actor): By,
    Body(new): Body<NewAccount>,
) -> Result<(StatusCode, Json<AccountView>), Problem> {
    Ok((StatusCode::CREATED, Json(accounts.add(new, &actor).await?)))
}

pub(super) async fn password(
    State(accounts): State<ConsoleAccounts>,
    By(actor): By,
    Name(name): Name,
    Body(new): Body<NewPassword>,
) -> Result<Json<Vec<AccountView>>, Problem> {
    accounts.set_password(&name, &new.password, &actor).await?;
    list(State(accounts)).await
}

/// Takes the second factor of somebody who has lost it away.
pub(super) async fn codes_off(
    State(accounts): State<ConsoleAccounts>,
    State(second_factor): State<SecondFactor>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<AccountView>>, Problem> {
    second_factor.end(&name, &actor).await?;
    list(State(accounts)).await
}

pub(super) async fn remove(
    State(accounts): State<ConsoleAccounts>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<AccountView>>, Problem> {
    accounts.remove(&name, &actor).await?;
    list(State(accounts)).await
}
