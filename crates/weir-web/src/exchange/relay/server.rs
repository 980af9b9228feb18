//! The relay's own side: who is connected, and frames from each to all others.
//!
//! Bounds: `connections_max` front-ends and, beside them, some [connections](super::unproven) that have [`PROVE_WITHIN`] to prove the key;
//! [`QUEUE`] frames for each listener, past which frames for it are dropped (it will ask for them again). A listener that reads nothing for
//! [`WRITE_WITHIN`] or sends nothing for [`SILENT`] is disconnected.

use super::handshake::{RelayKey, prove_as_server, server_config};
use super::lengths::{Lengths, PREFIX_BYTES};
use super::unproven::UnprovenConnections;
use crate::exchange::carrier::{Codec, Incoming};
use crate::identity::Secret;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a relay needs to know.
#[derive(Clone, Debug)]
pub struct HitserverSettings {
    pub listen: SocketAddr,
    /// The key that it shares with its front-ends.
    pub key: Secret,
    /// Most front-ends at once.
    pub connections_max: usize,
    /// The fraction of frames to lose on purpose, 0 … 1: for testing how the exchange copes.
    pub loss: f64,
}

/// A relay that listens.
pub struct Hitserver {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    key: RelayKey,
    hub: Arc<Hub>,
    connections: Arc<Semaphore>,
    unproven: Arc<UnprovenConnections>,
}

/// What a relay has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    pub members: usize,
    pub frames: u64,
    /// Frames that were not passed on to a front-end because it was too slow.
    pub dropped: u64,
    /// Connections that did not prove the key.
    pub unproven: u64,
}

const PROVE_WITHIN: Duration = Duration::from_secs(5);
const QUEUE: usize = 4096;
const WRITE_WITHIN: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(10);
const ALIVE: Duration = Duration::from_millis(500);
const BATCH_BYTES: usize = 64 * 1024;

type Tls = TlsStream<TcpStream>;

