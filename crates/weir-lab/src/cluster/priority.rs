//! Changing the priority of a machine of the lab.
//!
//! Somebody who may admit machines writes an order into the records, with a code that only eligible machines can make. The machine
//! itself carries it out: it gets a certificate with the new priority, changes its registration, and then its election. In this order
//! there is hardly a moment in which its certificate and its registration differ. Each order counts once: an old one that is put back
//! into the records changes nothing.

use super::credential_store::CredentialStore;
use super::credentials::Credentials;
use super::identity::{Identity, hex, unhex};
use super::renewal;
use ring::hmac;
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_core::election::Priority;
use weir_store::records::{NodeRow, Records, RecordsError};
use weir_tls::write_private;

/// Beside the certificate: the last order that was carried out.
const FILE: &str = "priority";

/// `PRIORITY AT CODE` in the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PriorityOrder {
    priority: Priority,
    /// Nanoseconds of Unix time.
    at: i64,
}

impl PriorityOrder {
    fn write(&self, seal: &[u8; 32], machine: (&str, &str)) -> String {
        let text = format!("{} {}", self.priority.0, self.at);
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, seal), Self::signed(machine, &text).as_bytes());
        format!("{text} {}", hex(code.as_ref()))
    }

    /// None if it was not written by somebody with the seal, for the machine of this name and key.
    fn read(seal: &[u8; 32], machine: (&str, &str), kept: &str) -> Option<PriorityOrder> {
        let (text, code) = kept.rsplit_once(' ')?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, seal);
        hmac::verify(&key, Self::signed(machine, text).as_bytes(), &unhex(code)?).ok()?;
        let (priority, at) = text.split_once(' ')?;
        Some(PriorityOrder { priority: Priority(priority.parse().ok()?), at: at.parse().ok()? })
    }

    fn signed((name, fingerprint): (&str, &str), text: &str) -> String {
        format!("weir-lab priority {name} {fingerprint} {text}")
    }
}

fn kept_as(name: &str) -> String {
    format!("lab.priority.{name}")
}

/// Orders another priority for a machine.
pub(crate) async fn order(
    records: &Records,
    own: &Credentials,
    machine: &NodeRow,
    priority: Priority,
) -> Result<(), PriorityOrderError> {
    let seal = own.seal.ok_or(PriorityOrderError::NotEligible)?;
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let order = PriorityOrder { priority, at: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX) };
    let text = order.write(&seal, (&machine.node, &machine.fingerprint));
    Ok(records.secrets().set(&kept_as(&machine.node), &text).await?)
}

/// Why this machine cannot order another priority.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PriorityOrderError {
    /// It does not know the secret with which orders are signed.
    #[error("this machine cannot say that: only eligible ones can")]
    NotEligible,
    /// The order cannot be stored.
    #[error("{0}")]
    Records(#[from] RecordsError),
}

/// Carries out a new order for this machine; returns its priority from now on, if there was one.
pub(crate) async fn follow(
    records: &Records,
    store: &CredentialStore,
    life: Duration,
) -> Result<Option<Priority>, String> {
    let Some(seal) = store.active().credentials.seal else { return Ok(None) };
    let (identity, key) = store.identity().map_err(|error| error.to_string())?;
    let said = |error: RecordsError| error.to_string();
    let Some(kept) = records.secrets().find(&kept_as(&identity.name)).await.map_err(said)? else { return Ok(None) };
    let fingerprint = hex(&key.0);
    let Some(order) = PriorityOrder::read(&seal, (&identity.name, &fingerprint), &kept) else {
        return Err("the order about its priority in the records was made by nobody who may give one".into());
    };
    if order.at <= last(store.folder()) {
        return Ok(None);
    }
    let identity = Identity { priority: order.priority, ..identity };
    renewal::certify_as(store, records, life, &identity).await?;
    let priority = order.priority.0.into();
    if !records.lab_nodes().set_priority(&identity.name, &fingerprint, priority).await.map_err(said)? {
        return Err("this machine is not registered in the lab".into());
    }
    write_private(&store.folder().join(FILE), &order.at.to_string()).map_err(|error| error.to_string())?;
    tracing::info!(priority, "this machine has another priority in elections");
    Ok(Some(order.priority))
}

/// When the last order that was carried out had been given.
fn last(folder: &Path) -> i64 {
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::authority::Issue;
    use super::super::clock::CalendarClock;
    use super::super::enrolment::found;
    use super::*;
    use weir_core::election::Role;

    #[tokio::test]
    async fn an_order_counts_once_and_only_from_somebody_with_the_seal() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let identity = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let life = Duration::from_secs(3600);
        let issue = Issue { now: SystemTime::now(), life };
        let own = found(&records, &identity, std::net::Ipv4Addr::LOCALHOST.into(), issue).await.unwrap();
        let folder = home.path().join("node");
        own.write(&folder).unwrap();
        let store = CredentialStore::new(own.clone(), &folder, CalendarClock::default()).unwrap();
        let registered = async || records.lab_nodes().all().await.unwrap()[0].priority;
        let kept = async || records.secrets().find("lab.priority.n1").await.unwrap().unwrap();
        let row = records.lab_nodes().all().await.unwrap().remove(0);
        assert_eq!(follow(&records, &store, life).await, Ok(None));

        order(&records, &own, &row, Priority(7)).await.unwrap();
        let first = kept().await;
        assert_eq!(follow(&records, &store, life).await, Ok(Some(Priority(7))));
        assert_eq!((store.identity().unwrap().0.priority, registered().await), (Priority(7), 7));
        assert_eq!(Credentials::read(&folder).unwrap().identity().unwrap().0.priority, Priority(7), "on the disk too");
        assert_eq!(follow(&records, &store, life).await, Ok(None), "once");
        order(&records, &own, &row, Priority(5)).await.unwrap();
        assert_eq!(follow(&records, &store, life).await, Ok(Some(Priority(5))));
        records.secrets().set("lab.priority.n1", &first).await.unwrap();
        assert_eq!(follow(&records, &store, life).await, Ok(None), "an old order is put back");

        let other = NodeRow { fingerprint: "another key".into(), ..row.clone() };
        order(&records, &own, &other, Priority(1)).await.unwrap();
        for forged in [kept().await, first.replace("7 ", "0 "), "0 99".into(), String::new()] {
            records.secrets().set("lab.priority.n1", &forged).await.unwrap();
            assert!(follow(&records, &store, life).await.is_err(), "{forged}");
        }
        assert_eq!((store.identity().unwrap().0.priority, registered().await), (Priority(5), 5));
        let without = Credentials { seal: None, ..own };
        assert!(matches!(order(&records, &without, &row, Priority(1)).await, Err(PriorityOrderError::NotEligible)));
    }
}
