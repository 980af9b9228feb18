//! The machines that the database knows, and where each was last heard.
//!
//! A message counts only if its sender is registered with just this key, role and priority. The database is read again every few seconds,
//! and when an unknown machine shows up; while the database does not answer, the last list counts. A machine outside the lab has no
//! database: it trusts the certificates of machines that may lead. Of two keys under one name it trusts the one that was certified last,
//! because the name was given to another machine, and the former one gets no new certificate.

use super::identity::{Identity, PeerIdentity, hex, id_of, role_of};
use super::reports::{MachineReport, Reports};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_core::election::{KeyId, NodeId, Priority, Role};
use weir_store::records::{NodeRow, Records};

/// Unknown machines make the registry read the database at most this often.
const STRANGERS: Duration = Duration::from_secs(1);

/// How long the database may take to say which machine leads.
const ANSWER: Duration = Duration::from_secs(2);

/// The machines of a lab. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    /// None outside the lab.
    records: Option<Records>,
    known: Arc<Mutex<KnownMachines>>,
    /// Counts the times that the database was read, or that somebody showed a new certificate outside the lab.
    reads: Arc<watch::Sender<u64>>,
    pub(crate) reports: Reports,
}

#[derive(Debug, Default)]
struct KnownMachines {
    machines: HashMap<NodeId, MachineRow>,
    heard: HashMap<NodeId, IpAddr>,
    /// Machines that called, outside the lab.
    shown: HashMap<NodeId, PeerIdentity>,
    read_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct MachineRow {
    identity: Identity,
    key: KeyId,
    address: Option<IpAddr>,
}

impl Registry {
    pub(crate) fn new(records: Records) -> Registry {
        Registry { records: Some(records), known: Arc::default(), reads: Arc::default(), reports: Reports::default() }
    }

    /// The registry of a machine outside the lab.
    pub(crate) fn outside() -> Registry {
        Registry { records: None, known: Arc::default(), reads: Arc::default(), reports: Reports::default() }
    }

    /// Reads the database.
    pub(crate) async fn read(&self) {
        let Some(records) = &self.records else { return };
        self.known().read_at = Some(Instant::now());
        match records.lab_nodes().all().await {
            Ok(rows) => {
                let mut known = self.known();
                let now: HashMap<NodeId, MachineRow> = rows.iter().filter_map(machine).collect();
                let KnownMachines { machines, heard, .. } = &mut *known;
                // The address at which a machine was heard says nothing about another machine that has its name now.
                let same = |id: &NodeId, now: &MachineRow| machines.get(id).is_none_or(|before| before.key == now.key);
                heard.retain(|id, _| now.get(id).is_some_and(|now| same(id, now)));
                *machines = now;
                drop(known);
                self.reads.send_modify(|reads| *reads += 1);
            }
            Err(error) => tracing::warn!(%error, "the machines of the lab cannot be read"),
        }
    }

