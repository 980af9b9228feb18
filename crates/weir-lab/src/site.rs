//! One machine in a lab of several: its election over the network, its server, and the calls of its dispatcher.

use crate::cluster::connection::{Caller, SILENCE};
use crate::cluster::credential_store::CredentialStore;
use crate::cluster::credentials::{CredentialsError, next_boot};
use crate::cluster::datagram::BeatKey;
use crate::cluster::elector::{Elector, Ends, Order, now};
use crate::cluster::epoch_file::EpochFile;
use crate::cluster::leader_client::LeaderClient;
use crate::cluster::local_net::LocalNet;
use crate::cluster::membership::Membership;
use crate::cluster::network::{self, Doorkeeper, LabNetwork, Local};
use crate::cluster::registry::{Registry, row};
use crate::cluster::renewal::{self, Way};
use crate::cluster::{call, entry, priority};
use crate::dispatcher::{Dispatcher, Fetch};
use crate::node::Node;
use crate::server::{ElectionEnds, LabServer};
use crate::tasks::Task;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use weir_core::election::{AddressRange, Claim, Election, Epoch, Origin, ProcessingIndex, Role, Settings};
use weir_foundation::sockets;
use weir_store::records::{NodeRow, Records};

/// How often the machines of the lab are read from the database.
const REGISTRY_EVERY: Duration = Duration::from_secs(5);
/// How long a starting machine waits for the database to say which epoch it is.
const EPOCH_ANSWER: Duration = Duration::from_secs(5);

/// Where a machine is in the lab's network.
#[derive(Debug, Clone)]
pub struct SiteSettings {
    /// The folder of its credentials.
    pub folder: PathBuf,
    pub address: IpAddr,
    /// The port of the lab.
    pub port: u16,
    /// The length of the network's prefix.
    pub prefix: u8,
    /// Whether a large network may be swept.
    pub wide: bool,
    /// The timers.
    pub election: Settings,
    pub index: ProcessingIndex,
    /// Whether the leader analyses too.
    pub leader_analyses: bool,
    /// How long the certificates are valid that this machine makes for others and for itself.
    pub life: Duration,
    /// The machines of the lab that a machine outside asks who leads.
    pub entry: Vec<IpAddr>,
}

impl SiteSettings {
    /// The address on which it listens.
    pub fn at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Why a machine cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It has no credentials.
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
    /// It was away for too long.
    #[error(
        "the certificate of this machine has ended\n  hint: `weir lab remove` it on another machine, and let it join again with `weir lab join`"
    )]
    Ended,
    /// The lab's port cannot be used.
    #[error("the lab's network cannot be used at {0}: {1}")]
    Network(SocketAddr, std::io::Error),
    /// The file with the count of starts or with the highest epoch cannot be used.
    #[error("{0}")]
    Boot(std::io::Error),
    /// The network cannot be searched: it is too large, or its prefix is not valid.
    #[error("{0}")]
    Range(#[from] weir_core::election::RangeRefused),
    /// The records are in SQLite, which only one machine can see.
    #[error("a lab of several machines needs PostgreSQL: set lab.records, or store.records")]
    NotShared,
}

/// What a site runs.
#[derive(Debug)]
pub struct Parts {
    pub node: Node,
    pub dispatcher: Dispatcher,
    /// Samples that the dispatcher needs.
    pub wanted: mpsc::Receiver<Fetch>,
}

