//! A private name server: it answers from a table, over UDP, and counts what it was asked.
//!
//! A name that is not in the table does not exist. Only records of the requested type are returned, so a name that has only other records
//! exists, with an empty answer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A name server on a port of its own, until the process ends.
#[derive(Debug, Clone)]
pub struct NameServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// What is known about a name.
#[derive(Debug, Clone)]
pub enum Record {
    /// Text, cut into strings of 255 octets.
    Txt(String),
    /// An address.
    Address(IpAddr),
    /// A mail exchanger with its preference.
    Mx(u16, String),
    /// A name for an address.
    Ptr(String),
    /// Text in strings as they are given.
    Strings(Vec<String>),
    /// Another name that this name stands for.
    Alias(String),
    /// SERVFAIL for everything that the other records do not answer.
    Fails,
}

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    /// It answers from the table.
    #[default]
    Well,
    /// It answers from the table after this time.
    Slow(Duration),
    /// It does not answer.
    Silent,
    /// It answers everything with SERVFAIL.
    Failing,
}

#[derive(Debug, Default)]
struct State {
    table: BTreeMap<String, Vec<Record>>,
    moods: BTreeMap<String, Mood>,
    mood: Mood,
    asked: Vec<String>,
}

impl NameServer {
    /// Starts one with an empty table.
    pub fn start() -> NameServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = NameServer { address: socket.local_addr().expect("an address"), state: Arc::default() };
        let state = Arc::clone(&server.state);
        std::thread::spawn(move || serve(&socket, &state));
        server
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a record.
    #[must_use]
    pub fn with(self, name: &str, record: Record) -> NameServer {
        self.state().table.entry(name.to_lowercase()).or_default().push(record);
        self
    }

    /// Adds text.
    #[must_use]
    pub fn txt(self, name: &str, text: &str) -> NameServer {
        self.with(name, Record::Txt(text.to_owned()))
    }

    /// Adds an address.
    #[must_use]
    pub fn address_of(self, name: &str, address: &str) -> NameServer {
        self.with(name, Record::Address(address.parse().expect("an address")))
    }

    /// Changes how it behaves.
    pub fn be(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// Changes how it behaves for one name.
    pub fn be_about(&self, name: &str, mood: Mood) {
        self.state().moods.insert(name.to_lowercase(), mood);
    }

    /// How often it was asked about a name.
    pub fn asked(&self, name: &str) -> usize {
        self.state().asked.iter().filter(|asked| *asked == name).count()
    }

    /// How often it was asked at all.
    pub fn questions(&self) -> usize {
        self.state().asked.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(socket: &UdpSocket, state: &Mutex<State>) {
    let mut packet = [0; 1500];
    while let Ok((length, client)) = socket.recv_from(&mut packet) {
        let Some(question) = packet.get(..length).and_then(Question::parse) else { continue };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.push(question.name.clone());
        let mood = state.moods.get(&question.name).copied().unwrap_or(state.mood);
        let reply = match mood {
            Mood::Silent => continue,
            Mood::Failing => question.reply(SERVFAIL, &[]),
            Mood::Well | Mood::Slow(_) => match state.table.get(&question.name) {
                None => question.reply(NXDOMAIN, &[]),
                Some(records) => question.reply(question.code_for(records), records),
            },
        };
        let Mood::Slow(wait) = mood else {
            let _ = socket.send_to(&reply, client);
            continue;
        };
        let socket = socket.try_clone().expect("the same socket");
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            let _ = socket.send_to(&reply, client);
        });
    }
}

const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

struct Question<'a> {
    id: &'a [u8],
    /// The question as it came, to be repeated in the answer.
    section: &'a [u8],
    name: String,
    kind: u16,
}

impl Question<'_> {
    fn parse(packet: &[u8]) -> Option<Question<'_>> {
        let (mut at, mut labels) = (12, Vec::new());
        loop {
            let length = usize::from(*packet.get(at)?);
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(packet.get(at + 1..at + 1 + length)?).to_lowercase());
            at += 1 + length;
        }
        let kind = u16::from_be_bytes([*packet.get(at + 1)?, *packet.get(at + 2)?]);
        Some(Question { id: packet.get(..2)?, section: packet.get(12..at + 5)?, name: labels.join("."), kind })
    }

    fn code_for(&self, records: &[Record]) -> u8 {
        let answered = records.iter().any(|record| record.data(self.kind).is_some());
        let fails = records.iter().any(|record| matches!(record, Record::Fails));
        if fails && !answered { SERVFAIL } else { 0 }
    }

    fn reply(&self, code: u8, records: &[Record]) -> Vec<u8> {
        let answers: Vec<(u16, Vec<u8>)> = records.iter().filter_map(|record| record.data(self.kind)).collect();
        let mut out = self.id.to_vec();
        // An authoritative answer; recursion was requested and is available.
        out.extend_from_slice(&[0x85, 0x80 | code, 0, 1]);
        out.extend_from_slice(&(answers.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0]);
        out.extend_from_slice(self.section);
        for (kind, data) in answers {
            out.extend_from_slice(&[0xc0, 12]);
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(&data);
        }
        out
    }
}

const ALIAS: u16 = 5;

impl Record {
    /// The data that answers a question of this type, and its own type.
    fn data(&self, kind: u16) -> Option<(u16, Vec<u8>)> {
        let data = match (self, kind) {
            (Record::Address(IpAddr::V4(address)), 1) => address.octets().to_vec(),
            (Record::Address(IpAddr::V6(address)), 28) => address.octets().to_vec(),
            (Record::Ptr(name), 12) => wire_name(name),
            (Record::Mx(preference, host), 15) => [&preference.to_be_bytes()[..], &wire_name(host)].concat(),
            (Record::Txt(text), 16) => wire_strings(text.as_bytes().chunks(255)),
            (Record::Strings(strings), 16) => wire_strings(strings.iter().map(String::as_bytes)),
            (Record::Alias(name), _) => return Some((ALIAS, wire_name(name))),
            _ => return None,
        };
        Some((kind, data))
    }
}

fn wire_strings<'a>(strings: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out: Vec<u8> =
        strings.flat_map(|part| std::iter::once(part.len() as u8).chain(part.iter().copied())).collect();
    if out.is_empty() {
        out.push(0);
    }
    out
}

fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut out: Vec<u8> = labels.flat_map(|label| std::iter::once(label.len() as u8).chain(label.bytes())).collect();
    out.push(0);
    out
}