    /// Returns when a machine that was admitted is no longer registered, or when its name belongs to another.
    pub(crate) async fn removed(&self, identity: &Identity, key: KeyId) {
        let mut reads = self.reads.subscribe();
        while self.is_registered(identity, key) {
            if reads.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn is_registered(&self, identity: &Identity, key: KeyId) -> bool {
        let known = self.known();
        match &self.records {
            Some(_) => {
                known.machines.get(&identity.id()).is_some_and(|known| known.identity == *identity && known.key == key)
            }
            None => known.shown.get(&identity.id()).is_none_or(|shown| shown.key == key),
        }
    }

    /// Whether a machine is registered as it claims. If it is not, this is logged.
    pub(crate) async fn admits(&self, shown: &PeerIdentity) -> bool {
        if self.records.is_none() {
            return shown.identity.role == Role::Eligible && self.believes(shown);
        }
        let PeerIdentity { identity, key, .. } = shown;
        if !self.is_registered(identity, *key) && self.is_stale() {
            self.read().await;
        }
        let known = self.registered(identity.id());
        let admitted = known.as_ref().is_some_and(|(known, its_key)| known == identity && its_key == key);
        if !admitted {
            self.report(identity, known.map(|(known, _)| known));
        }
        admitted
    }

    /// Whether no machine has shown another key under this name that was certified later.
    fn believes(&self, shown: &PeerIdentity) -> bool {
        let id = shown.identity.id();
        let mut known = self.known();
        match known.shown.get(&id).cloned() {
            Some(before) if before.key != shown.key && shown.at <= before.at => {
                drop(known);
                self.report(&shown.identity, Some(before.identity));
                return false;
            }
            Some(before) if shown.at <= before.at => return true,
            _ => known.shown.insert(id, shown.clone()),
        };
        drop(known);
        self.reads.send_modify(|reads| *reads += 1);
        true
    }

    fn report(&self, identity: &Identity, known: Option<Identity>) {
        let report = if known.is_some() { MachineReport::NotAsRegistered } else { MachineReport::NotRegistered };
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

    /// The machine of this name, as it is registered. One that claims another priority may just have been given it.
    pub(crate) async fn by_name(&self, name: &str, says: Priority) -> Option<(Identity, KeyId)> {
        let known = self.registered(id_of(name)).is_some_and(|(identity, _)| identity.priority == says);
        if !known && self.is_stale() {
            self.read().await;
        }
        self.registered(id_of(name)).filter(|(identity, _)| identity.name == name)
    }

    /// Whether the database says that this machine has the lease of this epoch. While the database does not answer, and outside the lab, this cannot
    /// be known, and a machine that was admitted is believed.
    pub(crate) async fn leads(&self, name: &str, epoch: u64) -> bool {
        let Some(records) = &self.records else { return true };
        match tokio::time::timeout(ANSWER, records.lab_leader().current()).await {
            Ok(Ok((fence, _))) => fence.holder == name && fence.epoch.cast_unsigned() == epoch,
            _ => true,
        }
    }

    fn registered(&self, id: NodeId) -> Option<(Identity, KeyId)> {
        self.known().machines.get(&id).map(|machine| (machine.identity.clone(), machine.key))
    }

    /// A registered machine was heard at this address.
    pub(crate) fn heard(&self, id: NodeId, address: IpAddr) {
        self.known().heard.insert(id, address);
    }

    /// The address at which a machine was last heard, or that it claims to have.
    pub(crate) fn address(&self, id: NodeId) -> Option<IpAddr> {
        let known = self.known();
        known.heard.get(&id).copied().or_else(|| known.machines.get(&id)?.address)
    }

    /// The address that a machine claimed when it was registered, or last.
    pub(crate) fn registered_address(&self, id: NodeId) -> Option<IpAddr> {
        self.known().machines.get(&id)?.address
    }

    /// Whether a machine of the lab has this address.
    pub(crate) fn is_address(&self, address: IpAddr) -> bool {
        let known = self.known();
        let registered = known.machines.values().any(|machine| machine.address == Some(address));
        registered || known.heard.values().any(|heard| *heard == address)
    }

    /// The name of a machine.
    pub(crate) fn name(&self, id: NodeId) -> Option<String> {
        let known = self.known();
        let registered = known.machines.get(&id).map(|machine| &machine.identity);
        registered.or_else(|| Some(&known.shown.get(&id)?.identity)).map(|identity| identity.name.clone())
    }

    /// The addresses of the machines of these roles.
    pub(crate) fn addresses(&self, roles: &[Role]) -> Vec<IpAddr> {
        let of_role = |machine: &&MachineRow| roles.contains(&machine.identity.role);
        let ids: Vec<NodeId> = self.known().machines.values().filter(of_role).map(|m| m.identity.id()).collect();
        ids.into_iter().filter_map(|id| self.address(id)).collect()
    }

    fn is_stale(&self) -> bool {
        self.known().read_at.is_none_or(|at| at.elapsed() >= STRANGERS)
    }

    fn known(&self) -> MutexGuard<'_, KnownMachines> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn machine(row: &NodeRow) -> Option<(NodeId, MachineRow)> {
    let priority = Priority(u8::try_from(row.priority).ok()?);
    let identity = Identity::new(&row.node, role_of(&row.role)?, priority)?;
    let key: [u8; 32] = super::identity::unhex(&row.fingerprint)?.try_into().ok()?;
    Some((identity.id(), MachineRow { identity, key: KeyId(key), address: row.address.parse().ok() }))
}

/// The row of a machine that is, or should be, registered.
pub(crate) fn row(identity: &Identity, key: KeyId, address: &str) -> NodeRow {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn shown(name: &str, key: u8, second: u64) -> PeerIdentity {
        let identity = Identity::new(name, Role::Eligible, Priority(3)).unwrap();
        PeerIdentity { identity, key: KeyId([key; 32]), at: SystemTime::UNIX_EPOCH + Duration::from_secs(second) }
    }

    #[tokio::test]
    async fn outside_a_name_is_of_the_machine_that_was_certified_last() {
        let registry = Registry::outside();
        let (old, new) = (shown("n2", 1, 100), shown("n2", 2, 300));
        assert!(registry.admits(&old).await);
        assert!(
            registry.admits(&shown("n2", 1, 200)).await && registry.admits(&old).await,
            "renewed, and what was open"
        );
        let cut_off = registry.removed(&old.identity, old.key);
        assert!(registry.admits(&new).await, "the name was given to another machine");
        cut_off.await;
        assert!(!registry.admits(&shown("n2", 1, 200)).await, "which the one before cannot take back");
        assert!(registry.admits(&new).await && registry.admits(&shown("n3", 1, 100)).await);
        assert_eq!(registry.name(new.identity.id()).as_deref(), Some("n2"));
        let mut dispatcher = shown("n4", 4, 100);
        dispatcher.identity.role = Role::Dispatcher;
        assert!(!registry.admits(&dispatcher).await);
    }

    #[tokio::test]
    async fn inside_a_name_is_of_the_machine_that_is_registered() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let (old, new) = (shown("n2", 1, 100), shown("n2", 2, 300));
        let registered = async |machine: &PeerIdentity| {
            let row = row(&machine.identity, machine.key, "10.7.0.2");
            assert!(records.lab_nodes().register(&row).await.unwrap());
        };
        registered(&old).await;
        let registry = Registry::new(records.clone());
        assert!(registry.admits(&old).await && !registry.admits(&new).await, "whatever is certified");
        registry.heard(old.identity.id(), [10, 7, 0, 99].into());
        registry.read().await;
        assert_eq!(registry.address(old.identity.id()), Some([10, 7, 0, 99].into()));
        assert!(records.lab_nodes().remove("n2").await.unwrap());
        registered(&new).await;
        registry.read().await;
        registry.removed(&old.identity, old.key).await;
        assert!(registry.admits(&new).await && !registry.admits(&old).await);
        assert_eq!(registry.address(new.identity.id()), Some([10, 7, 0, 2].into()), "not where the other was heard");
    }
}
