//! What is about the whole: is somebody there, status, audit trail, backup.

use super::input::{Asked, Body, By};
use super::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_mail::desk::{AuditView, BackupDone, Desk, Status};

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

pub(super) async fn status(State(desk): State<Desk>) -> Result<Json<Status>, Problem> {
    Ok(Json(desk.status().await?))
}

pub(super) async fn audit(
    State(desk): State<Desk>,
    Asked(trail): Asked<Trail>,
) -> Result<Json<Vec<AuditView>>, Problem> {
    Ok(Json(desk.audit_trail(&trail.subject, trail.lines).await?))
}

pub(super) async fn backup(
    State(desk): State<Desk>,
    By(actor): By,
    Body(to): Body<To>,
) -> Result<Json<BackupDone>, Problem> {
    Ok(Json(desk.backup(&to.folder, &actor).await?))
}
