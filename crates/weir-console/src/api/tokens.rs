//! Tokens for programs.

use super::input::{Body, By, Name};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_foundation::api_tokens::{ApiTokens, NewToken, TokenMade, TokenView};

pub(super) async fn list(State(tokens): State<ApiTokens>) -> Result<Json<Vec<TokenView>>, Problem> {
    Ok(Json(tokens.list().await?))
}

pub(super) async fn add(
    State(tokens): State<ApiTokens>,
    By(actor): By,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), Problem> {
    Ok((StatusCode::CREATED, Json(tokens.add(new, &actor).await?)))
}

pub(super) async fn revoke(
    State(tokens): State<ApiTokens>,
    By(actor): By,
    Name(name): Name,
) -> Result<Json<Vec<TokenView>>, Problem> {
    tokens.revoke(&name, &actor).await?;
    list(State(tokens)).await
}
