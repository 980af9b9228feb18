//! For fuzzing: messages of a directory's server, filters, and logins.

use super::ber::Elements;
use super::filter::SearchFilter;
use super::message::{self, MESSAGE_BYTES_MAX, Said};

/// Reads the octets as a message of a server. What follows a message must not change its meaning, and a truncated message must have none.
pub(crate) fn message(octets: &[u8]) {
    let Ok(Some(whole)) = message::whole(octets) else { return };
    assert!(whole <= MESSAGE_BYTES_MAX, "nobody waits for so much");
    let Some(first) = octets.get(..whole) else {
        assert!((0..3).all(|asked| message::read(octets, asked).is_none()), "a message that is cut off says nothing");
        return;
    };
    for asked in 0..3 {
        let said = message::read(first, asked);
        assert_eq!(said, message::read(octets, asked), "what lies behind a message is not part of it");
        if let Some(Said::Done(_, words)) = &said {
            assert!(!words.chars().any(char::is_control), "it goes into the log");
        }
        assert!(
            said.is_none() || message::read(&first[..whole - 1], asked).is_none(),
            "a part of a message says nothing"
        );
    }
}

/// Reads a line with a filter, and a login after it. A login may only become the value of a comparison: with any login, the query must have
/// the same shape.
pub(crate) fn filter(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    let (filter, login) = text.split_once('\n').unwrap_or((&text, "*)(uid=*"));
    let Ok(filter) = SearchFilter::read(filter) else { return };
    let shape = |login: &str| {
        let mut shape = Vec::new();
        assert!(is_shaped(&filter.octets(login, "cn=entry"), &mut shape), "every octet belongs to an element");
        shape
    };
    assert_eq!(shape(login), shape("ann"), "a login changes nothing but a value");
}

/// Appends the tags of all elements from the outside in, and how deep each lies. Returns false if the octets do not consist of whole
/// elements.
fn is_shaped(octets: &[u8], shape: &mut Vec<u8>) -> bool {
    let mut elements = Elements(octets);
    while let Some((tag, content)) = elements.next() {
        shape.push(tag);
        // A bit of the tag says that the element consists of other elements.
        if tag & 0x20 != 0 && !is_shaped(content, shape) {
            return false;
        }
        shape.push(0);
    }
    elements.0.is_empty()
}
