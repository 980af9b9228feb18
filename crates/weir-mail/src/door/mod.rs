//! What all doors share. A door lets other programs ask one of the gates for a decision, in a protocol that they already speak.
//!
//! Here are the sockets, who may connect, how many at once, and how a door closes; each door brings its protocol ([`Door`]). Nothing
//! listens unless it is configured. On an address that other machines reach, only those that are named may connect.

mod room;
mod socket;

pub(crate) use room::{Incoming, NotTaken, Room, Taken};
pub(crate) use socket::Socket;

use crate::operations::Listener;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use weir_foundation::{sockets, supervision};
use weir_smtp::network::IpNetwork;

/// Those who accept rest so long after an error, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Where a door is, and who may come through it.
#[derive(Debug, Clone)]
pub(crate) struct DoorSpec {
    /// What it is called where listeners are listed.
    pub(crate) name: &'static str,
    /// What is spoken there.
    pub(crate) about: &'static str,
    /// Its section of the configuration.
    pub(crate) section: &'static str,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) listen_unix: Option<PathBuf>,
    pub(crate) clients: Vec<IpNetwork>,
    pub(crate) connections: u32,
}

impl DoorSpec {
    /// Whether this machine may connect.
    fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        client.is_loopback() || self.clients.iter().any(|network| network.contains(client))
    }
}

/// A protocol behind a door.
pub(crate) trait Door: Send + Sync + 'static {
    /// Answers a client until it has enough, is gone, or the door closes.
    fn converse(
        self: Arc<Self>,
        socket: Socket,
        client: String,
        closing: Closing,
    ) -> impl Future<Output = io::Result<()>> + Send;
}

/// Tells a conversation that its door closes: what is under way may end, nothing new begins.
#[derive(Debug, Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Returns when the door closes.
    pub(crate) async fn begins(&mut self) {
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}

#[derive(Default)]
pub(crate) struct OpenDoors {
    pub(crate) listeners: Vec<Listener>,
    tasks: Vec<JoinHandle<()>>,
    closing: watch::Sender<bool>,
    /// The places of each door, to wait until all are free.
    connections: Vec<(Arc<Semaphore>, u32)>,
}

/// Where nobody could listen, and why.
#[derive(Debug)]
pub(crate) enum DoorError {
    Tcp { address: SocketAddr, source: io::Error },
    Unix { path: PathBuf, source: io::Error },
}

impl OpenDoors {
    /// Opens the ports that are configured; none is fine.
    pub(crate) fn open<D: Door>(&mut self, place: DoorSpec, door: D) -> Result<(), DoorError> {
        let connections = Arc::new(Semaphore::new(place.connections as usize));
        self.connections.push((Arc::clone(&connections), place.connections));
        let closing = Closing(self.closing.subscribe());
        let entrance = Arc::new(Entrance { door: Arc::new(door), connections, closing, place });
        for address in &entrance.place.listen {
            let listening = tcp_listener(*address).map_err(|source| DoorError::Tcp { address: *address, source })?;
            let (listener, bound) = listening;
            self.add(&entrance.place, bound.to_string(), accept_tcp(Arc::clone(&entrance), listener));
        }
        if let Some(path) = &entrance.place.listen_unix {
            let listener = sockets::listen_unix(path)
                .and_then(UnixListener::from_std)
                .map_err(|source| DoorError::Unix { path: path.clone(), source })?;
            self.add(&entrance.place, path.display().to_string(), accept_unix(Arc::clone(&entrance), listener));
        }
        Ok(())
    }

    fn add(&mut self, place: &DoorSpec, address: String, serving: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(supervision::spawn("door", serving));
        self.listeners.push(Listener { name: place.name.to_owned(), address, about: place.about.to_owned() });
    }

    /// Takes no more connections, and returns when what was under way has ended or `patience` is over.
    pub(crate) async fn close(&self, patience: Duration) {
        self.stop_listening();
        let all = async {
            for (connections, count) in &self.connections {
                let _ = connections.acquire_many(*count).await;
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::info!("some who came through a door were not done; they ask again");
        }
    }

    fn stop_listening(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.closing.send_replace(true);
    }
}

impl Drop for OpenDoors {
    fn drop(&mut self) {
        self.stop_listening();
    }
}

/// What those share who accept connections at one door.
struct Entrance<D> {
    door: Arc<D>,
    connections: Arc<Semaphore>,
    closing: Closing,
    place: DoorSpec,
}

impl<D: Door> Entrance<D> {
    /// Talks to a client, unless too many are there already: clients try again.
    fn begin(&self, socket: Socket, client: String) {
        let section = self.place.section;
        let Ok(taken) = Arc::clone(&self.connections).try_acquire_owned() else {
            tracing::warn!(client, "{section}.connections are all taken");
            return;
        };
        let (door, closing) = (Arc::clone(&self.door), self.closing.clone());
        tokio::spawn(async move {
            if let Err(error) = door.converse(socket, client.clone(), closing).await {
                match error.kind() {
                    io::ErrorKind::InvalidData => tracing::warn!(client, %error, "{section}: a client is hung up on"),
                    _ => tracing::debug!(client, %error, "{section}: a client is gone"),
                }
            }
            drop(taken);
        });
    }
}

async fn accept_tcp<D: Door>(entrance: Arc<Entrance<D>>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) if entrance.place.admits(client.ip()) => {
                let _ = stream.set_nodelay(true);
                entrance.begin(Socket::Tcp(stream), named(client));
            }
            Ok((_, client)) => {
                tracing::warn!(%client, "{}.clients does not name a machine that connected", entrance.place.section);
            }
            Err(error) => after(&error).await,
        }
    }
}

async fn accept_unix<D: Door>(entrance: Arc<Entrance<D>>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => entrance.begin(Socket::Unix(stream), "this machine".to_owned()),
            Err(error) => after(&error).await,
        }
    }
}

fn named(client: SocketAddr) -> String {
    match client.ip().to_canonical() {
        ip if ip.is_loopback() => "this machine".to_owned(),
        ip => ip.to_string(),
    }
}

async fn after(error: &io::Error) {
    tracing::warn!(%error, "a connection to a door was not accepted");
    tokio::time::sleep(AFTER_ERROR).await;
}

fn tcp_listener(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::from_std(sockets::listen(address)?)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Whether other machines reach one of these addresses.
pub(crate) fn is_public(listen: &[SocketAddr]) -> bool {
    listen.iter().any(|address| !address.ip().to_canonical().is_loopback())
}
