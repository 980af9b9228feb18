//! Datagrams of the election: `weir-lab 1 NAME SEQUENCE LINE CODE`, at most 512 bytes, authenticated, and only a hint.

use super::identity::{hex, unhex};
use crate::wire::election::Said;
use crate::wire::is_name;
use ring::hmac;

/// The longest datagram.
pub(crate) const DATAGRAM_MAX: usize = 512;
const BEGIN: &str = "weir-lab 1 ";

/// The secret that all machines inside a lab share.
#[derive(Debug, Clone)]
pub(crate) struct BeatKey(hmac::Key);

/// An authentic datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) name: String,
    pub(crate) sequence: u64,
    pub(crate) said: Said,
}

impl BeatKey {
    pub(crate) fn new(secret: &[u8; 32]) -> BeatKey {
        BeatKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(crate) fn write(&self, datagram: &Datagram) -> String {
        let text = format!("{BEGIN}{} {} {}", datagram.name, datagram.sequence, datagram.said);
        let code = hex(hmac::sign(&self.0, text.as_bytes()).as_ref());
        format!("{text} {code}")
    }

    /// None if it is not authentic or cannot be parsed.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Datagram> {
        if bytes.len() > DATAGRAM_MAX {
            return None;
        }
        let (text, code) = std::str::from_utf8(bytes).ok()?.rsplit_once(' ')?;
        hmac::verify(&self.0, text.as_bytes(), &unhex(code)?).ok()?;
        let mut parts = text.strip_prefix(BEGIN)?.splitn(3, ' ');
        let (name, sequence, line) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let said = Said::parse(line).ok()?;
        is_name(name).then(|| Datagram { name: name.to_owned(), sequence, said })
    }
}

/// Whether this can be parsed as a datagram of a lab with a secret that nobody could know.
pub(crate) fn read_for_fuzz(bytes: &[u8]) -> bool {
    BeatKey::new(&[7; 32]).read(bytes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::election::{Boot, Claim, Epoch, Message, NodeId, Priority, ProcessingIndex};

    #[test]
    fn only_what_was_signed_and_not_changed_is_read() {
        let claim = Claim { priority: Priority(255), index: ProcessingIndex(u16::MAX), stands: false };
        let message = Message::Resigned { epoch: Some(Epoch(u64::MAX)), successor: Some(NodeId(u64::MAX)) };
        let said = Said { boot: Boot(u64::MAX), claim, message };
        let datagram = Datagram { name: "n".repeat(64), sequence: u64::MAX, said };
        let key = BeatKey::new(&[1; 32]);
        let text = key.write(&datagram);
        assert!(text.len() <= DATAGRAM_MAX, "{}", text.len());
        assert_eq!(key.read(text.as_bytes()), Some(datagram));
        assert_eq!(BeatKey::new(&[2; 32]).read(text.as_bytes()), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(key.read(&changed), None, "byte {at}");
            assert_eq!(key.read(&text.as_bytes()[..at]), None);
        }
    }
}
