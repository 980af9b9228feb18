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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::connection::Caller;
    use crate::cluster::enrolment::{self, found};
    use crate::intake::IntakeSettings;
    use crate::node::NodeSettings;
    use std::net::Ipv4Addr;
    use tokio::io::AsyncReadExt;
    use weir_core::election::{Boot, Priority};
    use weir_core::runq;
    use weir_store::records::Records;
    use weir_store::samples::Samples;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const BEAT: &str = "7 3 5 stands leader alive 7.1 -\n";

    struct Lab {
        home: tempfile::TempDir,
        samples: Samples,
        records: Records,
        credentials: Credentials,
        frames: mpsc::Receiver<Frame>,
        at: std::net::SocketAddr,
    }

    /// A lab with one machine, n1, whose server runs on this machine.
    async fn lab() -> Lab {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        let settings = NodeSettings {
            node: "n1".into(),
            analysis: home.path().join("analysis"),
            intake: IntakeSettings::default(),
            scheduling: runq::Settings::default(),
            plugins: Vec::new().into(),
            keep: None,
            depth_max: 4,
            children: crate::wire::ChildLimits::default(),
        };
        let node = Node::new(settings, records.clone(), samples.clone());
        let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let credentials = found(&records, &first, HERE).await.unwrap();
        let (heard, frames) = mpsc::channel(16);
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = Server::new(node, Arc::new(credentials.clone()), Registry::new(records.clone()), heard);
        tokio::spawn(server.run(listener, credentials.server().unwrap()));
        Lab { home, samples, records, credentials, frames, at }
    }

    impl Lab {
        fn caller(&self, credentials: &Credentials) -> Caller {
            Caller { tls: credentials.client().unwrap(), from: HERE, port: self.at.port() }
        }

        /// What is answered to this, until the end.
        async fn answer(&self, credentials: &Credentials, context: &str, text: &[u8]) -> String {
            let call = self.caller(credentials).call(HERE.into(), context, Duration::from_secs(5)).await;
            let Ok(mut stream) = call else { return String::new() };
            let _ = stream.write_all(text).await;
            let _ = stream.shutdown().await;
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer).await;
            answer
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_registered_machines_are_heard_and_what_does_not_read_ends_the_connection() {
        let mut lab = lab().await;
        // A machine of another lab, one of this lab's authority that is not registered so, and one that talks nonsense.
        let other = Records::sqlite(&lab.home.path().join("other.db")).await.unwrap();
        let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let stranger = found(&other, &first, HERE).await.unwrap();
        let authority = Authority::open(&lab.records, &lab.credentials.seal.unwrap()).await.unwrap();
        let thief = Identity::new("n1", Role::Eligible, Priority(0)).unwrap();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let public = rcgen::PublicKeyData::der_bytes(&key).try_into().unwrap();
        let certificate = authority.certify(&thief, public).unwrap();
        let thief = Credentials { key: key.serialize_pem(), certificate, ..lab.credentials.clone() };
        for credentials in [&stranger, &thief] {
            assert_eq!(lab.answer(credentials, "election", BEAT.as_bytes()).await, "");
        }
        for nonsense in [&b"\xff\n"[..], b"leader alive\n", &[b'x'; 70_000], b"7 3 5 stands leader alive 7.1 - -\n"] {
            assert_eq!(lab.answer(&lab.credentials, "election", nonsense).await, "");
        }
        assert_eq!(lab.answer(&lab.credentials, "kingdom", BEAT.as_bytes()).await, "");
        assert!(lab.frames.try_recv().is_err());
        lab.answer(&lab.credentials, "election", format!("{BEAT}{BEAT}").as_bytes()).await;
        for _ in 0..2 {
            let frame = lab.frames.recv().await.unwrap();
            assert_eq!((frame.from.priority, frame.from.boot, frame.via), (Priority(3), Boot(7), Channel::Stream));
        }
        assert_eq!(lab.answer(&lab.credentials, "dispatcher", b"").await, "bye this machine does not lead\n");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn samples_are_given_and_newcomers_admitted_by_a_token_only() {
        let lab = lab().await;
        let hash = lab.samples.put(&mut &b"sample"[..], 100).unwrap().hash;
        let wanted = format!("{}\n", Message::Fetch(hash));
        let given = lab.answer(&lab.credentials, "fetch", wanted.as_bytes()).await;
        assert_eq!(given, format!("sample {hash} 6\nsample"));
        std::fs::remove_file(lab.samples.path(hash)).unwrap();
        assert_eq!(lab.answer(&lab.credentials, "fetch", wanted.as_bytes()).await, format!("missing {hash}\n"));

        let may = (Role::Dispatcher, Priority(9));
        let token =
            enrolment::invite(&lab.records, &lab.credentials, lab.at, may, Duration::from_secs(60)).await.unwrap();
        let other = token.replace(&lab.credentials.fingerprint().unwrap(), &"ab".repeat(32));
        let refused = enrolment::join(&other, "n2", HERE).await.unwrap_err();
        assert!(matches!(refused, enrolment::JoinError::Call(..)), "another lab gets no secret: {refused}");
        assert!(matches!(enrolment::join("nonsense", "n2", HERE).await, Err(enrolment::JoinError::Token)));
        let second = enrolment::join(&token, "n2", HERE).await.unwrap();
        assert_eq!((second.identity().unwrap().0.role, second.seal), (Role::Dispatcher, None));
        assert!(matches!(enrolment::join(&token, "n3", HERE).await, Err(enrolment::JoinError::Refused(_))));
        // Strangers make the database be read once a second at most.
        let answer = loop {
            let answer = lab.answer(&second, "fetch", wanted.as_bytes()).await;
            if !answer.is_empty() {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(answer, format!("missing {hash}\n"), "it is in");
    }
}