/// Starts to listen; returns the tasks by which the machine takes part: while they run, it votes, serves and works.
pub async fn tasks(
    membership: &Membership,
    settings: SiteSettings,
    records: Records,
    parts: Parts,
) -> Result<Vec<Task>, SiteError> {
    if !membership.is_outside() && !records.is_shared() {
        return Err(SiteError::NotShared);
    }
    be_certified(membership, &settings, &records).await?;
    let Parts { node, dispatcher, wanted } = parts;
    let listener = sockets::listen(settings.at()).and_then(TcpListener::from_std);
    let listener = listener.map_err(|error| SiteError::Network(settings.at(), error))?;
    let silence = SILENCE.max(settings.election.silence());
    let caller = Caller { store: membership.store.clone(), from: settings.address, port: settings.port, silence };
    let (identity, key) = membership.store.identity()?;
    let boot = next_boot(&settings.folder).map_err(SiteError::Boot)?;
    let (local, udp) = local(membership, &settings).await?.unzip();
    let registry = if membership.is_outside() { Registry::outside() } else { Registry::new(records.clone()) };
    registry.read().await;
    let network = LabNetwork {
        name: identity.name.clone(),
        boot,
        local,
        caller: caller.clone(),
        registry: registry.clone(),
        patience: settings.election.reply_wait,
        lines: HashMap::new(),
    };
    let (role, priority) = (identity.role, identity.priority);
    let me = Origin { id: identity.id(), key, role, priority, address: settings.address, boot };
    let seen = seen(membership, &settings, &records).await?;
    dispatcher.has_seen(seen.highest());
    let election = Election::new(me, settings.index, settings.election, seen.highest(), now());
    let (elector, ends) = Elector::new(election, records.clone(), &identity.name, settings.election, network);
    let elector = elector.keeping(seen.clone());
    let claim = Claim { priority, index: settings.index, stands: role == Role::Eligible };
    let election_ends = ElectionEnds { frames: ends.frames.clone(), post: ends.post.clone(), boot, claim };
    let server = LabServer::new(node.clone(), caller.clone(), registry.clone(), election_ends, settings.life);
    let mut tasks = vec![Task::new("lab server", server.run(listener))];
    if let (Some(udp), Some(beat_key)) = (udp, membership.store.active().credentials.beat_key) {
        let beat_key = BeatKey::new(&beat_key);
        let doorkeeper = Doorkeeper::new(records.clone(), membership.store.clone(), settings.at());
        let hear = network::hear(udp, doorkeeper, (boot, beat_key), registry.clone(), ends.frames.clone());
        tasks.push(Task::new("lab datagrams", hear));
    }
    let fetch = call::fetch(wanted, ends.post.clone(), registry.clone(), caller.clone());
    tasks.push(Task::new("lab samples from other machines", fetch));
    let work = call::work((dispatcher.clone(), seen), ends.post.clone(), registry.clone(), caller.clone());
    tasks.push(Task::new("lab work for a leader", work));
    let way = way(membership, &settings, &records, (&ends, &registry, &caller));
    tasks.push(Task::new("lab certificate", renewal::keep(membership.store.clone(), way)));
    node.set_leader_client(LeaderClient {
        post: ends.post.clone(),
        registry: registry.clone(),
        caller: caller.clone(),
    });
    tasks.push(Task::new("lab election", elector.run()));
    if membership.is_outside() {
        tasks.push(Task::new("lab entry", entry::ask(settings.entry, caller, registry, ends.frames)));
        return Ok(tasks);
    }
    let every = settings.election.counts_as_there() / 4;
    let orders = ends.orders.clone();
    let index = Some(settings.index.0.into());
    let me = NodeRow { processing_index: index, ..row(&identity, key, &settings.address.to_string()) };
    let presence =
        Presence { records, me, store: membership.store.clone(), life: settings.life, orders: orders.clone() };
    tasks.push(Task::new("lab presence", presence.be_seen(every)));
    tasks.push(Task::new("lab registry", read_registry(registry, orders)));
    tasks.push(Task::new("lab node", node.serve(ends, settings.leader_analyses.then_some(dispatcher))));
    Ok(tasks)
}

/// A machine that can read the secret key of the authority renews its own certificate without others, even if it was away for long.
async fn be_certified(membership: &Membership, settings: &SiteSettings, records: &Records) -> Result<(), SiteError> {
    let (active, now) = (membership.store.active(), membership.store.clock.now());
    if active.credentials.seal.is_some() && now >= active.renew_at() {
        let way = Way::Own { records: records.clone(), life: settings.life };
        if let Err(problem) = renewal::renew(&membership.store, &way).await {
            tracing::warn!(%problem, "the certificate of this machine cannot be renewed");
        }
    }
    if let Err(problem) = priority::follow(records, &membership.store, settings.life).await {
        tracing::warn!(%problem, "the priority of this machine is not changed");
    }
    if now < membership.store.active().until() { Ok(()) } else { Err(SiteError::Ended) }
}

