//! What a machine does for the others: it hears their election, gives dispatchers work while it leads, gives samples, and
//! admits new machines.
//!
//! One connection is one context, named in its first line: `weir-lab 1 election|dispatcher|fetch|join`. Without a certificate
//! of the lab only `join` is possible. Connections are bounded in number, lines in length, and silence in time.

use super::authority::Authority;
use super::connection::{Lines, tune};
use super::credentials::Credentials;
use super::enrolment;
use super::identity::Identity;
use super::registry::Registry;
use crate::dispatcher::Saying;
use crate::leader::{Heard, LeaderHandle, Link, attend};
use crate::node::Node;
use crate::wire::Message;
use crate::wire::election::Said;
use rustls::ServerConfig;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_core::election::{Channel, Frame, KeyId, Origin, Role};

/// Connections at once.
const CONNECTIONS_MAX: usize = 2048;
/// Connections at once that want to join.
const JOINING_MAX: usize = 8;
/// From a connection to its first line.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// An election needs no connection that says nothing for so long.
const QUIET: Duration = Duration::from_secs(120);
/// How often a leader asks whether a dispatcher is there; and a dispatcher that says nothing for so long is gone.
pub(super) const PING_EVERY: Duration = Duration::from_secs(1);
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// Reports of all dispatchers that wait to be stored, in KiB.
const REPORTS_KIB: usize = 256 << 10;

/// What a connection may reach.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) credentials: Arc<Credentials>,
    pub(super) registry: Registry,
    pub(super) frames: mpsc::Sender<Frame>,
    pub(super) reports: Arc<Semaphore>,
    pub(super) joining: Arc<Semaphore>,
}

/// Who is at the far end, as registered.
#[derive(Debug, Clone)]
struct Peer {
    identity: Identity,
    key: KeyId,
    address: IpAddr,
}

impl Server {
    pub(super) fn new(
        node: Node,
        credentials: Arc<Credentials>,
        registry: Registry,
        frames: mpsc::Sender<Frame>,
    ) -> Server {
        let (reports, joining) = (Arc::new(Semaphore::new(REPORTS_KIB)), Arc::new(Semaphore::new(JOINING_MAX)));
        Server { node, credentials, registry, frames, reports, joining }
    }

