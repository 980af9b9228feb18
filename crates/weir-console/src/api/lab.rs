//! The lab: its state, its samples, and what is handed in.

use super::input::{Asked, Body, By, Name};
use super::problem::Problem;
use crate::lab_report;
use crate::rule_proposal::Proposal;
use crate::site::Gates;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRef, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_foundation::audit::AuditTrail;
use weir_lab::desk::{HandedIn, LabStatus, NodeLine, PlaceLine, QueuePage, SampleFilter, SampleLine, SamplePage};
use weir_lab::node::Node;
use weir_lab::report::{Merged, misp, stix};
use weir_lab::verdict::Verdict;

/// A larger sample goes into one of the numbered directories.
const SAMPLE_BYTES_MAX: usize = 64 << 20;
const LIST_MAX: i64 = 1_000;

/// The lab, and where who did what is written down.
#[derive(Clone)]
struct Lab {
    node: Node,
    gates: Gates,
}

impl FromRef<Lab> for Node {
    fn from_ref(lab: &Lab) -> Node {
        lab.node.clone()
    }
}

impl FromRef<Lab> for AuditTrail {
    fn from_ref(lab: &Lab) -> AuditTrail {
        lab.gates.administration.audit.clone()
    }
}

/// The part of the API that is about the lab.
pub(super) fn routes(node: Node, gates: Gates) -> Router {
    Router::new()
        .route("/lab", get(status))
        .route("/lab/samples", get(list).post(submit).layer(DefaultBodyLimit::max(SAMPLE_BYTES_MAX)))
        .route("/lab/samples/{sample}", get(show))
        .route("/lab/samples/{sample}/report", get(report))
        .route("/lab/samples/{sample}/content", get(content))
        .route("/lab/samples/{sample}/rule", get(rule))
        .route("/lab/rerun", post(rerun))
        .route("/lab/queue", get(queue))
        .route("/lab/cancel", post(cancel))
        .route("/lab/nodes", get(nodes))
        .route("/lab/vms", get(places))
        .route("/lab/drain", post(drain))
        .route("/lab/invite", post(invite))
        .route("/lab/remove", post(remove))
        .with_state(Lab { node, gates })
}

async fn status(State(node): State<Node>) -> Result<Json<LabStatus>, Problem> {
    Ok(Json(node.status().await?))
}

async fn nodes(State(node): State<Node>) -> Result<Json<Vec<NodeLine>>, Problem> {
    Ok(Json(node.nodes().await?))
}

