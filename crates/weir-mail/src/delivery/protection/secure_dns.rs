//! Queries a resolver that checks signatures (DNSSEC), and reads whether it says that it did.
//!
//! The answer's AD bit is only as good as the resolver and the path to it: anybody who can change the answer can set the bit. So it counts
//! only from a resolver on this machine, or from one that the operator trusts. A question is sent by UDP, and again by TCP if the answer is
//! too long.

use crate::delivery::resolver::Dns;
use hickory_resolver::proto::op::{Edns, Message, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// The longest answer by UDP that comes in one piece nearly everywhere.
const UDP_MAX: u16 = 1_232;
/// How often a question is asked that is not answered.
const TRIES: usize = 3;

/// A resolver that we believe.
#[derive(Debug, Clone)]
pub struct SecureDns {
    server: SocketAddr,
    patience: Duration,
}

/// What it said.
#[derive(Debug)]
pub(super) struct SecureAnswer {
    /// The signatures are right.
    pub(super) secure: bool,
    /// Records of the type that was asked for.
    pub(super) records: Vec<RData>,
}

impl SecureDns {
    /// The resolver that questions go to, if it is to be believed: it is on this machine, or `trusted`.
    pub fn of(dns: &Dns, trusted: bool) -> Option<SecureDns> {
        let (server, patience) = match dns {
            Dns::Server(server, patience) => (*server, *patience),
            Dns::System => {
                let (config, _) = hickory_resolver::system_conf::read_system_conf().ok()?;
                let first = config.name_servers().first()?;
                let port = first.connections.first().map_or(53, |connection| connection.port);
                (SocketAddr::new(first.ip, port), Duration::from_secs(5))
            }
        };
        (trusted || server.ip().to_canonical().is_loopback()).then_some(SecureDns { server, patience })
    }

    /// Asks. A name that does not exist has no records; a resolver that fails, because the signatures are wrong for example, is an error.
    pub(super) async fn ask(&self, name: &Name, kind: RecordType) -> Result<SecureAnswer, String> {
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.metadata.authentic_data = true;
        question.add_query(Query::query(name.clone(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_MAX);
        question.edns = Some(edns);
        let answer = self.exchange(&question).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => {}
            code => return Err(format!("the name server answers {code} about {name}")),
        }
        let secure = answer.metadata.authentic_data;
        let records = answer.answers.into_iter().map(|record| record.data).filter(|data| data.record_type() == kind);
        Ok(SecureAnswer { secure, records: records.collect() })
    }

    async fn exchange(&self, question: &Message) -> Result<Message, String> {
        let packet = question.to_vec().map_err(|error| error.to_string())?;
        let mut last = String::new();
        for _ in 0..TRIES {
            match timeout(self.patience, self.by_udp(&packet, question)).await {
                Ok(Ok(answer)) if answer.metadata.truncation => {
                    let asked = timeout(self.patience, self.by_tcp(&packet, question)).await;
                    return asked.map_err(|_| self.silent())?.map_err(|error| error.to_string());
                }
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = self.silent(),
            }
        }
        Err(last)
    }

    async fn by_udp(&self, packet: &[u8], question: &Message) -> std::io::Result<Message> {
        let here: SocketAddr = match self.server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(here).await?;
        socket.connect(self.server).await?;
        socket.send(packet).await?;
        let mut buffer = vec![0; 4_096];
        loop {
            let length = socket.recv(&mut buffer).await?;
            let read = Message::from_vec(buffer.get(..length).unwrap_or_default());
            // What does not answer this question is somebody else's.
            if let Some(answer) = read.ok().filter(|answer| answers(answer, question)) {
                return Ok(answer);
            }
        }
    }

    async fn by_tcp(&self, packet: &[u8], question: &Message) -> std::io::Result<Message> {
        let mut stream = TcpStream::connect(self.server).await?;
        let length = u16::try_from(packet.len()).map_err(std::io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), packet].concat()).await?;
        let length = stream.read_u16().await?;
        let mut buffer = vec![0; usize::from(length)];
        stream.read_exact(&mut buffer).await?;
        let answer = Message::from_vec(&buffer).map_err(std::io::Error::other)?;
        if answers(&answer, question) {
            Ok(answer)
        } else {
            Err(std::io::Error::other("an answer to another question"))
        }
    }

    fn silent(&self) -> String {
        format!("the name server {} does not answer", self.server)
    }
}

fn answers(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id && answer.queries == question.queries
}