    /// Takes connections for ever.
    pub(super) async fn run(self, listener: TcpListener, tls: Arc<ServerConfig>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (server, tls) = (self.clone(), tls.clone());
            tokio::spawn(async move {
                if let Err(error) = server.serve(stream, tls, from.ip()).await {
                    tracing::debug!(%error, %from, "a connection of the lab ended");
                }
                drop(place);
            });
        }
    }

    async fn serve(self, stream: TcpStream, tls: Arc<ServerConfig>, address: IpAddr) -> io::Result<()> {
        tune(&stream)?;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let begin = async {
            let stream = TlsAcceptor::from(tls).accept(stream).await?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
            let (read, write) = tokio::io::split(stream);
            let mut lines = Lines::new(read);
            let first = lines.line().await?.unwrap_or_default();
            Ok::<_, io::Error>((certificate, lines, write, first))
        };
        let (certificate, lines, write, first) = tokio::time::timeout(INTRODUCTION, begin).await.map_err(late)??;
        let context = first.strip_prefix("weir-lab 1 ").unwrap_or_default();
        let Some(certificate) = certificate else {
            return if context == "join" { self.join(lines, write).await } else { Ok(()) };
        };
        let Some((identity, key)) = Identity::certified(&certificate) else { return Ok(()) };
        if !self.registry.admits(&identity, key).await {
            return Ok(());
        }
        let peer = Peer { identity, key, address };
        match context {
            "election" => self.election(peer, lines).await,
            "dispatcher" => self.dispatcher(peer, lines, write).await,
            "fetch" => self.give(lines, write).await,
            _ => Ok(()),
        }
    }

    async fn election(self, peer: Peer, mut lines: Lines<ReadHalf<TlsStream<TcpStream>>>) -> io::Result<()> {
        while let Ok(Some(line)) = tokio::time::timeout(QUIET, lines.line()).await.unwrap_or(Ok(None)) {
            let Ok(said) = Said::parse(&line) else { return Err(io::ErrorKind::InvalidData.into()) };
            let Identity { role, priority, .. } = peer.identity;
            let (id, key, address) = (peer.identity.id(), peer.key, peer.address);
            self.registry.heard(id, address);
            let from = Origin { id, key, role, priority, address, boot: said.boot };
            let frame = Frame { from, via: Channel::Stream, claim: said.claim, message: said.message };
            if self.frames.send(frame).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Gives a dispatcher work for as long as this machine leads.
    async fn dispatcher<R, W>(self, peer: Peer, lines: Lines<R>, mut write: W) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let leader = self.node.leader().filter(LeaderHandle::leads);
        let Some(leader) = leader.filter(|_| peer.identity.role != Role::External) else {
            write.write_all(b"bye this machine does not lead\n").await?;
            return write.shutdown().await;
        };
        write.write_all(format!("leader {}\n", leader.epoch()).as_bytes()).await?;
        write.flush().await?;
        let (out, letters) = mpsc::unbounded_channel();
        let (heard, from) = mpsc::channel(64);
        let talk = async {
            tokio::select! {
                end = hear(lines, heard, self.reports.clone()) => end,
                end = say(&mut write, letters) => end,
                // The dispatcher calls again, whoever leads then.
                () = leader.ended() => write.shutdown().await,
            }
        };
        // When the talk is over the session hears nothing more, and tells the leader that the machine is gone.
        tokio::join!(talk, attend(&peer.identity.name, Link { out, from }, &leader)).0
    }

    async fn give<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self,
        mut lines: Lines<R>,
        mut write: W,
    ) -> io::Result<()> {
        let Ok(Ok(Some(line))) = tokio::time::timeout(INTRODUCTION, lines.line()).await else { return Ok(()) };
        let Ok(Message::Fetch(hash)) = Message::parse(&line) else { return Err(io::ErrorKind::InvalidData.into()) };
        let samples = self.node.samples().clone();
        let opened = tokio::task::spawn_blocking(move || samples.open_verified(hash)).await;
        let Ok(Ok(file)) = opened else {
            write.write_all(format!("{}\n", Message::Missing(hash)).as_bytes()).await?;
            return write.shutdown().await;
        };
        let length = file.metadata()?.len();
        write.write_all(format!("{}\n", Message::Sample(hash, length)).as_bytes()).await?;
        tokio::io::copy(&mut tokio::fs::File::from_std(file), &mut write).await?;
        write.shutdown().await
    }

    async fn join<R: AsyncRead + Unpin>(
        self,
        mut lines: Lines<R>,
        mut write: WriteHalf<TlsStream<TcpStream>>,
    ) -> io::Result<()> {
        let Ok(_place) = self.joining.try_acquire() else { return Ok(()) };
        let Ok(Ok(Some(line))) = tokio::time::timeout(INTRODUCTION, lines.line()).await else { return Ok(()) };
        let answer = match self.credentials.seal {
            Some(seal) => match Authority::open(self.node.records(), &seal).await {
                Ok(authority) => enrolment::admit(self.node.records(), &authority, &self.credentials, &line).await,
                Err(error) => Err(error.to_string()),
            },
            None => Err("this machine cannot admit others: only eligible ones can".into()),
        };
        let answer = answer.unwrap_or_else(|why| format!("bye {why}"));
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }
}

/// Hears a dispatcher until it is silent. A report waits until there is memory for it.
async fn hear<R: AsyncRead + Unpin>(
    mut lines: Lines<R>,
    heard: mpsc::Sender<Heard>,
    reports: Arc<Semaphore>,
) -> io::Result<()> {
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    while let Some(line) = tokio::time::timeout(SILENCE, lines.line()).await.map_err(|_| silent())?? {
        let message = Message::parse(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let (mut payload, mut share) = (Vec::new(), None);
        if let Message::Result { length, .. } = message {
            let kib = u32::try_from(length / 1024 + 1).unwrap_or(u32::MAX);
            share = reports.clone().acquire_many_owned(kib).await.ok();
            let patience = SILENCE + Duration::from_secs(length >> 16);
            payload = tokio::time::timeout(patience, lines.payload(length)).await.map_err(|_| silent())??;
        } else if message.payload() > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if matches!(message, Message::Pong(_)) {
            continue;
        }
        if heard.send(Heard { saying: Saying { message, payload: payload.into() }, share }).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Says what there is to say to a dispatcher, and asks now and then whether it is there.
async fn say<W: AsyncWrite + Unpin>(write: &mut W, mut letters: mpsc::UnboundedReceiver<Message>) -> io::Result<()> {
    let mut ping = tokio::time::interval(PING_EVERY);
    let mut pings = 0;
    loop {
        let message = tokio::select! {
            letter = letters.recv() => match letter {
                Some(letter) => letter,
                None => return write.flush().await,
            },
            _ = ping.tick() => {
                pings += 1;
                Message::Ping(pings)
            }
        };
        let last = matches!(message, Message::Bye(_));
        let mut text = format!("{message}\n");
        while text.len() < 64 * 1024
            && let Ok(next) = letters.try_recv()
        {
            text.push_str(&format!("{next}\n"));
        }
        write.write_all(text.as_bytes()).await?;
        write.flush().await?;
        if last {
            return write.shutdown().await;
        }
    }
}