/// The highest epoch. Inside the lab the database knows it; outside, or if the database does not answer, the one on the disk counts.
async fn seen(membership: &Membership, settings: &SiteSettings, records: &Records) -> Result<EpochFile, SiteError> {
    let seen = EpochFile::open(&settings.folder).map_err(SiteError::Boot)?;
    if !membership.is_outside()
        && let Ok(Ok((fence, _))) = tokio::time::timeout(EPOCH_ANSWER, records.lab_leader().current()).await
    {
        seen.begin_at(Epoch(fence.epoch.cast_unsigned())).map_err(SiteError::Boot)?;
    }
    Ok(seen)
}

/// The network inside the lab, and the socket for its datagrams; None outside.
async fn local(membership: &Membership, settings: &SiteSettings) -> Result<Option<(Local, UdpSocket)>, SiteError> {
    let active = membership.store.active();
    if membership.is_outside() {
        return Ok(None);
    }
    let beat_key = active.credentials.beat_key.as_ref();
    let beat_key = beat_key.ok_or_else(|| CredentialsError::Unusable("there is no secret for datagrams".into()))?;
    let fail = |error| SiteError::Network(settings.at(), error);
    let range = AddressRange::new(settings.address, settings.prefix, settings.wide)?;
    let net = LocalNet { address: settings.address, prefix: settings.prefix, port: settings.port };
    let heard = net.ear().await.map_err(fail)?;
    let udp = net.mouth().await.map_err(fail)?;
    let broadcast = net.all().map_err(fail)?;
    Ok(Some((Local { sequence: 0, beat_key: BeatKey::new(beat_key), udp, broadcast, range }, heard)))
}

/// The way in which this machine gets its next certificate.
fn way(
    membership: &Membership,
    settings: &SiteSettings,
    records: &Records,
    (ends, registry, caller): (&Ends, &Registry, &Caller),
) -> Way {
    match membership.store.active().credentials.seal {
        Some(_) => Way::Own { records: records.clone(), life: settings.life },
        None => Way::Ask { post: ends.post.clone(), registry: registry.clone(), caller: caller.clone() },
    }
}

/// How this machine reports its presence to the database.
struct Presence {
    records: Records,
    me: NodeRow,
    store: CredentialStore,
    life: Duration,
    orders: mpsc::Sender<Order>,
}

impl Presence {
    /// Tells the database again and again that this machine runs, and carries out the orders that it finds there. A machine that was
    /// removed from the lab, or is registered as something else, does not stand for election, because the others would ignore it.
    async fn be_seen(mut self, every: Duration) {
        let (mut out, mut last_problem) = (false, String::new());
        loop {
            if let Err(problem) = self.follow_orders().await
                && problem != last_problem
            {
                tracing::warn!(%problem, "the priority of this machine is not changed");
                last_problem = problem;
            }
            match self.records.lab_nodes().seen(&self.me).await {
                Ok(seen) if seen == out => {
                    out = !seen;
                    if out {
                        tracing::warn!(
                            name = self.me.node,
                            "this machine is not registered in the lab with its key, role and priority"
                        );
                    }
                    let _ = self.orders.send(if out { Order::Resign } else { Order::Rejoin }).await;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the database does not see this machine"),
            }
            tokio::time::sleep(every).await;
        }
    }

    async fn follow_orders(&mut self) -> Result<(), String> {
        if let Some(priority) = priority::follow(&self.records, &self.store, self.life).await? {
            self.me.priority = priority.0.into();
            let _ = self.orders.send(Order::Priority(priority)).await;
        }
        Ok(())
    }
}

/// Reads who belongs to the lab, for ever.
async fn read_registry(registry: Registry, orders: mpsc::Sender<Order>) {
    loop {
        if orders.send(Order::Externals(registry.addresses(&[Role::External]))).await.is_err() {
            return;
        }
        tokio::time::sleep(REGISTRY_EVERY).await;
        registry.read().await;
    }
}
