//! Reads a request as its operation declares it: who is asking, the parts of the path, and the input. A request that cannot be read is
//! answered with a [`Problem`].

use super::Rank;
use super::operation::{Operation, Takes};
use super::problem::Problem;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_foundation::Actor;
use weir_foundation::console_accounts::Role;

/// Who is asking, and for what.
pub(super) struct Call<S> {
    /// The gates that answer.
    pub(super) state: S,
    pub(super) actor: Actor,
    /// The role of whoever is asking; none over the control socket, where everything is allowed.
    pub(super) rank: Option<Role>,
    /// The name in the path; empty if there is none.
    pub(super) name: String,
    /// The body, for an operation that accepts content.
    pub(super) content: Bytes,
}

/// Reads a request for this operation.
pub(super) async fn read<S, Input, Answer>(
    operation: Operation<Input, Answer>,
    state: S,
    request: Request,
) -> Result<(Call<S>, Input), Problem>
where
    Input: DeserializeOwned + 'static,
{
    let (mut parts, body) = request.into_parts();
    let actor = parts.extensions.get::<Actor>().cloned().ok_or_else(Problem::nobody)?;
    let rank = parts.extensions.get::<Rank>().map(|Rank(role)| *role);
    let name = if operation.path.contains('{') { name(&mut parts).await? } else { String::new() };
    let mut content = Bytes::new();
    let input = match operation.takes() {
        Takes::Nothing => Input::deserialize(Value::Null).map_err(|error| Problem::invalid(error.to_string(), ""))?,
        Takes::Query => query(&mut parts).await?,
        Takes::Json => json(Request::from_parts(parts, body)).await?,
        Takes::QueryAndContent => {
            let input = query(&mut parts).await?;
            content = bytes(Request::from_parts(parts, body)).await?;
            input
        }
    };
    Ok((Call { state, actor, rank, name, content }, input))
}

async fn name(parts: &mut Parts) -> Result<String, Problem> {
    let hint = "write names in the path as UTF-8, percent-encoded";
    let read: Result<Path<String>, _> = Path::from_request_parts(parts, &()).await;
    read.map(|Path(name)| name).map_err(|error| Problem::invalid(error.body_text(), hint))
}

async fn query<T: DeserializeOwned>(parts: &mut Parts) -> Result<T, Problem> {
    let hint = "the query has a field that is unknown or has the wrong form";
    let read: Result<Query<T>, _> = Query::from_request_parts(parts, &()).await;
    read.map(|Query(asked)| asked).map_err(|error| Problem::invalid(error.body_text(), hint))
}

async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let hint = "send one JSON object of the documented form with content type application/json";
    let read: Result<Json<T>, _> = Json::from_request(request, &()).await;
    read.map(|Json(body)| body).map_err(|error| Problem::invalid(error.body_text(), hint))
}

async fn bytes(request: Request) -> Result<Bytes, Problem> {
    let hint = "a larger sample goes into one of the numbered directories";
    Bytes::from_request(request, &()).await.map_err(|error| Problem::invalid(error.body_text(), hint))
}
