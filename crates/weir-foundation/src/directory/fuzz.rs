//! For fuzzing: what a server of the directory sends, and filters and logins that are to be asked for.

use super::ber::Elements;
use super::filter::Filter;
use super::message::{self, MESSAGE_BYTES_MAX, Said};

/// Reads the octets as a message of a server. What lies behind a message must not change what it says, and a part of it must say nothing.
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

/// A line with a filter, and a login behind it. A login is only ever the value of a comparison: whatever it is, the question has the same shape.
pub(crate) fn filter(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    let (filter, login) = text.split_once('\n').unwrap_or((&text, "*)(uid=*"));
    let Ok(filter) = Filter::read(filter) else { return };
    let shape = |login: &str| {
        let mut shape = Vec::new();
        assert!(is_shaped(&filter.octets(login, "cn=entry"), &mut shape), "every octet belongs to an element");
        shape
    };
    assert_eq!(shape(login), shape("ann"), "a login changes nothing but a value");
}

/// Appends the tags of all elements from the outside in, and how deep each lies; false if something is no element.
fn is_shaped(octets: &[u8], shape: &mut Vec<u8>) -> bool {
    let mut elements = Elements(octets);
    while let Some((tag, content)) = elements.next() {
        shape.push(tag);
        // What is made of others says so in its tag.
        if tag & 0x20 != 0 && !is_shaped(content, shape) {
            return false;
        }
        shape.push(0);
    }
    elements.0.is_empty()
}
