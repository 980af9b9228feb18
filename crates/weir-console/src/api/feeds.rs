//! The scan's feeds.

use super::input::{Body, By};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use weir_mail::desk::Desk;
use weir_mail::scan::{FeedsStatus, TuneView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tune {
    #[serde(default)]
    apply: bool,
}

pub(super) async fn status(State(desk): State<Desk>) -> Result<Json<FeedsStatus>, Problem> {
    Ok(Json(desk.feeds_status()?))
}

pub(super) async fn tune(
    State(desk): State<Desk>,
    By(actor): By,
    Body(tune): Body<Tune>,
) -> Result<Json<TuneView>, Problem> {
    Ok(Json(desk.feeds_tune(tune.apply, &actor).await?))
}
