//! The messages of LDAP (RFC 4511) that a login needs: bind, search, StartTLS and unbind. Without I/O.

use super::ber::{BOOLEAN, ENUMERATED, Elements, INTEGER, OCTETS, SEQUENCE, element, length, nested, number};

const BIND: u8 = 0x60;
const BOUND: u8 = 0x61;
const UNBIND: u8 = 0x42;
const SEARCH: u8 = 0x63;
const ENTRY: u8 = 0x64;
const SEARCHED: u8 = 0x65;
const REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x77;
const EXTENDED_DONE: u8 = 0x78;
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// The longest answer that is accepted. A login asks only for a few attributes, so real ones are much shorter.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A search request.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) base: &'a str,
    /// Only the entry itself, not what is below it.
    pub(super) itself: bool,
    pub(super) filter: Vec<u8>,
    pub(super) attributes: [&'a str; 2],
    pub(super) most: u32,
    pub(super) seconds: u32,
}

/// An answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Entry(Entry),
    /// A part of the answer is on another server. It is not followed.
    Reference,
    /// The end of an answer, with its result code and the server's explanation.
    Done(u32, String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, Vec<String>)>,
}

impl Entry {
    pub(super) fn values(&self, attribute: &str) -> impl Iterator<Item = &str> {
        let same = move |(name, _): &&(String, Vec<String>)| name.eq_ignore_ascii_case(attribute);
        self.attributes.iter().filter(same).flat_map(|(_, values)| values.iter().map(String::as_str))
    }
}

fn message(id: u32, operation: Vec<u8>) -> Vec<u8> {
    nested(SEQUENCE, &[number(INTEGER, id), operation])
}

pub(super) fn bind(id: u32, name: &str, password: &str) -> Vec<u8> {
    let parts = [number(INTEGER, 3), element(OCTETS, name.as_bytes()), element(0x80, password.as_bytes())];
    message(id, nested(BIND, &parts))
}

pub(super) fn unbind(id: u32) -> Vec<u8> {
    message(id, element(UNBIND, &[]))
}

pub(super) fn start_tls(id: u32) -> Vec<u8> {
    message(id, nested(EXTENDED, &[element(0x80, START_TLS)]))
}

pub(super) fn search(id: u32, search: Search<'_>) -> Vec<u8> {
    let attributes: Vec<Vec<u8>> = search.attributes.iter().map(|name| element(OCTETS, name.as_bytes())).collect();
    let parts = [
        element(OCTETS, search.base.as_bytes()),
        number(ENUMERATED, if search.itself { 0 } else { 2 }),
        number(ENUMERATED, 0),
        number(INTEGER, search.most),
        number(INTEGER, search.seconds),
        element(BOOLEAN, &[0]),
        search.filter,
        nested(SEQUENCE, &attributes),
    ];
    message(id, nested(SEARCH, &parts))
}

/// The length of the message that begins with these octets; none if more octets are needed to tell, an error if it is not a message that we
/// read.
pub(super) fn whole(octets: &[u8]) -> Result<Option<usize>, ()> {
    match (octets.first(), length(octets)) {
        (Some(first), _) if *first != SEQUENCE => Err(()),
        (_, None) => Ok(None),
        (_, Some(Some((whole, _)))) if whole <= MESSAGE_BYTES_MAX => Ok(Some(whole)),
        _ => Err(()),
    }
}

/// The answer in a message, if it belongs to the request with this number.
pub(super) fn read(octets: &[u8], asked: u32) -> Option<Said> {
    let mut message = Elements(Elements(octets).expect(SEQUENCE)?);
    if message.number(INTEGER)? != asked {
        return None;
    }
    let (tag, content) = message.next()?;
    match tag {
        BOUND | SEARCHED | EXTENDED_DONE => result(content),
        ENTRY => entry(content).map(Said::Entry),
        REFERENCE => Some(Said::Reference),
        _ => None,
    }
}

fn result(content: &[u8]) -> Option<Said> {
    let mut parts = Elements(content);
    let code = parts.number(ENUMERATED)?;
    let _matched = parts.expect(OCTETS)?;
    let words = String::from_utf8_lossy(parts.expect(OCTETS)?);
    // The text goes into the log, so control characters are removed.
    let words = words.chars().filter(|letter| !letter.is_control()).take(200).collect();
    Some(Said::Done(code, words))
}

fn entry(content: &[u8]) -> Option<Entry> {
    let mut parts = Elements(content);
    let name = std::str::from_utf8(parts.expect(OCTETS)?).ok()?.to_owned();
    let mut list = Elements(parts.expect(SEQUENCE)?);
    let mut attributes = Vec::new();
    while !list.0.is_empty() {
        let mut attribute = Elements(list.expect(SEQUENCE)?);
        let kind = std::str::from_utf8(attribute.expect(OCTETS)?).ok()?.to_owned();
        let mut set = Elements(attribute.expect(0x31)?);
        let mut values = Vec::new();
        while !set.0.is_empty() {
            // Values that are not text, such as pictures, cannot be a name or a group.
            values.extend(std::str::from_utf8(set.expect(OCTETS)?).ok().map(str::to_owned));
        }
        attributes.push((kind, values));
    }
    Some(Entry { name, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_as_rfc_4511_writes_it() {
        let octets = bind(1, "cn=a", "pw");
        assert_eq!(octets, b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
        assert_eq!((whole(&octets), whole(&octets[..1])), (Ok(Some(octets.len())), Ok(None)));
        assert!(whole(b"HTTP/1.1").is_err() && whole(&[0x30, 0x84, 0x7f, 0, 0, 0]).is_err());
    }

    #[test]
    fn answers_are_read_and_other_things_are_not() {
        let done = nested(BOUND, &[number(ENUMERATED, 49), element(OCTETS, b""), element(OCTETS, b"no\n")]);
        assert_eq!(read(&message(7, done.clone()), 7), Some(Said::Done(49, "no".into())));
        assert_eq!(read(&message(7, done), 8), None, "another question");
        let values = nested(0x31, &[element(OCTETS, b"ann"), element(OCTETS, b"\xff")]);
        let list = nested(SEQUENCE, &[nested(SEQUENCE, &[element(OCTETS, b"UID"), values])]);
        let octets = message(2, nested(ENTRY, &[element(OCTETS, b"uid=ann"), list]));
        let Some(Said::Entry(entry)) = read(&octets, 2) else { panic!("an entry") };
        assert_eq!((entry.name.as_str(), entry.values("uid").collect::<Vec<_>>()), ("uid=ann", vec!["ann"]));
        for at in 0..octets.len() {
            assert_eq!(read(&octets[..at], 2), None, "cut off at {at}");
        }
    }
}
