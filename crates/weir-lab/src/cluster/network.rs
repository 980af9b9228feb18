//! How messages of the election leave a machine, and how datagrams come in.
//!
//! Each machine that we write to has a task with one connection, which is opened when there is something to send and kept while there is. A
//! message that cannot be sent within T is dropped: the election expects messages to be lost.

use super::code;
use super::connection::Caller;
use super::credential_store::CredentialStore;
use super::datagram::{BeatKey, DATAGRAM_MAX, Datagram};
use super::elector::ElectionNetwork;
use super::registry::Registry;
use crate::wire::election::Said;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::client::TlsStream;
use weir_core::election::{AddressRange, Boot, Channel, Claim, Frame, Message, Origin, Role};
use weir_store::records::Records;

/// How many messages may wait for one machine.
const WAITING_MAX: usize = 32;
/// A connection that was not needed for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The network of one machine.
#[derive(Debug)]
pub(crate) struct LabNetwork {
    pub(crate) name: String,
    pub(crate) boot: Boot,
    /// None outside the lab.
    pub(crate) local: Option<Local>,
    pub(crate) caller: Caller,
    /// The addresses of the others, if there are too many addresses to try them all.
    pub(crate) registry: Registry,
    /// T.
    pub(crate) patience: Duration,
    pub(crate) lines: HashMap<IpAddr, mpsc::Sender<(Instant, String)>>,
}

/// The network that the machines inside the lab share.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) sequence: u64,
    pub(crate) beat_key: BeatKey,
    /// Bound to this machine's address, because the others know it by that.
    pub(crate) udp: UdpSocket,
    /// The address that all receive.
    pub(crate) broadcast: SocketAddr,
    pub(crate) range: AddressRange,
}

impl LabNetwork {
    fn line(&self, claim: Claim, message: Message) -> String {
        format!("{}\n", Said { boot: self.boot, claim, message })
    }
}

impl ElectionNetwork for LabNetwork {
    fn broadcast(&mut self, claim: Claim, message: Message) {
        let Some(local) = &mut self.local else { return };
        local.sequence += 1;
        let said = Said { boot: self.boot, claim, message };
        let text = local.beat_key.write(&Datagram { name: self.name.clone(), sequence: local.sequence, said });
        if let Err(error) = local.udp.try_send_to(text.as_bytes(), local.broadcast) {
            tracing::debug!(%error, "a broadcast was not sent");
        }
    }

    fn send(&mut self, to: IpAddr, claim: Claim, message: Message) {
        let line = (Instant::now(), self.line(claim, message));
        if self.lines.len() > 1024 {
            self.lines.retain(|_, line| !line.is_closed());
        }
        let known = self.lines.get(&to).filter(|line| !line.is_closed());
        let sender = known.cloned().unwrap_or_else(|| {
            let (sender, lines) = mpsc::channel(WAITING_MAX);
            tokio::spawn(write_to(to, self.caller.clone(), self.patience, lines));
            self.lines.insert(to, sender.clone());
            sender
        });
        // Messages for which there is no room are lost, as on any network.
        let _ = sender.try_send(line);
    }

    fn hang_up(&mut self) {
        self.lines.clear();
    }

    fn sweep(&mut self, claim: Claim, message: Message) {
        let Some(local) = &self.local else { return };
        let (line, caller, patience) = (self.line(claim, message), self.caller.clone(), self.patience);
        let known = match local.range.is_boundless() {
            true => self.registry.addresses(&[Role::Eligible, Role::Dispatcher]),
            false => Vec::new(),
        };
        let hosts: Vec<_> = local.range.hosts().chain(known).filter(|host| *host != caller.from).collect();
        tokio::spawn(async move {
            let calls = Arc::new(Semaphore::new(AddressRange::IN_FLIGHT));
            for host in hosts {
                let Ok(permit) = calls.clone().acquire_owned().await else { return };
                let (line, caller) = (line.clone(), caller.clone());
                tokio::spawn(async move {
                    if let Ok(mut stream) = caller.call(host, "election", patience).await {
                        let _ = stream.write_all(line.as_bytes()).await;
                        let _ = stream.shutdown().await;
                    }
                    drop(permit);
                });
            }
        });
    }
}

/// Writes lines to one machine until there are no more.
async fn write_to(to: IpAddr, caller: Caller, patience: Duration, mut lines: mpsc::Receiver<(Instant, String)>) {
    let mut stream: Option<TlsStream<TcpStream>> = None;
    while let Ok(Some((at, line))) = tokio::time::timeout(IDLE, lines.recv()).await {
        if at.elapsed() > patience {
            continue;
        }
        if stream.is_none() {
            stream = caller
                .call(to, "election", patience)
                .await
                .inspect_err(|error| {
                    tracing::debug!(%to, %error, "a machine cannot be reached");
                })
                .ok();
        }
        let Some(open) = &mut stream else { continue };
        let written = tokio::time::timeout(patience, async {
            open.write_all(line.as_bytes()).await?;
            open.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            stream = None;
        }
    }
}

/// Answers machines that seek the lab by a code. Anybody in the network can ask, so the database is queried only so often.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    records: Records,
    store: CredentialStore,
    at: SocketAddr,
    answered_at: Option<Instant>,
}

impl Doorkeeper {
    /// The pause between two answers.
    const PAUSE: Duration = Duration::from_millis(100);

    pub(crate) fn new(records: Records, store: CredentialStore, at: SocketAddr) -> Doorkeeper {
        Doorkeeper { records, store, at, answered_at: None }
    }

    /// Whether the datagram was the question of a machine that seeks a lab.
    async fn heard(&mut self, udp: &UdpSocket, datagram: &[u8], from: SocketAddr) -> bool {
        if code::read_seek(datagram).is_none() {
            return false;
        }
        let active = self.store.active();
        let credentials = &active.credentials;
        let busy = self.answered_at.is_some_and(|at| at.elapsed() < Self::PAUSE);
        // Only machines that have the seal can admit others.
        if busy || credentials.seal.is_none() {
            return true;
        }
        self.answered_at = Some(Instant::now());
        let Ok(fingerprint) = credentials.fingerprint() else { return true };
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX);
        if let Some(answer) = code::answer(&self.records, (self.at, &fingerprint), datagram, now).await {
            let _ = udp.send_to(answer.as_bytes(), from).await;
        }
        true
    }
}

/// Receives datagrams for ever.
pub(crate) async fn hear(
    udp: UdpSocket,
    mut doorkeeper: Doorkeeper,
    (me, key): (Boot, BeatKey),
    registry: Registry,
    frames: mpsc::Sender<Frame>,
) {
    let mut piece = [0; DATAGRAM_MAX + 1];
    loop {
        let Ok((length, from)) = udp.recv_from(&mut piece).await else {
            // The link may be down; then there is nothing to receive.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(bytes) = piece.get(..length) else { continue };
        if doorkeeper.heard(&udp, bytes, from).await {
            continue;
        }
        let Some(datagram) = key.read(bytes) else { continue };
        if datagram.said.boot == me {
            // Our own datagram came back.
            continue;
        }
        let priority = datagram.said.claim.priority;
        let Some((identity, key)) = registry.by_name(&datagram.name, priority).await else { continue };
        let Datagram { sequence, said, .. } = datagram;
        let (id, role, priority) = (identity.id(), identity.role, identity.priority);
        let from = Origin { id, key, role, priority, address: from.ip(), boot: said.boot };
        let via = Channel::Datagram { sequence };
        // It is only a hint: if there are more than can be handled, they are lost.
        let _ = frames.try_send(Frame { from, via, claim: said.claim, message: said.message });
    }
}
