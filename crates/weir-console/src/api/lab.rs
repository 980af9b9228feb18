//! The API operations on the lab's state and its machines. Samples have a file of their own.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_foundation::audit::AuditTrail;
use weir_lab::cluster::enrolment::Invited;
use weir_lab::node::Node;
use weir_lab::operations::{LabStatus, NodeLine, PlaceLine};

/// The state of the lab.
pub const STATUS: Operation<(), LabStatus> = look("/lab", "How the lab is doing");
/// The machines of the lab.
pub const NODES: Operation<(), Vec<NodeLine>> = look("/lab/nodes", "The machines of the lab");
/// What every slot and VM does.
pub const PLACES: Operation<(), Vec<PlaceLine>> =
    look("/lab/vms", "What every VM and place of the lab does, where this machine leads");
/// Stops or resumes giving samples to a machine.
pub const DRAIN: Operation<Drain, Vec<NodeLine>> =
    administer("/lab/drain", "Lets a machine take no more samples, or takes that back");
/// Removes a machine from the lab.
pub const REMOVE: Operation<Remove, Vec<NodeLine>> =
    administer("/lab/remove", "Takes a machine out of the lab: its certificate counts no more");
/// Gives a machine another priority.
pub const PRIORITY: Operation<SetPriority, Vec<NodeLine>> =
    administer("/lab/priority", "Gives a machine another priority in elections; the best one leads from then on");
/// Makes a token with which a machine joins.
pub const INVITE: Operation<Invite, Invitation> = administer("/lab/invite", "Makes a token with which a machine joins");

/// The lab, and the gates that it needs.
#[derive(Clone)]
pub(super) struct LabGates {
    pub(super) node: Node,
    pub(super) gates: Gates,
}

impl LabGates {
    /// The audit trail. Changes are written to it first, so it also has changes that failed in the end.
    pub(super) fn audit(&self) -> &AuditTrail {
        &self.gates.administration.audit
    }
}

pub(super) fn operations(table: Table<LabGates>) -> Table<LabGates> {
    table
        .with(STATUS, status)
        .with(NODES, nodes)
        .with(PLACES, places)
        .with(DRAIN, drain)
        .with(REMOVE, remove)
        .with(PRIORITY, prioritise)
        .with(INVITE, invite)
}

/// Whether a machine gets samples.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The machine.
    pub node: String,
    /// True: it gets none.
    pub drained: bool,
}

/// Which machine is removed.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// Its name.
    pub node: String,
}

/// Which machine gets which priority.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPriority {
    /// Its name.
    pub node: String,
    /// Its priority in elections; the lowest number leads.
    pub priority: u8,
}

/// The role and priority of a new machine.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// `eligible`, `dispatcher`, `worker` or `external`, which is the same.
    pub role: String,
    /// Its priority in elections; the lowest number leads.
    pub priority: u8,
    /// For how many seconds the token is valid.
    pub valid_s: u64,
}

/// What a new machine needs to join.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Invitation {
    /// For `weir lab join`, from any network.
    pub token: String,
    /// The same in a form for people to type, on a machine in the lab's network.
    #[serde(default)]
    pub code: String,
}

async fn status(call: Call<LabGates>, (): ()) -> Result<LabStatus, Problem> {
    Ok(call.state.node.status().await?)
}

async fn nodes(call: Call<LabGates>, (): ()) -> Result<Vec<NodeLine>, Problem> {
    Ok(call.state.node.nodes().await?)
}

async fn places(call: Call<LabGates>, (): ()) -> Result<Vec<PlaceLine>, Problem> {
    Ok(call.state.node.places().await)
}

async fn drain(call: Call<LabGates>, asked: Drain) -> Result<Vec<NodeLine>, Problem> {
    let what = if asked.drained { "takes no more samples" } else { "takes samples again" };
    call.state.audit().note(&call.actor, "lab.drain", &asked.node, what).await?;
    call.state.node.drain(&asked.node, asked.drained).await?;
    Ok(call.state.node.nodes().await?)
}

async fn remove(call: Call<LabGates>, asked: Remove) -> Result<Vec<NodeLine>, Problem> {
    call.state.audit().note(&call.actor, "lab.remove", &asked.node, "is taken out of the lab").await?;
    call.state.node.take_out(&asked.node).await?;
    Ok(call.state.node.nodes().await?)
}

async fn prioritise(call: Call<LabGates>, asked: SetPriority) -> Result<Vec<NodeLine>, Problem> {
    let detail = format!("priority {}", asked.priority);
    call.state.audit().note(&call.actor, "lab.priority", &asked.node, &detail).await?;
    call.state.node.prioritise(&asked.node, asked.priority).await?;
    Ok(call.state.node.nodes().await?)
}

async fn invite(call: Call<LabGates>, asked: Invite) -> Result<Invitation, Problem> {
    let detail = format!("role {}, priority {}, good for {} s", asked.role, asked.priority, asked.valid_s);
    call.state.audit().note(&call.actor, "lab.invite", "lab", &detail).await?;
    let valid = Duration::from_secs(asked.valid_s);
    let Invited { token, code } = call.state.node.invite(&asked.role, asked.priority, valid).await?;
    Ok(Invitation { token, code })
}
