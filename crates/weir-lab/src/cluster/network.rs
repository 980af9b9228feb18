//! How messages of the election leave a machine, and how datagrams come in.
//!
//! Each machine that is written to has a task with one connection, opened when there is something to say and kept while
//! there is. What cannot be said within T is dropped: the election knows that messages are lost.

use super::connection::Caller;
use super::datagram::{BeatKey, DATAGRAM_MAX, Datagram};
use super::elector::Network;
use super::registry::Registry;
use crate::wire::election::Said;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::client::TlsStream;
use weir_core::election::{AddressRange, Boot, Channel, Claim, Frame, Message, Origin};

/// Messages that wait for one machine at most.
const WAITING_MAX: usize = 32;
/// A connection that nobody needed for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The network of one machine.
#[derive(Debug)]
pub(crate) struct LabNetwork {
    pub(crate) name: String,
    pub(crate) boot: Boot,
    /// None outside the lab.
    pub(crate) local: Option<Local>,
    pub(crate) caller: Caller,
    /// T.
    pub(crate) patience: Duration,
    pub(crate) lines: HashMap<IpAddr, mpsc::Sender<(Instant, String)>>,
}

/// The network that the machines inside the lab share.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) sequence: u64,
    pub(crate) beat_key: BeatKey,
    /// Bound to this machine's address: the others know it by that.
    pub(crate) udp: UdpSocket,
    pub(crate) broadcast: SocketAddr,
    pub(crate) range: AddressRange,
}

impl LabNetwork {
    fn line(&self, claim: Claim, message: Message) -> String {
        format!("{}\n", Said { boot: self.boot, claim, message })
    }
}

impl Network for LabNetwork {
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
        // What does not fit is lost, as on any network.
        let _ = sender.try_send(line);
    }

    fn sweep(&mut self, claim: Claim, message: Message) {
        let Some(local) = &self.local else { return };
        let (line, caller, patience) = (self.line(claim, message), self.caller.clone(), self.patience);
        let hosts: Vec<_> = local.range.hosts().filter(|host| *host != caller.from).collect();
        tokio::spawn(async move {
            let calls = Arc::new(Semaphore::new(AddressRange::IN_FLIGHT));
            for host in hosts {
                let Ok(permit) = calls.clone().acquire_owned().await else { return };
                let (line, caller) = (line.clone(), caller.clone());
                tokio::spawn(async move {
                    if let Ok(mut stream) = caller.call(host.into(), "election", patience).await {
                        let _ = stream.write_all(line.as_bytes()).await;
                        let _ = stream.shutdown().await;
                    }
                    drop(permit);
                });
            }
        });
    }
}

/// Writes lines to one machine until nobody has any.
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

/// Hears datagrams for ever.
pub(crate) async fn hear(udp: UdpSocket, me: Boot, key: BeatKey, registry: Registry, frames: mpsc::Sender<Frame>) {
    let mut piece = [0; DATAGRAM_MAX + 1];
    loop {
        let Ok((length, from)) = udp.recv_from(&mut piece).await else {
            // The link may be down; nothing to hear then.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(datagram) = piece.get(..length).and_then(|bytes| key.read(bytes)) else { continue };
        if datagram.said.boot == me {
            // Our own, come back.
            continue;
        }
        let Some((identity, key)) = registry.by_name(&datagram.name).await else { continue };
        let Datagram { sequence, said, .. } = datagram;
        let (id, role, priority) = (identity.id(), identity.role, identity.priority);
        let from = Origin { id, key, role, priority, address: from.ip(), boot: said.boot };
        let via = Channel::Datagram { sequence };
        // Only a hint: if there are more than can be heard they are lost.
        let _ = frames.try_send(Frame { from, via, claim: said.claim, message: said.message });
    }
}