async fn places(State(node): State<Node>) -> Json<Vec<PlaceLine>> {
    Json(node.places().await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    node: String,
    drained: bool,
}

async fn drain(
    State(node): State<Node>,
    State(audit): State<AuditTrail>,
    By(actor): By,
    Body(asked): Body<Drained>,
) -> Result<Json<Vec<NodeLine>>, Problem> {
    // Here and below: who did it is written down first. What did not come about after all is in the trail too.
    let what = if asked.drained { "takes no more samples" } else { "takes samples again" };
    audit.note(&actor, "lab.drain", &asked.node, what).await?;
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
    State(audit): State<AuditTrail>,
    By(actor): By,
    Body(asked): Body<Removed>,
) -> Result<Json<Vec<NodeLine>>, Problem> {
    audit.note(&actor, "lab.remove", &asked.node, "is taken out of the lab").await?;
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

async fn invite(
    State(node): State<Node>,
    State(audit): State<AuditTrail>,
    By(actor): By,
    Body(asked): Body<Invited>,
) -> Result<Json<Token>, Problem> {
    let detail = format!("role {}, priority {}, good for {} s", asked.role, asked.priority, asked.valid_s);
    audit.note(&actor, "lab.invite", "lab", &detail).await?;
    let token = node.invite(&asked.role, asked.priority, Duration::from_secs(asked.valid_s)).await?;
    Ok(Json(Token { token }))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Filter {
    hash: String,
    state: String,
    verdict: String,
    before: Option<i64>,
    most: Option<i64>,
}

async fn list(State(node): State<Node>, Asked(filter): Asked<Filter>) -> Result<Json<Vec<SampleLine>>, Problem> {
    let Filter { hash, state, verdict, before, most } = filter;
    let most = most.unwrap_or(100).clamp(1, LIST_MAX);
    let verdict = match verdict.as_str() {
        "" => None,
        word => Some(Verdict::named(word).ok_or_else(|| no_verdict(word))?.number()),
    };
    let filter = SampleFilter { hash: hash.to_ascii_lowercase(), state, verdict, before };
    Ok(Json(node.list(&filter, most).await?))
}

async fn show(State(node): State<Node>, Name(sample): Name) -> Result<Json<SamplePage>, Problem> {
    Ok(Json(node.page(&sample).await?))
}

fn no_verdict(word: &str) -> Problem {
    Problem::invalid(format!("{word:?} is no verdict"), "malicious, suspicious, clean or unknown")
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Form {
    form: String,
}

/// One report of the sample and all that is in it. The page comes as JSON too: one text.
async fn report(State(node): State<Node>, Name(sample): Name, Asked(asked): Asked<Form>) -> Result<Response, Problem> {
    let merged = node.merged(&sample).await?;
    match asked.form.as_str() {
        // Written as it is: what a plugin said is kept as text.
        "" | "json" => Ok(Json(merged).into_response()),
        "html" => Ok(Json(lab_report::page(&merged).into_string()).into_response()),
        "misp" => Ok(Json(misp::event(&merged)).into_response()),
        "stix" => Ok(Json(stix::bundle(&merged)).into_response()),
        other => Err(Problem::invalid(format!("{other:?} is no form of a report"), "json, html, misp or stix")),
    }
}

/// The sample itself, in an archive with the password that everybody knows.
async fn content(State(node): State<Node>, Name(sample): Name) -> Result<Response, Problem> {
    let wrapped = node.wrapped(&sample).await?;
    let named = format!("attachment; filename=\"{}\"", wrapped.name);
    let headers = [(header::CONTENT_TYPE, "application/zip".to_owned()), (header::CONTENT_DISPOSITION, named)];
    Ok((headers, wrapped.bytes).into_response())
}

/// What the sample suggests; a person saves it, or not.
async fn rule(State(Lab { node, gates }): State<Lab>, Name(sample): Name) -> Result<Json<Proposal>, Problem> {
    let merged = Merged::new(node.page(&sample).await?, Vec::new());
    Ok(Json(Proposal::of(&merged, gates.desk.rule_list().await?)))
}

async fn rerun(
    State(node): State<Node>,
    State(audit): State<AuditTrail>,
    By(actor): By,
    Body(which): Body<Which>,
) -> Result<Json<HandedIn>, Problem> {
    let sample = node.page(&which.sample).await?.sample;
    audit.note(&actor, "lab.rerun", &format!("sample-{}", sample.sample), &sample.name).await?;
    Ok(Json(node.rerun(&which.sample, actor.as_str()).await?))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Next {
    next: Option<i64>,
}

async fn queue(State(node): State<Node>, Asked(asked): Asked<Next>) -> Result<Json<QueuePage>, Problem> {
    Ok(Json(node.queue(asked.next.unwrap_or(20).clamp(0, LIST_MAX)).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    #[serde(default = "normal")]
    priority: u64,
    /// Between commas.
    #[serde(default)]
    tags: String,
}

fn normal() -> u64 {
    weir_lab::intake::NORMAL
}

async fn submit(
    State(node): State<Node>,
    By(actor): By,
    Asked(given): Asked<Given>,
    content: Result<Bytes, BytesRejection>,
) -> Result<Json<HandedIn>, Problem> {
    let hint = "a larger sample goes into one of the numbered directories";
    let content = content.map_err(|error| Problem::invalid(error.body_text(), hint))?;
    let tags: Vec<String> = given.tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    let handed = node.hand_in(content.to_vec(), &given.name, (given.priority, &tags), actor.as_str()).await;
    Ok(Json(handed?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    sample: String,
}

async fn cancel(
    State(node): State<Node>,
    State(audit): State<AuditTrail>,
    By(actor): By,
    Body(which): Body<Which>,
) -> Result<Json<SampleLine>, Problem> {
    let sample = node.page(&which.sample).await?.sample;
    audit.note(&actor, "lab.cancel", &format!("sample-{}", sample.sample), &sample.name).await?;
    Ok(Json(node.take_back(&which.sample).await?))
}
