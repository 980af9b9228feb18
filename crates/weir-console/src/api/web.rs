//! The API operations on the web gate: its state, the sessions that wait, drained servers, weights, blocked networks, and metrics.

use super::call::Call;
use super::operation::{Answer, Operation, look, measure, operate};
use super::problem::Problem;
use super::table::Table;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_foundation::audit::AuditTrail;
use weir_foundation::{Actor, OperationError};
use weir_web::admission::SessionView;
use weir_web::blocks::BlockView;
use weir_web::health::WEIGHT_MAX;
use weir_web::identity::{Network, NetworkError};
use weir_web::proxy::Gate;
use weir_web::view::Status;

/// The state of the web gate.
pub const STATUS: Operation<(), Status> = look("/web", "How the web gate is doing");
/// Sessions that have requests.
pub const SESSIONS: Operation<Most, Vec<SessionView>> =
    look("/web/sessions", "Sessions that ask, those that ask for most first");
/// The figures of the web gate for Prometheus.
pub const METRICS: Operation<(), Metrics> = measure("/web/metrics", "The web gate as Prometheus reads it");

/// Networks that are refused for a while.
pub const BLOCKS: Operation<(), Vec<BlockView>> = look("/web/blocks", "Networks that somebody has blocked for a while");
/// Refuses a network for a while.
pub const BLOCK: Operation<NewBlock, Vec<BlockView>> =
    operate("/web/blocks", "Refuses every request of a network for a while (403); a restart forgets it");
/// Serves a network again.
pub const UNBLOCK: Operation<BlockedNetwork, Vec<BlockView>> =
    operate("/web/blocks/lift", "Serves a network again that was blocked");

/// With `draining` a server gets no new requests while its backend has another server for them; without it, it gets them again.
pub const DRAIN: Operation<Drain, Status> =
    operate("/web/drain", "Gives a server no new requests, or gives it some again; what is under way ends");

/// A server gets more or fewer requests than the others.
pub const WEIGHT: Operation<NewWeight, Status> = operate(
    "/web/weight",
    "Gives a server so many requests for one of a server with the weight 1; a restart forgets it",
);

/// The web gate, and the audit trail for changes.
#[derive(Clone)]
pub(super) struct WebGates {
    pub(super) gate: Arc<Gate>,
    pub(super) audit: AuditTrail,
}

pub(super) fn operations() -> Table<WebGates> {
    Table::new()
        .with(STATUS, status)
        .with(SESSIONS, sessions)
        .with(METRICS, metrics)
        .with(DRAIN, drain)
        .with(WEIGHT, weight)
        .with(BLOCKS, blocks)
        .with(BLOCK, block)
        .with(UNBLOCK, unblock)
}

/// How many are listed.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Most {
    /// This many at most.
    #[serde(default = "hundred")]
    pub most: usize,
}

fn hundred() -> usize {
    100
}

/// Which server, and whether it is drained.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebDrain")]
pub struct Drain {
    /// The server as it is written in `backends`.
    pub server: String,
    /// Whether it is drained; otherwise it gets requests again.
    #[serde(default = "yes")]
    pub draining: bool,
}

/// Which server, and its weight.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebWeight")]
pub struct NewWeight {
    /// The server as it is written in `backends`.
    pub server: String,
    /// 1 to 100.
    pub weight: u32,
}

fn yes() -> bool {
    true
}

/// Which network is blocked, and for how long.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewWebBlock")]
pub struct NewBlock {
    /// An address or a network, such as `192.0.2.0/24`.
    pub network: String,
    /// For how many seconds; at most 30 days.
    #[serde(default = "hour")]
    pub for_s: u64,
}

fn hour() -> u64 {
    3600
}

/// Which network.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebBlockedNetwork")]
pub struct BlockedNetwork {
    /// In the form in which it was blocked.
    pub network: String,
}

/// A network that is refused for longer belongs into the configuration.
const BLOCK_LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// A longer list would be of no use to a person.
const SESSIONS_MAX: usize = 10_000;

/// Figures in the text format of Prometheus.
pub struct Metrics(String);

impl Answer for Metrics {
    fn described(_: &mut SchemaGenerator) -> (&'static str, Schema) {
        ("text/plain", schemars::json_schema!({ "type": "string" }))
    }

    fn response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], self.0).into_response()
    }

    fn read(content: &[u8]) -> Result<Metrics, serde_json::Error> {
        Ok(Metrics(String::from_utf8_lossy(content).into_owned()))
    }
}

async fn status(call: Call<WebGates>, (): ()) -> Result<Status, Problem> {
    Ok(call.state.gate.status())
}

async fn sessions(call: Call<WebGates>, asked: Most) -> Result<Vec<SessionView>, Problem> {
    Ok(call.state.gate.sessions(asked.most.min(SESSIONS_MAX)))
}

