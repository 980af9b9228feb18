//! What a request brings: its body, its query, who asks. What cannot be read is a [`Problem`].

use super::problem::Problem;
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use weir_foundation::Actor;

/// The JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Problem> {
        let read: Result<Json<T>, JsonRejection> = Json::from_request(request, state).await;
        let hint = "send one JSON object of the documented form with content type application/json";
        read.map(|Json(body)| Body(body)).map_err(|error| Problem::invalid(error.body_text(), hint))
    }
}

/// The query behind the `?`.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Problem> {
        let read: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        let hint = "the query has a field that is unknown or has the wrong form";
        read.map(|Query(asked)| Asked(asked)).map_err(|error| Problem::invalid(error.body_text(), hint))
    }
}

/// The name in the path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, Problem> {
        let read: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        let hint = "write names in the path as UTF-8, percent-encoded";
        read.map(|Path(name)| Name(name)).map_err(|error| Problem::invalid(error.body_text(), hint))
    }
}

/// Who asks.
pub(super) struct By(pub(super) Actor);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<By, Problem> {
        parts.extensions.get::<Actor>().cloned().map(By).ok_or_else(Problem::nobody)
    }
}
