//! The entry for fuzzers: what machines of a lab read from each other.
//!
//! Takes arbitrary bytes and panics if a promise is broken: the messages are the same however the bytes are cut into pieces, each message
//! reads back as it is written, and no unsigned datagram is accepted.

use crate::cluster::datagram;
use crate::wire::election::Said;
use crate::wire::{Inbox, Message};

/// A connection and a datagram: the first octet says how the connection is cut.
pub fn wire(data: &[u8]) {
    assert!(!datagram::read_for_fuzz(data), "a datagram that nobody signed was read");
    let Some((cut, data)) = data.split_first() else { return };
    let whole = lines(data, usize::MAX);
    assert_eq!(whole, lines(data, usize::from(*cut) + 1), "the cuts changed what was understood");
    for line in &whole {
        if let Ok(message) = Message::parse(line) {
            let again = Message::parse(&message.to_string());
            assert_eq!(again.as_ref(), Ok(&message), "{line:?} is written as {message}");
        }
        if let Ok(said) = Said::parse(line) {
            assert_eq!(Said::parse(&said.to_string()), Ok(said), "{line:?} is written as {said}");
        }
    }
}

/// The lines of a connection that is read in pieces of this size, without what follows those that announce something.
fn lines(data: &[u8], size: usize) -> Vec<String> {
    let (mut inbox, mut found, mut left) = (Inbox::default(), Vec::new(), 0);
    for piece in data.chunks(size.min(data.len().max(1))) {
        inbox.extend(piece);
        loop {
            left -= inbox.payload(left).len() as u64;
            if left > 0 {
                break;
            }
            match inbox.line() {
                Ok(Some(line)) => {
                    left = Message::parse(line).map_or(0, |message| message.payload());
                    found.push(line.to_owned());
                }
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}