async fn drain(call: Call<WebGates>, asked: Drain) -> Result<Status, Problem> {
    let WebGates { gate, audit } = &call.state;
    drained(gate, audit, &asked, &call.actor).await?;
    Ok(gate.status())
}

/// Drains a server or undoes that, with a line in the audit trail; for the API and the page.
pub(crate) async fn drained(
    gate: &Gate,
    audit: &AuditTrail,
    asked: &Drain,
    actor: &Actor,
) -> Result<(), OperationError> {
    known(gate, &asked.server)?;
    let what = if asked.draining { "is drained" } else { "gets requests again" };
    audit.note(actor, "web.drain", &asked.server, what).await?;
    gate.drain(&asked.server, asked.draining);
    Ok(())
}

async fn weight(call: Call<WebGates>, asked: NewWeight) -> Result<Status, Problem> {
    let WebGates { gate, audit } = &call.state;
    weighted(gate, audit, &asked, &call.actor).await?;
    Ok(gate.status())
}

/// Gives a server another weight, with a line in the audit trail; for the API and the page.
pub(crate) async fn weighted(
    gate: &Gate,
    audit: &AuditTrail,
    asked: &NewWeight,
    actor: &Actor,
) -> Result<(), OperationError> {
    known(gate, &asked.server)?;
    if !(1..=WEIGHT_MAX).contains(&asked.weight) {
        let what = format!("a server weighs 1 to {WEIGHT_MAX}, not {}", asked.weight);
        return Err(OperationError::invalid(what, "to give it nothing, drain it"));
    }
    audit.note(actor, "web.weight", &asked.server, &asked.weight.to_string()).await?;
    gate.set_weight(&asked.server, asked.weight);
    Ok(())
}

fn known(gate: &Gate, server: &str) -> Result<(), OperationError> {
    let status = gate.status();
    match status.backends.iter().flat_map(|backend| &backend.servers).any(|of| of.address == server) {
        true => Ok(()),
        false => {
            let what = format!("no backend has the server {}", server.chars().take(100).collect::<String>());
            Err(OperationError::invalid(what, "GET /web lists the servers as they are written"))
        }
    }
}

async fn blocks(call: Call<WebGates>, (): ()) -> Result<Vec<BlockView>, Problem> {
    Ok(call.state.gate.blocks().view(SystemTime::now()))
}

async fn block(call: Call<WebGates>, asked: NewBlock) -> Result<Vec<BlockView>, Problem> {
    let WebGates { gate, audit } = &call.state;
    blocked(gate, audit, (&asked.network, Duration::from_secs(asked.for_s)), &call.actor).await?;
    blocks(call, ()).await
}

async fn unblock(call: Call<WebGates>, asked: BlockedNetwork) -> Result<Vec<BlockView>, Problem> {
    let WebGates { gate, audit } = &call.state;
    unblocked(gate, audit, &asked.network, &call.actor).await?;
    blocks(call, ()).await
}

/// Refuses a network for a while, with a line in the audit trail; for the API and the page.
pub(crate) async fn blocked(
    gate: &Gate,
    audit: &AuditTrail,
    (network, length): (&str, Duration),
    actor: &Actor,
) -> Result<Network, OperationError> {
    let network = parsed(network)?;
    let length = length.min(BLOCK_LONGEST);
    audit.note(actor, "web.block", &network.to_string(), &format!("for {} s", length.as_secs())).await?;
    if let Err(error) = gate.blocks().add(network, length, SystemTime::now()) {
        audit.note(actor, "web.block", &network.to_string(), &format!("not done: {error}")).await?;
        let hint = "lists of networks are for more: web.denied_network_files";
        return Err(OperationError::conflict(error.to_string(), hint));
    }
    Ok(network)
}

/// Serves a network again, with a line in the audit trail.
pub(crate) async fn unblocked(
    gate: &Gate,
    audit: &AuditTrail,
    network: &str,
    actor: &Actor,
) -> Result<Network, OperationError> {
    let network = parsed(network)?;
    audit.note(actor, "web.unblock", &network.to_string(), "").await?;
    if gate.blocks().lift(network, SystemTime::now()) {
        return Ok(network);
    }
    let what = format!("{network} is not blocked");
    audit.note(actor, "web.unblock", &network.to_string(), &format!("not done: {what}")).await?;
    Err(OperationError::unknown(what, "`weir web blocks` shows what is"))
}

fn parsed(text: &str) -> Result<Network, OperationError> {
    text.trim().parse().map_err(|error: NetworkError| {
        let shown: String = text.chars().take(100).collect();
        OperationError::invalid(format!("{shown}: {error}"), "name one such as 192.0.2.7 or 192.0.2.0/24")
    })
}

async fn metrics(call: Call<WebGates>, (): ()) -> Result<Metrics, Problem> {
    Ok(Metrics(call.state.gate.status().metrics()))
}
