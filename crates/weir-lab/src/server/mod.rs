//! The server through which a machine serves the others of its lab: it receives their election messages, gives dispatchers work while it
//! leads, gives samples, answers questions, renews certificates and admits new machines.
//!
//! One connection is one context, named in its first line: `weir-lab 1 election|dispatcher|fetch|ask|leader|renew|join`. Without
//! a certificate of the lab only `join` is possible. A machine outside the lab may work, fetch what it works on, hear who
//! leads and renew its certificate. Connections are bounded in number, lines in length, and silence in time; those of a machine
//! that is taken out of the lab end.

mod answer;
mod connection_counts;
mod passing;
#[cfg(test)]
mod tests;
mod unknown_peers;

use crate::cluster::authority::{Authority, Issue};
use crate::cluster::call::fetch_from_any;
use crate::cluster::connection::{Caller, Lines, tune};
use crate::cluster::elector::Post;
use crate::cluster::enrolment::{self, Welcome};
use crate::cluster::identity::{Identity, PeerIdentity};
use crate::cluster::registry::{Registry, row};
use crate::cluster::reports::MachineReport;
use crate::dispatcher::Envelope;
use crate::leader::{LeaderHandle, Link, Outside, Received, attend};
use crate::node::Node;
use crate::wire::Message;
use crate::wire::election::Said;
use connection_counts::{ConnectionCounts, ConnectionRefused};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use unknown_peers::{UnknownPeer, UnknownPeers};
use weir_core::election::{self, Boot, Channel, Claim, Epoch, Frame, KeyId, Origin, Role, Round};
use weir_store::samples::SampleHash;

/// Connections at once.
const CONNECTIONS_MAX: usize = 2048;
/// How many connections one machine may have, and how many of them may carry reports: each of these may hold the memory of one for long.
const CONNECTIONS_A_MACHINE: usize = 32;
const DISPATCHERS_A_MACHINE: usize = 2;
/// How many connections may want to join at the same time.
const JOINING_MAX: usize = 8;
/// From a connection to its first line.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// A connection of the election that is silent for this long is not needed.
const QUIET: Duration = Duration::from_secs(120);
/// How often a leader asks whether a dispatcher is there.
const PING_EVERY: Duration = Duration::from_secs(1);
/// How often the database is told that a machine outside runs.
const SEEN_EVERY: Duration = Duration::from_secs(2);
/// Reports of all dispatchers that wait to be stored, in KiB.
const REPORTS_KIB: usize = 256 << 10;

/// What the handler of a connection needs.
#[derive(Debug, Clone)]
pub(crate) struct LabServer {
    node: Node,
    caller: Caller,
    registry: Registry,
    election_ends: ElectionEnds,
    /// How long certificates are valid that are made here.
    life: Duration,
    reports: Arc<Semaphore>,
    joining: Arc<Semaphore>,
    unknown_peers: UnknownPeers,
    connected: ConnectionCounts,
    dispatching: ConnectionCounts,
}

/// This machine's part in the election.
#[derive(Debug, Clone)]
pub(crate) struct ElectionEnds {
    /// Where received messages go.
    pub(crate) frames: mpsc::Sender<Frame>,
    /// The state of this machine in the election.
    pub(crate) post: watch::Receiver<Post>,
    /// Its life.
    pub(crate) boot: Boot,
    /// What it says about itself; its priority is that of its certificate.
    pub(crate) claim: Claim,
}

/// The machine at the other end, as it is registered.
#[derive(Debug, Clone)]
struct Peer {
    identity: Identity,
    key: KeyId,
    public_key: [u8; 32],
    address: IpAddr,
}

impl LabServer {
    pub(crate) fn new(
        node: Node,
        caller: Caller,
        registry: Registry,
        election_ends: ElectionEnds,
        life: Duration,
    ) -> LabServer {
        let (reports, joining) = (Arc::new(Semaphore::new(REPORTS_KIB)), Arc::new(Semaphore::new(JOINING_MAX)));
        let (unknown_peers, connected, dispatching) =
            (UnknownPeers::default(), ConnectionCounts::default(), ConnectionCounts::default());
        LabServer {
            node,
            caller,
            registry,
            election_ends,
            life,
            reports,
            joining,
            unknown_peers,
            connected,
            dispatching,
        }
    }

