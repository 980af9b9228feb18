//! The API operations on API tokens.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use weir_foundation::api_tokens::{NewToken, TokenMade, TokenView};

/// Tokens for programs.
pub const LIST: Operation<(), Vec<TokenView>> = look("/console/tokens", "Tokens for programs").for_administrators();
/// Makes a token.
pub const ADD: Operation<NewToken, TokenMade> =
    administer("/console/tokens", "Makes a token, which is told only now").makes();
/// Revokes a token.
pub const REVOKE: Operation<(), Vec<TokenView>> = administer("/console/tokens/{name}/revoke", "Revokes a token");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(ADD, add).with(REVOKE, revoke)
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<TokenView>, Problem> {
    Ok(call.state.administration.tokens.list().await?)
}

async fn add(call: Call<Gates>, new: NewToken) -> Result<TokenMade, Problem> {
    Ok(call.state.administration.tokens.add(new, &call.actor).await?)
}

async fn revoke(call: Call<Gates>, (): ()) -> Result<Vec<TokenView>, Problem> {
    call.state.administration.tokens.revoke(&call.name, &call.actor).await?;
    list(call, ()).await
}
