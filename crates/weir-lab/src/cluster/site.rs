//! One machine of a lab of several: its election over the network, its server, its dispatcher's calls.

use super::connection::Caller;
use super::credentials::{Credentials, CredentialsError, next_boot};
use super::datagram::BeatKey;
use super::elector::{Elector, lately, now};
use super::network::{self, LabNetwork};
use super::registry::Registry;
use super::server::Server;
use super::{call, enrolment};
use crate::dispatcher::{Dispatcher, Fetch};
use crate::node::Node;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use weir_core::election::{AddressRange, Election, Epoch, Origin, Priority, ProcessingIndex, Role, Settings};
use weir_store::records::Records;

/// How often the machines of the lab are read from the database.
const REGISTRY_EVERY: Duration = Duration::from_secs(5);

/// Where a machine is in the lab's network.
#[derive(Debug, Clone)]
pub struct SiteSettings {
    /// The folder of its credentials.
    pub folder: PathBuf,
    /// Its address.
    pub address: Ipv4Addr,
    /// The port of the lab.
    pub port: u16,
    /// The length of the network's prefix.
    pub prefix: u8,
    /// Whether a large network may be swept.
    pub wide: bool,
    /// The timers.
    pub election: Settings,
    /// The processing index.
    pub index: ProcessingIndex,
    /// Whether the leader analyses too.
    pub leader_analyses: bool,
}

/// Why a machine cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It has no credentials.
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
    /// The network is not what it should be.
    #[error("the lab's network cannot be used at {0}: {1}")]
    Network(SocketAddr, std::io::Error),
    /// The count of lives.
    #[error("{0}")]
    Boot(std::io::Error),
    /// It cannot be searched.
    #[error("{0}")]
    Range(#[from] weir_core::election::RangeRefused),
    /// Samples of one machine are seen by one machine.
    #[error("a lab of several machines needs PostgreSQL: set store.records")]
    NotShared,
}

/// A machine's part in a lab. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Site {
    credentials: Arc<Credentials>,
    at: SocketAddr,
    /// Its name in the lab.
    pub name: String,
}

/// What a site runs beside.
#[derive(Debug)]
pub struct Parts {
    /// The node.
    pub node: Node,
    /// Its dispatcher.
    pub dispatcher: Dispatcher,
    /// Samples that the dispatcher wants.
    pub wanted: mpsc::Receiver<Fetch>,
}

impl Site {
    /// Reads the credentials.
    pub fn open(settings: &SiteSettings) -> Result<Site, SiteError> {
        let credentials = Credentials::read(&settings.folder)?;
        let (identity, _) = credentials.identity()?;
        let at = SocketAddr::new(settings.address.into(), settings.port);
        Ok(Site { credentials: Arc::new(credentials), at, name: identity.name })
    }

    /// Takes part: elects, serves, works. Returns when it listens.
    pub async fn start(&self, settings: SiteSettings, records: Records, parts: Parts) -> Result<(), SiteError> {
        if !records.is_shared() {
            return Err(SiteError::NotShared);
        }
        let Parts { node, dispatcher, wanted } = parts;
        let fail = |error| SiteError::Network(self.at, error);
        let range = AddressRange::new(settings.address, settings.prefix, settings.wide)?;
        let listener = TcpListener::bind(self.at).await.map_err(fail)?;
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, settings.port)).await.map_err(fail)?;
        let out = UdpSocket::bind((settings.address, 0)).await.map_err(fail)?;
        out.set_broadcast(true).map_err(fail)?;
        let beat_key = BeatKey::new(&self.credentials.beat_key);
        let caller = Caller { tls: self.credentials.client()?, from: settings.address, port: settings.port };
        let (identity, key) = self.credentials.identity()?;
        let boot = next_boot(&settings.folder).map_err(SiteError::Boot)?;
        let network = LabNetwork {
            name: identity.name.clone(),
            boot,
            sequence: 0,
            beat_key: beat_key.clone(),
            udp: out,
            broadcast: SocketAddr::new(broadcast(settings.address, settings.prefix).into(), settings.port),
            range,
            caller: caller.clone(),
            patience: settings.election.reply_wait,
            lines: HashMap::new(),
        };
        let (role, priority) = (identity.role, identity.priority);
        let me = Origin { id: identity.id(), key, role, priority, address: settings.address.into(), boot };
        let election = Election::new(me, settings.index, settings.election, Epoch(0), now());
        let (elector, ends) = Elector::new(election, records.clone(), &identity.name, settings.election, network);
        let registry = Registry::new(records.clone());
        registry.read().await;
        let server = Server::new(node.clone(), self.credentials.clone(), registry.clone(), ends.frames.clone());
        tokio::spawn(server.run(listener, self.credentials.server()?));
        tokio::spawn(network::hear(udp, boot, beat_key, registry.clone(), ends.frames.clone()));
        tokio::spawn(call::fetch(wanted, ends.post.clone(), registry.clone(), caller.clone()));
        tokio::spawn(call::work(dispatcher.clone(), ends.post.clone(), registry.clone(), caller));
        let every = lately(&settings.election) / 4;
        tokio::spawn(be_seen(records, identity.name, settings.address, (settings.index, every)));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REGISTRY_EVERY).await;
                registry.read().await;
            }
        });
        tokio::spawn(elector.run());
        tokio::spawn(node.serve(ends, settings.leader_analyses.then_some(dispatcher)));
        Ok(())
    }

    /// A token that admits one machine of this role and priority.
    pub(crate) async fn invite(
        &self,
        records: &Records,
        may: (Role, Priority),
        valid: Duration,
    ) -> Result<String, String> {
        if self.credentials.seal.is_none() {
            return Err("this machine cannot admit others: only eligible ones can".into());
        }
        enrolment::invite(records, &self.credentials, self.at, may, valid).await
    }
}

/// Says to the database that this machine is at work, for ever.
async fn be_seen(records: Records, name: String, address: Ipv4Addr, (index, every): (ProcessingIndex, Duration)) {
    let address = address.to_string();
    loop {
        match records.lab_seen(&name, &address, Some(index.0.into())).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(name, "this machine is not registered in the lab"),
            Err(error) => tracing::debug!(%error, "the database does not see this machine"),
        }
        tokio::time::sleep(every).await;
    }
}

/// The last address of the network.
fn broadcast(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    Ipv4Addr::from(u32::from(address) | hosts)
}
