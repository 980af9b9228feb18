//! One id, one timeline.

use super::input::Name;
use super::problem::Problem;
use crate::trace::{NoTrace, Trace};
use axum::Json;
use axum::extract::State;
use weir_lab::node::Node;
use weir_mail::desk::Desk;

/// Who knows something.
#[derive(Clone)]
pub(super) struct Knowing {
    pub(super) desk: Desk,
    pub(super) lab: Option<Node>,
}

pub(super) async fn show(State(knowing): State<Knowing>, Name(id): Name) -> Result<Json<Trace>, Problem> {
    let trace = Trace::of(&knowing.desk, knowing.lab.as_ref(), &id).await;
    trace.map(Json).map_err(|error| match error {
        NoTrace::Mail(error) => error.into(),
        NoTrace::Lab(error) => error.into(),
    })
}