impl Hitserver {
    pub async fn bind(settings: &HitserverSettings) -> Result<Hitserver, RelayError> {
        let listen = settings.listen;
        let listener = TcpListener::bind(listen).await.map_err(|error| RelayError::Listen(listen, error))?;
        Ok(Hitserver {
            listener,
            acceptor: TlsAcceptor::from(server_config().map_err(RelayError::Tls)?),
            key: RelayKey::new(&settings.key),
            hub: Arc::new(Hub::new(settings.loss)),
            connections: Arc::new(Semaphore::new(settings.connections_max.clamp(1, 4096))),
            unproven: Arc::default(),
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Its counters, from now on and from anywhere.
    pub fn counters(&self) -> impl Fn() -> RelayCounters + Send + Sync + 'static {
        let hub = Arc::clone(&self.hub);
        move || hub.counters()
    }

    /// Serves for ever; drop the future to stop.
    pub async fn serve(self) {
        let mut members = tokio::task::JoinSet::new();
        loop {
            while members.try_join_next().is_some() {}
            let (socket, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "hitserver: cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let mut unproven = UnprovenConnections::admit(&self.unproven, address.ip());
            let (acceptor, key) = (self.acceptor.clone(), self.key.clone());
            let (hub, connections) = (Arc::clone(&self.hub), Arc::clone(&self.connections));
            members.spawn(async move {
                let known = tokio::select! {
                    known = timeout(PROVE_WITHIN, introduce(socket, &acceptor, &key)) => known,
                    _ = &mut unproven.gives_way => return hub.note_stranger(address, "one of too many"),
                };
                match known {
                    Ok(Ok(stream)) => {
                        unproven.has_proven();
                        hub.welcome(stream, address, &connections).await;
                    }
                    Ok(Err(error)) => hub.note_stranger(address, &error.to_string()),
                    Err(_) => hub.note_stranger(address, "slow"),
                }
            });
        }
    }
}

async fn introduce(socket: TcpStream, acceptor: &TlsAcceptor, key: &RelayKey) -> io::Result<Tls> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    if prove_as_server(&mut stream, key).await? { Ok(stream) } else { Err(io::Error::other("its key is not ours")) }
}

/// All front-ends that are connected.
struct Hub {
    members: Mutex<Members>,
    frames: AtomicU64,
    dropped: AtomicU64,
    unproven: AtomicU64,
    loss: f64,
}

#[derive(Default)]
struct Members {
    queues: HashMap<u64, mpsc::Sender<Bytes>>,
    joined: u64,
    /// State of the generator that picks frames to lose.
    dice: u64,
}

impl Hub {
    fn new(loss: f64) -> Hub {
        let count = || AtomicU64::new(0);
        Hub { members: Mutex::default(), frames: count(), dropped: count(), unproven: count(), loss }
    }

    fn counters(&self) -> RelayCounters {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).queues.len();
        RelayCounters {
            members,
            frames: load(&self.frames),
            dropped: load(&self.dropped),
            unproven: load(&self.unproven),
        }
    }

    fn note_stranger(&self, address: SocketAddr, why: &str) {
        let before = self.unproven.fetch_add(1, Ordering::Relaxed);
        // The first ones are logged for the operator; a flood of them must not fill the log.
        if before < 10 || before.is_multiple_of(1000) {
            tracing::warn!(%address, why, "hitserver: a connection that is no front-end");
        }
    }

    /// Serves a front-end that has proven itself, if there is room.
    async fn welcome(&self, stream: Tls, address: SocketAddr, connections: &Semaphore) {
        let Ok(_place) = connections.try_acquire() else {
            tracing::warn!(%address, "hitserver: one front-end too many");
            return;
        };
        tracing::info!(%address, "hitserver: a front-end came");
        let why = self.serve(stream).await;
        tracing::info!(%address, %why, "hitserver: a front-end went");
    }

    async fn serve(&self, stream: Tls) -> io::Error {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let member = self.join(queue);
        let _leave = Leave { hub: self, member };
        let (reader, writer) = tokio::io::split(stream);
        tokio::select! {
            ended = self.read(reader, member) => ended.err(),
            ended = write(writer, outgoing) => ended.err(),
        }
        .unwrap_or_else(|| io::Error::other("closed"))
    }

    fn join(&self, queue: mpsc::Sender<Bytes>) -> u64 {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.joined += 1;
        let member = members.joined;
        members.queues.insert(member, queue);
        member
    }

    async fn read(&self, mut reader: ReadHalf<Tls>, member: u64) -> io::Result<()> {
        let mut buffer = BytesMut::with_capacity(BATCH_BYTES);
        loop {
            let read = timeout(SILENT, reader.read_buf(&mut buffer)).await;
            if read.map_err(|_| io::Error::other("silent"))?? == 0 {
                return Ok(());
            }
            while let Some(incoming) = Lengths.decode(&mut buffer).map_err(io::Error::other)? {
                if let Incoming::Frame(frame) = incoming {
                    self.pass_on(&frame, member);
                }
            }
        }
    }

    fn pass_on(&self, frame: &Bytes, from: u64) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + frame.len());
        message.put_u32_le(frame.len() as u32);
        message.extend_from_slice(frame);
        let message = message.freeze();
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let Members { queues, dice, .. } = &mut *members;
        for queue in queues.iter().filter(|(member, _)| **member != from).map(|(_, queue)| queue) {
            if self.loss > 0.0 && roll(dice) < self.loss {
                continue;
            }
            if queue.try_send(message.clone()).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The next of a sequence of numbers from 0 to 1 (SplitMix64).
fn roll(dice: &mut u64) -> f64 {
    *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*dice ^ (*dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Removes a member however its connection ends.
struct Leave<'a> {
    hub: &'a Hub,
    member: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.hub.members.lock().unwrap_or_else(PoisonError::into_inner).queues.remove(&self.member);
    }
}

async fn write(mut writer: WriteHalf<Tls>, mut outgoing: mpsc::Receiver<Bytes>) -> io::Result<()> {
    let mut batch = BytesMut::with_capacity(BATCH_BYTES);
    loop {
        match timeout(ALIVE, outgoing.recv()).await {
            Ok(Some(message)) => batch.extend_from_slice(&message),
            Ok(None) => return Ok(()),
            Err(_) => batch.put_u32_le(0),
        }
        while batch.len() < BATCH_BYTES
            && let Ok(message) = outgoing.try_recv()
        {
            batch.extend_from_slice(&message);
        }
        let written = async {
            writer.write_all(&batch).await?;
            writer.flush().await
        };
        timeout(WRITE_WITHIN, written).await.map_err(|_| io::Error::other("takes nothing"))??;
        batch.clear();
    }
}

/// Why there is no relay.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The address is taken, or not ours.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// No certificate could be made.
    #[error("TLS: {0}")]
    Tls(Box<dyn std::error::Error + Send + Sync>),
}