    /// Accepts connections for ever.
    pub(crate) async fn run(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // They end with the server.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Connections that have not shown who they are must not keep out those that have.
            let known = self.registry.is_address(from.ip());
            let Some(unknown) = self.unknown_peers.enter(from.ip(), known) else { continue };
            let server = self.clone();
            connections.spawn(async move {
                if let Err(error) = server.serve(stream, from.ip(), unknown).await {
                    tracing::debug!(%error, %from, "a connection of the lab ended");
                }
                drop(place);
            });
        }
    }

    async fn serve(self, stream: TcpStream, address: IpAddr, unknown: UnknownPeer) -> io::Result<()> {
        let tls = self.caller.store.active().server.clone();
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
        let Some(shown) = PeerIdentity::by(&certificate) else { return Ok(()) };
        let Some(public_key) = Identity::public_key(&certificate) else { return Ok(()) };
        if !self.registry.admits(&shown).await {
            return Ok(());
        }
        let PeerIdentity { identity, key, .. } = shown;
        drop(unknown);
        let Ok(_entered) = self.connected.enter(identity.id(), address, CONNECTIONS_A_MACHINE) else { return Ok(()) };
        let peer = Peer { identity, key, public_key, address };
        let inside = peer.identity.role != Role::External;
        match context {
            "election" => self.election(peer, lines).await,
            "dispatcher" => self.dispatcher(peer, lines, write).await,
            "fetch" => self.give(&peer, lines, write).await,
            "renew" => self.renew(&peer, write).await,
            "leader" => self.say_who_leads(write).await,
            "ask" if inside => self.answer(lines, write).await,
            _ => Ok(()),
        }
    }

    async fn election(self, peer: Peer, mut lines: Lines<ReadHalf<TlsStream<TcpStream>>>) -> io::Result<()> {
        loop {
            let line = tokio::select! {
                // Checked before every line, because it may have been removed from the lab since it called.
                biased;
                () = self.registry.removed(&peer.identity, peer.key) => return Ok(()),
                line = tokio::time::timeout(QUIET, lines.line()) => line,
            };
            let Ok(Ok(Some(line))) = line else { break };
            let Ok(said) = Said::parse(&line) else { return Err(io::ErrorKind::InvalidData.into()) };
            let Identity { role, priority, .. } = peer.identity;
            let (id, key, address) = (peer.identity.id(), peer.key, peer.address);
            self.registry.heard(id, address);
            let from = Origin { id, key, role, priority, address, boot: said.boot };
            let frame = Frame { from, via: Channel::Stream, claim: said.claim, message: said.message };
            if self.election_ends.frames.send(frame).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Gives work to a dispatcher as long as this machine leads.
    async fn dispatcher<R, W>(self, peer: Peer, lines: Lines<R>, mut write: W) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let entered = self.dispatching.enter_once(peer.identity.id(), peer.address, DISPATCHERS_A_MACHINE);
        if let Err(turned) = entered {
            if let ConnectionRefused::Elsewhere(other) = turned {
                if self.registry.reports.is_due(peer.identity.id(), MachineReport::TwoPlaces) {
                    let (name, here) = (&peer.identity.name, peer.address);
                    tracing::warn!(name, %here, %other, "two machines work under one name: the second is refused");
                }
                write.write_all(b"bye a machine of this name works at another address\n").await?;
            }
            return write.shutdown().await;
        }
        let Some(leader) = self.node.leader().filter(LeaderHandle::leads) else {
            write.write_all(b"bye this machine does not lead\n").await?;
            return write.shutdown().await;
        };
        write.write_all(format!("leader {}\n", leader.epoch()).as_bytes()).await?;
        write.flush().await?;
        let (out, letters) = mpsc::unbounded_channel();
        let (heard, from) = mpsc::channel(64);
        let is_outside = peer.identity.role == Role::External;
        let outside = is_outside.then(|| Outside::new(self.node.samples().clone(), self.node.settings().children));
        let files = outside.clone().map(|outside| (outside, self.caller.store.folder().to_owned()));
        let talk = async {
            tokio::select! {
                end = hear((lines, self.caller.silence), heard, self.reports.clone(), files) => end,
                end = say(&mut write, letters) => end,
                // The dispatcher calls again, and finds whichever machine leads then.
                () = leader.ended() => write.shutdown().await,
                () = self.registry.removed(&peer.identity, peer.key) => write.shutdown().await,
                () = self.see(&peer) => Ok(()),
            }
        };
        // When the conversation is over, the session receives nothing more, and tells the leader that the machine is gone.
        tokio::join!(talk, attend(&peer.identity.name, Link { out, from, outside }, &leader)).0
    }

    /// Tells the database that a machine outside runs, because it cannot do this itself; for other machines this waits for ever.
    async fn see(&self, peer: &Peer) {
        if peer.identity.role != Role::External {
            return std::future::pending().await;
        }
        loop {
            let address = self.registry.registered_address(peer.identity.id()).unwrap_or(peer.address).to_string();
            let _ = self.node.records().lab_nodes().seen(&row(&peer.identity, peer.key, &address)).await;
            tokio::time::sleep(SEEN_EVERY).await;
        }
    }

    async fn give<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self,
        peer: &Peer,
        mut lines: Lines<R>,
        mut write: W,
    ) -> io::Result<()> {
        let Ok(Ok(Some(line))) = tokio::time::timeout(INTRODUCTION, lines.line()).await else { return Ok(()) };
        let Ok(Message::Fetch(hash)) = Message::parse(&line) else { return Err(io::ErrorKind::InvalidData.into()) };
        let Some(file) = self.sample(peer, hash).await else {
            write.write_all(format!("{}\n", Message::Missing(hash)).as_bytes()).await?;
            return write.shutdown().await;
        };
        let length = file.metadata()?.len();
        write.write_all(format!("{}\n", Message::Sample(hash, length)).as_bytes()).await?;
        tokio::io::copy(&mut tokio::fs::File::from_std(file), &mut write).await?;
        write.shutdown().await
    }

    /// A sample of this machine. A machine outside gets only the samples of its own attempts, but wherever in the lab they are.
    async fn sample(&self, peer: &Peer, hash: SampleHash) -> Option<File> {
        let outside = match peer.identity.role {
            Role::External => Some(self.size_of_given(peer, hash).await?),
            Role::Eligible | Role::Dispatcher => None,
        };
        let samples = self.node.samples().clone();
        let opened = tokio::task::spawn_blocking(move || samples.open_verified(hash)).await;
        match (opened, outside) {
            (Ok(Ok(file)), _) => Some(file),
            (_, Some(size)) => self.sample_of_others(hash, size).await,
            (_, None) => None,
        }
    }

    /// The length of a sample that a machine outside works on; None if it was not given that sample.
    async fn size_of_given(&self, peer: &Peer, hash: SampleHash) -> Option<u64> {
        let name = &peer.identity.name;
        let given = self.node.records().lab_nodes().works_on(name, &hash.to_string()).await.ok()?;
        if given.is_none() && self.registry.reports.is_due(peer.identity.id(), MachineReport::Curious) {
            tracing::warn!(name, %hash, "a machine outside wants a sample that it was not given");
        }
        given.and_then(|size| u64::try_from(size).ok())
    }

    async fn sample_of_others(&self, hash: SampleHash, size: u64) -> Option<File> {
        let path = passing::path(self.caller.store.folder()).ok()?;
        let fetched = fetch_from_any((hash, size), &path, None, (&self.registry, &self.caller)).await;
        let file = fetched.ok().and_then(|()| File::open(&path).ok());
        // It stays as long as it is open.
        let _ = std::fs::remove_file(&path);
        file
    }

    /// Another certificate for a machine that has one.
    async fn renew<W: AsyncWrite + Unpin>(self, peer: &Peer, mut write: W) -> io::Result<()> {
        let answer = match self.authority().await {
            Ok(authority) => {
                let active = self.caller.store.active();
                let welcome = Welcome::new(&authority, &active.credentials, &peer.identity, peer.public_key);
                welcome.and_then(|welcome| welcome.line())
            }
            Err(why) => Err(why),
        };
        let answer = answer.unwrap_or_else(|why| format!("bye {why}"));
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }

    async fn authority(&self) -> Result<Authority, String> {
        let seal = self.caller.store.active().credentials.seal;
        let seal = seal.ok_or("this machine cannot certify others: only eligible ones can")?;
        let issue = Issue { now: self.caller.store.clock.now(), life: self.life };
        Authority::open(self.node.records(), &seal, issue).await.map_err(|error| error.to_string())
    }

    /// Answers with the victory of this machine, or with the address of the leader.
    async fn say_who_leads<W: AsyncWrite + Unpin>(self, mut write: W) -> io::Result<()> {
        let ElectionEnds { boot, claim, post, .. } = &self.election_ends;
        let followed = match *post.borrow() {
            Post::Following(leader) => self.registry.address(leader),
            _ => None,
        };
        let answer = match (self.node.leader().filter(LeaderHandle::leads), followed) {
            (Some(leader), _) => {
                let round = Round { boot: *boot, number: 0 };
                let epoch = Some(Epoch(leader.epoch().cast_unsigned()));
                let identity = self.caller.store.identity().ok();
                let priority = identity.map_or(claim.priority, |(identity, _)| identity.priority);
                let claim = Claim { priority, ..*claim };
                Said { boot: *boot, claim, message: election::Message::Victory { round, epoch } }.to_string()
            }
            (None, Some(address)) => format!("leader {address}"),
            (None, None) => "bye nobody leads at the moment".into(),
        };
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }

    /// Answers one question.
    async fn answer<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self,
        mut lines: Lines<R>,
        mut write: W,
    ) -> io::Result<()> {
        let Ok(Ok(Some(question))) = tokio::time::timeout(INTRODUCTION, lines.line()).await else { return Ok(()) };
        let answer = answer::answer(&self.node, &question).await;
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }

    async fn join<R: AsyncRead + Unpin>(
        self,
        mut lines: Lines<R>,
        mut write: WriteHalf<TlsStream<TcpStream>>,
    ) -> io::Result<()> {
        let Ok(_place) = self.joining.try_acquire() else { return Ok(()) };
        let Ok(Ok(Some(line))) = tokio::time::timeout(INTRODUCTION, lines.line()).await else { return Ok(()) };
        let answer = match self.authority().await {
            Ok(authority) => {
                let active = self.caller.store.active();
                enrolment::admit(self.node.records(), &authority, &active.credentials, &line).await
            }
            Err(why) => Err(why),
        };
        let answer = answer.unwrap_or_else(|why| format!("bye {why}"));
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }
}

