//! One id, one timeline.

use super::input::Name;
use super::problem::Problem;
use crate::site::Gates;
use crate::trace::{NoTrace, Trace};
use axum::Json;
use axum::extract::State;

pub(super) async fn show(State(gates): State<Gates>, Name(id): Name) -> Result<Json<Trace>, Problem> {
    let trace = Trace::of(&gates.desk, gates.lab.as_ref(), &id).await;
    trace.map(Json).map_err(|error| match error {
        NoTrace::Mail(error) => error.into(),
        NoTrace::Lab(error) => error.into(),
    })
}
