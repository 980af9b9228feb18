//! Tokens for programs.

use super::input::{Body, By, Name};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_mail::desk::{Desk, NewToken, TokenMade, TokenView};

pub(super) async fn list(State(desk): State<Desk>) -> Result<Json<Vec<TokenView>>, Problem> {
    Ok(Json(desk.token_list().await?))
}

pub(super) async fn add(
    State(desk): State<Desk>,
    By(actor): By,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), Problem> {
    Ok((StatusCode::CREATED, Json(desk.token_add(new, &actor).await?)))
}

pub(super) async fn revoke(
    State(desk): State<Desk>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<TokenView>>, Problem> {
    desk.token_revoke(&name, &actor).await?;
    list(State(desk)).await
}