/// Reads from a dispatcher until it is silent. A report waits until there is memory for it. A file that was requested from it is stored on the way.
async fn hear<R: AsyncRead + Unpin>(
    (mut lines, silence): (Lines<R>, Duration),
    heard: mpsc::Sender<Received>,
    reports: Arc<Semaphore>,
    files: Option<(Outside, PathBuf)>,
) -> io::Result<()> {
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    while let Some(line) = tokio::time::timeout(silence, lines.line()).await.map_err(|_| silent())?? {
        let mut message = Message::parse(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let (mut payload, mut share) = (Vec::new(), None);
        if let (Message::Sample(hash, length), Some((outside, folder))) = (&message, &files) {
            let (hash, length) = (*hash, *length);
            if !outside.expects(hash, length) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if !passing::keep(&mut lines, (hash, length), &outside.samples, folder).await? {
                message = Message::Missing(hash);
            }
        } else if let Message::Result { length, .. } = message {
            let kib = u32::try_from(length / 1024 + 1).unwrap_or(u32::MAX);
            share = reports.clone().acquire_many_owned(kib).await.ok();
            let patience = silence + Duration::from_secs(length >> 16);
            payload = tokio::time::timeout(patience, lines.payload(length)).await.map_err(|_| silent())??;
        } else if message.payload() > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if matches!(message, Message::Pong(_)) {
            continue;
        }
        if heard.send(Received { envelope: Envelope { message, payload: payload.into() }, share }).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Sends the messages for a dispatcher, and asks now and then whether it is there.
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
