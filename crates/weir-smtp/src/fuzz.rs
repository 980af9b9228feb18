//! Entry points for fuzzers: everything that reads bytes from outside.
//!
//! Each takes arbitrary bytes and panics if a promise of the code that it calls is broken: the bounds, and that the result does not depend
//! on how the bytes are cut. tests/hostile/fuzz.rs runs all of them on stable with fixed seeds, `fuzz/` with coverage.

pub mod doors;
pub mod session;

use crate::body::{BodyReader, Scan};
use crate::client::capabilities::Capabilities;
use crate::client::reply::{LINE_MAX, Reply, ReplyError, ReplyParser, TEXT_KEPT};
use crate::client::stuffing::Stuffing;
use crate::outcome::TEXT_MAX;

/// Reads replies of a server as our client does. The first octet says how they are cut.
pub fn reply(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let whole = replies(data, usize::MAX);
    assert_eq!(whole, replies(data, usize::from(*cut) + 1), "the cuts changed what was understood");
    for reply in &whole.0 {
        assert!((200..600).contains(&reply.code));
        assert!(reply.text.len() <= TEXT_KEPT, "{} octets kept", reply.text.len());
        let outcome = reply.outcome(&"peer".into());
        assert!(outcome.text.len() <= TEXT_MAX && !outcome.text.chars().any(char::is_control));
        let _ = Capabilities::parse(reply);
    }
}

/// Parses as a connection does: with a buffer that grows by `size` octets at a time and loses what the parser took.
fn replies(data: &[u8], size: usize) -> (Vec<Reply>, Option<ReplyError>) {
    let (mut parser, mut found, mut buffer) = (ReplyParser::default(), Vec::new(), Vec::new());
    for piece in data.chunks(size) {
        buffer.extend_from_slice(piece);
        loop {
            match parser.take(&buffer) {
                Ok((used, reply)) => {
                    buffer.drain(..used);
                    let Some(reply) = reply else { break };
                    found.push(reply);
                }
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(buffer.len() < LINE_MAX, "{} octets wait", buffer.len());
    }
    (found, None)
}

/// Makes the forms of header and body that DKIM signs.
pub fn dkim(data: &[u8]) {
    let Some((cut, message)) = data.split_first() else { return };
    let (domain, body) = crate::dkim::read_for_fuzz(message, std::iter::empty());
    let sizes = std::iter::repeat_n(usize::from(*cut) + 1, message.len());
    assert_eq!((domain.clone(), body.clone()), crate::dkim::read_for_fuzz(message, sizes), "the cuts changed it");
    assert!(domain.is_none_or(|domain| domain.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))));
    let again = [b"\r\n", body.as_slice()].concat();
    assert_eq!(crate::dkim::read_for_fuzz(&again, std::iter::empty()).1, body, "the form of a form is the form");
}

/// However a body is cut when it is sent, the next server must receive it as one message: no smuggling.
pub fn relay(data: &[u8]) {
    let Some((cut, body)) = data.split_first() else { return };
    let (mut stuffing, mut sent) = (Stuffing::default(), Vec::new());
    body.chunks(usize::from(*cut) + 1).for_each(|piece| stuffing.stuff(piece, &mut sent));
    stuffing.finish(&mut sent);
    let (mut chunking, mut plain) = (Stuffing::default(), Vec::new());
    chunking.normalise(body, &mut plain);
    chunking.end_line(&mut plain);
    let (mut reader, mut input, mut text) = (BodyReader::data(0, u64::MAX), sent.as_slice(), Vec::new());
    loop {
        match reader.scan(&mut input) {
            Scan::Piece(piece) => text.extend_from_slice(piece),
            Scan::End => break,
            Scan::More => panic!("the end is missing"),
        }
    }
    assert!(input.is_empty(), "something stands behind the end");
    // We refuse a NUL when it comes in. Everything else that goes out must have no fault.
    if !body.contains(&0) {
        assert_eq!((reader.fault(), text), (None, plain));
    }
}
