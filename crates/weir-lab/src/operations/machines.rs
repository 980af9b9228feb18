//! The operations on the machines of the lab: which belong to it, which get samples, and inviting new ones.

use super::LabError;
use crate::cluster::enrolment::{InviteError, Invited};
use crate::cluster::identity::{role_name, role_of};
use crate::cluster::priority::PriorityOrderError;
use crate::node::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use weir_core::election::{Priority, Role};
use weir_store::records::NodeRow;

/// A machine that runs adopts another priority within this time.
const PRIORITY_TAKES: Duration = Duration::from_secs(10);

/// One machine of the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabNode")]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// `eligible`, `dispatcher` or `external`.
    pub role: String,
    /// Its priority in elections: the lowest number leads.
    pub priority: i64,
    /// Its processing index: the highest is the weakest machine.
    pub index: Option<i64>,
    /// Its address.
    pub address: String,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it gets no new samples.
    pub drained: bool,
    /// Its processors, as it reports them. This and the following fields are present only on the leader, for machines that run.
    pub cores: Option<u32>,
    /// Programs that run or wait for a processor, the mean of a minute.
    #[serde(default)]
    pub load: Option<f64>,
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// How much of it is free.
    pub memory_free: Option<u64>,
    /// VMs that could take a sample now.
    pub slots: Option<u32>,
    /// When it was last seen, in nanoseconds since the Unix epoch, by the database's clock; 0 for never.
    pub seen_at: i64,
}

impl Node {
    /// The machines of the lab.
    pub async fn nodes(&self) -> Result<Vec<NodeLine>, LabError> {
        let (fence, left) = self.records().lab_leader().current().await?;
        let equipment = match self.leader() {
            Some(leader) => leader.equipment().await.unwrap_or_default(),
            None => HashMap::new(),
        };
        let line = |row: NodeRow| {
            let has = equipment.get(&row.node).copied().unwrap_or_default();
            NodeLine {
                leads: left > 0 && fence.holder == row.node,
                name: row.node,
                role: row.role,
                priority: row.priority,
                index: row.processing_index.or(has.index.map(i64::from)),
                address: row.address,
                drained: row.drained,
                cores: has.cores,
                load: has.load.map(|hundredths| f64::from(hundredths) / 100.0),
                memory: has.memory,
                memory_free: has.memory_free,
                slots: has.slots,
                seen_at: row.seen_at,
            }
        };
        Ok(self.records().lab_nodes().all().await?.into_iter().map(line).collect())
    }

    /// With `drained` a machine gets no new samples from now on; without, it gets them again.
    pub async fn drain(&self, name: &str, drained: bool) -> Result<(), LabError> {
        let known = self.records().lab_nodes().drain(name, drained).await?;
        if self.membership().is_none() && name == self.name() {
            return Ok(self.records().lab_nodes().drain_alone(name, drained).await?);
        }
        if known { Ok(()) } else { Err(LabError::NoMachine(name.to_owned())) }
    }

    /// Removes a machine from the lab: its certificate is no longer valid.
    pub async fn take_out(&self, name: &str) -> Result<(), LabError> {
        let known = self.records().lab_nodes().all().await?.iter().any(|node| node.node == name);
        match (known, known && self.records().lab_nodes().remove(name).await?) {
            (_, true) => Ok(()),
            (true, false) => Err(LabError::Leads(name.to_owned())),
            (false, false) => Err(LabError::NoMachine(name.to_owned())),
        }
    }

    /// Gives a machine another priority in elections. Returns when it has adopted it, or after a while: a machine that is off adopts it
    /// when it starts.
    pub async fn prioritise(&self, name: &str, priority: u8) -> Result<(), LabError> {
        let refused = |why: &str| LabError::NotPrioritised(name.to_owned(), why.to_owned());
        let membership = self.membership().ok_or_else(|| refused("this is a lab of one machine"))?;
        let machine = self.machine(name).await?;
        if machine.role != role_name(Role::Eligible) {
            return Err(refused("it never leads"));
        }
        let ordered = membership.prioritise(self.records(), &machine, Priority(priority)).await;
        ordered.map_err(|error| match error {
            PriorityOrderError::NotEligible => refused(&error.to_string()),
            PriorityOrderError::Records(error) => error.into(),
        })?;
        let begun = Instant::now();
        while self.machine(name).await?.priority != i64::from(priority) && begun.elapsed() < PRIORITY_TAKES {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn machine(&self, name: &str) -> Result<NodeRow, LabError> {
        let machine = self.records().lab_nodes().all().await?.into_iter().find(|machine| machine.node == name);
        machine.ok_or_else(|| LabError::NoMachine(name.to_owned()))
    }

    /// A token, and a code, that admit one machine.
    pub async fn invite(&self, role: &str, priority: u8, valid: Duration) -> Result<Invited, LabError> {
        let refused = |why: &str| LabError::NotInvited(why.to_owned());
        // A worker is treated in the same way wherever it is: it has no database, and learns from the leader who leads.
        let role = if role == "worker" { role_name(Role::External) } else { role };
        let role = role_of(role).ok_or_else(|| refused("the role is eligible, dispatcher, worker or external"))?;
        let membership = self.membership().ok_or_else(|| refused("this is a lab of one machine; set lab.address"))?;
        membership.invite(self.records(), (role, Priority(priority)), valid).await.map_err(|error| match error {
            InviteError::Records(error) => error.into(),
            error => refused(&error.to_string()),
        })
    }
}
