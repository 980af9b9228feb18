//! The lab: its state, its samples, and what is handed in.

use super::PREFIX;
use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_lab::desk::{HandedIn, LabStatus, NodeLine, SampleFilter, SampleLine, SamplePage};
use weir_lab::node::Node;

/// A larger sample goes into one of the numbered directories.
const SAMPLE_BYTES_MAX: usize = 64 << 20;
const LIST_MAX: i64 = 1_000;

/// The part of the API that is about the lab; to be merged with the rest where one runs.
pub fn lab_router(node: Node) -> Router {
    let api = Router::new()
        .route("/lab", get(status))
        .route("/lab/samples", get(list).post(submit).layer(DefaultBodyLimit::max(SAMPLE_BYTES_MAX)))
        .route("/lab/samples/{sample}", get(show))
        .route("/lab/cancel", post(cancel))
        .route("/lab/nodes", get(nodes))
        .route("/lab/drain", post(drain))
        .route("/lab/invite", post(invite))
        .route("/lab/remove", post(remove))
        .with_state(node);
    Router::new().nest(PREFIX, api)
}

async fn status(State(node): State<Node>) -> Result<Json<LabStatus>, Problem> {
    Ok(Json(node.status().await?))
}

async fn nodes(State(node): State<Node>) -> Result<Json<Vec<NodeLine>>, Problem> {
    Ok(Json(node.nodes().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    node: String,
    drained: bool,
}

async fn drain(
    State(node): State<Node>,
    By(_): By,
    Body(asked): Body<Drained>,
) -> Result<Json<Vec<NodeLine>>, Problem> {
    node.drain(&asked.node, asked.drained).await?;
    Ok(Json(node.nodes().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    node: String,
}

async fn remove(
    State(node): State<Node>,
    By(_): By,
    Body(asked): Body<Removed>,
) -> Result<Json<Vec<NodeLine>>, Problem> {
    node.take_out(&asked.node).await?;
    Ok(Json(node.nodes().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invited {
    role: String,
    priority: u8,
    valid_s: u64,
}

#[derive(Serialize)]
struct Token {
    token: String,
}

async fn invite(State(node): State<Node>, By(_): By, Body(asked): Body<Invited>) -> Result<Json<Token>, Problem> {
    let token = node.invite(&asked.role, asked.priority, Duration::from_secs(asked.valid_s)).await?;
    Ok(Json(Token { token }))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Filter {
    hash: String,
    state: String,
    before: Option<i64>,
    most: Option<i64>,
}

async fn list(State(node): State<Node>, Asked(filter): Asked<Filter>) -> Result<Json<Vec<SampleLine>>, Problem> {
    let Filter { hash, state, before, most } = filter;
    let most = most.unwrap_or(100).clamp(1, LIST_MAX);
    let filter = SampleFilter { hash: hash.to_ascii_lowercase(), state, before };
    Ok(Json(node.list(&filter, most).await?))
}

async fn show(State(node): State<Node>, Name(sample): Name) -> Result<Json<SamplePage>, Problem> {
    Ok(Json(node.page(&sample).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    #[serde(default = "normal")]
    priority: u64,
}

fn normal() -> u64 {
    weir_lab::intake::NORMAL
}

async fn submit(
    State(node): State<Node>,
    By(actor): By,
    Asked(given): Asked<Given>,
    content: Bytes,
) -> Result<Json<HandedIn>, Problem> {
    let handed = node.hand_in(content.to_vec(), &given.name, given.priority, actor.as_str()).await;
    Ok(Json(handed?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    sample: String,
}

async fn cancel(State(node): State<Node>, By(_): By, Body(which): Body<Which>) -> Result<Json<SampleLine>, Problem> {
    Ok(Json(node.take_back(&which.sample).await?))
}
