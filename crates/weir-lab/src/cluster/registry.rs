//! The machines that the database knows, and where each was last heard.
//!
//! A message counts only if its sender is registered with just this key, role and priority. What the database says is read
//! again every few seconds, and when a stranger shows up; while it is silent, what was read last stands. A machine outside
//! the lab has no database: it believes the certificates of machines that may lead.

use super::identity::{Identity, hex, id_of, role_of};
use super::reports::{Report, Reports};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_core::election::{KeyId, NodeId, Priority, Role};
use weir_store::records::{NodeRow, Records};

/// Strangers make the database be read at most so often.
const STRANGERS: Duration = Duration::from_secs(1);

/// The database is given so long to say who leads.
const ANSWER: Duration = Duration::from_secs(2);

/// The machines of a lab. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Registry {
    /// None outside the lab.
    records: Option<Records>,
    known: Arc<Mutex<Known>>,
    /// Counts the times that the database was read.
    reads: Arc<watch::Sender<u64>>,
    pub(super) reports: Reports,
}

#[derive(Debug, Default)]
struct Known {
    machines: HashMap<NodeId, Machine>,
    heard: HashMap<NodeId, IpAddr>,
    /// The names of those who called, outside the lab.
    names: HashMap<NodeId, String>,
    read_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Machine {
    identity: Identity,
    key: KeyId,
    address: Option<IpAddr>,
}

impl Registry {
    pub(super) fn new(records: Records) -> Registry {
        Registry { records: Some(records), known: Arc::default(), reads: Arc::default(), reports: Reports::default() }
    }

    /// What a machine outside the lab knows.
    pub(super) fn outside() -> Registry {
        Registry { records: None, known: Arc::default(), reads: Arc::default(), reports: Reports::default() }
    }

    /// Reads the database.
    pub(super) async fn read(&self) {
        let Some(records) = &self.records else { return };
        self.known().read_at = Some(Instant::now());
        match records.lab_nodes().await {
            Ok(rows) => {
                let mut known = self.known();
                known.machines = rows.iter().filter_map(machine).collect();
                let Known { machines, heard, .. } = &mut *known;
                heard.retain(|id, _| machines.contains_key(id));
                drop(known);
                self.reads.send_modify(|reads| *reads += 1);
            }
            Err(error) => tracing::warn!(%error, "the machines of the lab cannot be read"),
        }
    }

    /// Returns when a machine that was admitted is registered no more.
    pub(super) async fn removed(&self, identity: &Identity, key: KeyId) {
        let mut reads = self.reads.subscribe();
        while self.records.is_none() || self.is_registered(identity, key) {
            if reads.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn is_registered(&self, identity: &Identity, key: KeyId) -> bool {
        self.known().machines.get(&identity.id()).is_some_and(|known| known.identity == *identity && known.key == key)
    }

    /// Whether a machine is registered as it says that it is. What is not is reported.
    pub(super) async fn admits(&self, identity: &Identity, key: KeyId) -> bool {
        if self.records.is_none() {
            let leads = identity.role == Role::Eligible;
            if leads {
                self.known().names.insert(identity.id(), identity.name.clone());
            }
            return leads;
        }
        if !self.is_registered(identity, key) && self.is_stale() {
            self.read().await;
        }
        let known = self.registered(identity.id());
        let admitted = known.as_ref().is_some_and(|(known, its_key)| known == identity && *its_key == key);
        if !admitted {
            self.report(identity, known.map(|(known, _)| known));
        }
        admitted
    }

    fn report(&self, identity: &Identity, known: Option<Identity>) {
        let report = if known.is_some() { Report::NotAsRegistered } else { Report::NotRegistered };
        if !self.reports.is_due(identity.id(), report) {
            return;
        }
        let name = &identity.name;
        match known {
            Some(known) => {
                tracing::warn!(name, ?identity, registered = ?known, "a machine is not what is registered: another key, role or priority");
            }
            None => tracing::warn!(name, "a machine that is not registered wants in"),
        }
    }

    /// The machine of this name, as it is registered.
    pub(super) async fn by_name(&self, name: &str) -> Option<(Identity, KeyId)> {
        if self.registered(id_of(name)).is_none() && self.is_stale() {
            self.read().await;
        }
        self.registered(id_of(name)).filter(|(identity, _)| identity.name == name)
    }

    /// Whether the database says that this machine has the lease of this epoch. While it is silent, and outside the lab, that cannot
    /// be known, and the word of a machine that was admitted stands.
    pub(super) async fn leads(&self, name: &str, epoch: u64) -> bool {
        let Some(records) = &self.records else { return true };
        match tokio::time::timeout(ANSWER, records.lab_leader()).await {
            Ok(Ok((fence, _))) => fence.holder == name && fence.epoch.cast_unsigned() == epoch,
            _ => true,
        }
    }

    fn registered(&self, id: NodeId) -> Option<(Identity, KeyId)> {
        self.known().machines.get(&id).map(|machine| (machine.identity.clone(), machine.key))
    }

    /// A registered machine was heard from there.
    pub(super) fn heard(&self, id: NodeId, address: IpAddr) {
        self.known().heard.insert(id, address);
    }

    /// Where a machine was last heard, or says that it is.
    pub(super) fn address(&self, id: NodeId) -> Option<IpAddr> {
        let known = self.known();
        known.heard.get(&id).copied().or_else(|| known.machines.get(&id)?.address)
    }

    /// Where a machine said that it is when it was registered, or last.
    pub(super) fn registered_address(&self, id: NodeId) -> Option<IpAddr> {
        self.known().machines.get(&id)?.address
    }

    /// The name of a machine.
    pub(super) fn name(&self, id: NodeId) -> Option<String> {
        let known = self.known();
        known.machines.get(&id).map(|machine| machine.identity.name.clone()).or_else(|| known.names.get(&id).cloned())
    }

    /// Where the machines of these roles are.
    pub(super) fn addresses(&self, roles: &[Role]) -> Vec<IpAddr> {
        let of_role = |machine: &&Machine| roles.contains(&machine.identity.role);
        let ids: Vec<NodeId> = self.known().machines.values().filter(of_role).map(|m| m.identity.id()).collect();
        ids.into_iter().filter_map(|id| self.address(id)).collect()
    }

    fn is_stale(&self) -> bool {
        self.known().read_at.is_none_or(|at| at.elapsed() >= STRANGERS)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn machine(row: &NodeRow) -> Option<(NodeId, Machine)> {
    let priority = Priority(u8::try_from(row.priority).ok()?);
    let identity = Identity::new(&row.node, role_of(&row.role)?, priority)?;
    let key: [u8; 32] = super::identity::unhex(&row.fingerprint)?.try_into().ok()?;
    Some((identity.id(), Machine { identity, key: KeyId(key), address: row.address.parse().ok() }))
}

/// A machine as it is, or is to be, registered.
pub(super) fn row(identity: &Identity, key: KeyId, address: &str) -> NodeRow {
    NodeRow {
        node: identity.name.clone(),
        name: identity.name.clone(),
        role: super::identity::role_name(identity.role).to_owned(),
        priority: identity.priority.0.into(),
        address: address.to_owned(),
        fingerprint: hex(&key.0),
        processing_index: None,
        drained: false,
        registered_at: 0,
        seen_at: 0,
    }
}
