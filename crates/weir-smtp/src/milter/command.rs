//! The commands that a mail server sends to a milter filter.

use super::Garbled;
use super::negotiation::Offer;
use std::net::IpAddr;

/// The most macros of one packet; servers send about ten.
const MACROS_MAX: usize = 200;
/// The most words in MAIL or RCPT: the address and its parameters.
const WORDS_MAX: usize = 40;

/// What a mail server says or asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MilterCommand {
    /// What it can do. This comes before everything else.
    Negotiate(Offer),
    /// Values for the command that follows.
    Macros {
        /// The letter of that command.
        of: u8,
        /// Names and values.
        values: Vec<(String, String)>,
    },
    /// A client has connected.
    Connect {
        /// Its name.
        name: String,
        /// Its address; none for a client on the mail server's own machine.
        address: Option<IpAddr>,
    },
    /// HELO or EHLO.
    Helo(String),
    /// MAIL: the address in angle brackets, and its parameters.
    Mail(Vec<String>),
    /// RCPT, in the same form.
    Recipient(Vec<String>),
    /// DATA.
    Data,
    /// A field of the header.
    Header {
        /// Its name.
        name: Vec<u8>,
        /// The text after the colon.
        value: Vec<u8>,
    },
    /// The header is complete.
    EndOfHeader,
    /// A piece of the body.
    Body(Vec<u8>),
    /// The message is complete. Contains the last piece of its body.
    EndOfMessage(Vec<u8>),
    /// The message, if there is one, will not be sent.
    Abort,
    /// The connection ends.
    Quit,
    /// Another client's session follows on this connection.
    QuitNewConnection,
    /// An SMTP command that the server does not know.
    Unknown(String),
}

/// How far a conversation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has been agreed on yet.
    Start,
    /// Between messages.
    Session,
    /// After MAIL.
    Envelope,
    /// The message is being transmitted.
    Content,
}

impl MilterCommand {
    /// Parses a packet.
    pub(super) fn read(letter: u8, data: Vec<u8>) -> Result<MilterCommand, Garbled> {
        let bad = || Garbled::Data(char::from(letter));
        Ok(match letter {
            b'O' => MilterCommand::Negotiate(Offer::read(&data).ok_or_else(bad)?),
            b'D' => macros(&data)?,
            b'C' => connect(&data).ok_or_else(bad)?,
            b'H' => MilterCommand::Helo(text(one(&data).ok_or_else(bad)?)),
            b'M' => MilterCommand::Mail(words(&data)?.ok_or_else(bad)?),
            b'R' => MilterCommand::Recipient(words(&data)?.ok_or_else(bad)?),
            b'T' => MilterCommand::Data,
            b'L' => header(&data).ok_or_else(bad)?,
            b'N' => MilterCommand::EndOfHeader,
            b'B' => MilterCommand::Body(data),
            b'E' => MilterCommand::EndOfMessage(data),
            b'A' => MilterCommand::Abort,
            b'Q' => MilterCommand::Quit,
            b'K' => MilterCommand::QuitNewConnection,
            b'U' => MilterCommand::Unknown(text(one(&data).ok_or_else(bad)?)),
            other => return Err(Garbled::Unknown(char::from(other))),
        })
    }

    /// The letter of its packet.
    pub fn letter(&self) -> u8 {
        match self {
            MilterCommand::Negotiate(_) => b'O',
            MilterCommand::Macros { .. } => b'D',
            MilterCommand::Connect { .. } => b'C',
            MilterCommand::Helo(_) => b'H',
            MilterCommand::Mail(_) => b'M',
            MilterCommand::Recipient(_) => b'R',
            MilterCommand::Data => b'T',
            MilterCommand::Header { .. } => b'L',
            MilterCommand::EndOfHeader => b'N',
            MilterCommand::Body(_) => b'B',
            MilterCommand::EndOfMessage(_) => b'E',
            MilterCommand::Abort => b'A',
            MilterCommand::Quit => b'Q',
            MilterCommand::QuitNewConnection => b'K',
            MilterCommand::Unknown(_) => b'U',
        }
    }
}

/// The texts in a packet, each of which ends with a NUL.
fn texts(data: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (last, texts) = data.split_last()?;
    (*last == 0).then(|| texts.split(|byte| *byte == 0))
}

fn one(data: &[u8]) -> Option<&[u8]> {
    texts(data)?.next()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words(data: &[u8]) -> Result<Option<Vec<String>>, Garbled> {
    let Some(words) = texts(data) else { return Ok(None) };
    let words: Vec<String> = words.take(WORDS_MAX + 1).map(text).collect();
    if words.len() > WORDS_MAX { Err(Garbled::Many("parameters")) } else { Ok(Some(words)) }
}

fn macros(data: &[u8]) -> Result<MilterCommand, Garbled> {
    let (of, rest) = data.split_first().ok_or(Garbled::Data('D'))?;
    let mut values = Vec::new();
    if !rest.is_empty() {
        let mut texts = texts(rest).ok_or(Garbled::Data('D'))?;
        while let Some(name) = texts.next() {
            let value = texts.next().ok_or(Garbled::Data('D'))?;
            if values.len() == MACROS_MAX {
                return Err(Garbled::Many("macros"));
            }
            values.push((text(name), text(value)));
        }
    }
    Ok(MilterCommand::Macros { of: *of, values })
}

fn connect(data: &[u8]) -> Option<MilterCommand> {
    let end = memchr::memchr(0, data)?;
    let (name, rest) = (text(&data[..end]), &data[end + 1..]);
    let (family, rest) = rest.split_first()?;
    let address = match family {
        b'4' | b'6' => {
            // The port comes first; it is skipped.
            let address = text(one(rest.get(2..)?)?);
            let address = address.strip_prefix("IPv6:").unwrap_or(&address);
            Some(address.parse::<IpAddr>().ok()?.to_canonical())
        }
        b'U' | b'L' => None,
        _ => return None,
    };
    Some(MilterCommand::Connect { name, address })
}

fn header(data: &[u8]) -> Option<MilterCommand> {
    let mut texts = texts(data)?;
    let (name, value) = (texts.next()?, texts.next()?);
    texts.next().is_none().then(|| MilterCommand::Header { name: name.to_vec(), value: value.to_vec() })
}
