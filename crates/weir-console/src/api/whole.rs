//! What is about the whole: is somebody there, status, audit trail, keys, backup.

use super::input::{Asked, Body, By};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_foundation::audit::{AuditTrail, AuditView};
use weir_foundation::backup::{Backup, BackupDone};
use weir_foundation::clock::wall_clock;
use weir_foundation::supervision::{GateStates, GateView};
use weir_mail::desk::{Desk, KeyView, NewKey, Status};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trail {
    #[serde(default)]
    subject: String,
    #[serde(default = "hundred")]
    lines: i64,
}

fn hundred() -> i64 {
    100
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct To {
    folder: PathBuf,
}

#[derive(Serialize)]
pub(super) struct Alive {
    version: &'static str,
    pid: u32,
}

/// Answers at once, whatever the store is doing.
pub(super) async fn alive() -> Json<Alive> {
    Json(Alive { version: env!("CARGO_PKG_VERSION"), pid: std::process::id() })
}

/// How the whole is doing, and each gate by itself.
#[derive(Serialize)]
pub(super) struct WholeStatus {
    #[serde(flatten)]
    status: Status,
    /// None where nothing runs.
    gates: Vec<GateView>,
}

pub(super) async fn status(
    State(desk): State<Desk>,
    State(states): State<GateStates>,
) -> Result<Json<WholeStatus>, Problem> {
    let gates = states.view(wall_clock()).into_iter().filter(GateView::is_wanted).collect();
    Ok(Json(WholeStatus { status: desk.status().await?, gates }))
}

pub(super) async fn audit(
    State(audit): State<AuditTrail>,
    Asked(trail): Asked<Trail>,
) -> Result<Json<Vec<AuditView>>, Problem> {
    Ok(Json(audit.newest(&trail.subject, trail.lines).await?))
}

pub(super) async fn backup(
    State(backup): State<Backup>,
    By(actor): By,
    Body(to): Body<To>,
) -> Result<Json<BackupDone>, Problem> {
    Ok(Json(backup.make(&to.folder, &actor).await?))
}

pub(super) async fn keys(State(desk): State<Desk>) -> Result<Json<Vec<KeyView>>, Problem> {
    Ok(Json(desk.dkim_list()?))
}

pub(super) async fn add_key(
    State(desk): State<Desk>,
    By(actor): By,
    Body(new): Body<NewKey>,
) -> Result<(StatusCode, Json<KeyView>), Problem> {
    Ok((StatusCode::CREATED, Json(desk.dkim_add(new, &actor).await?)))
}
