//! Converts addresses from past mail to the form of [`address::canonical`].
//!
//! Old and local mail knows two spellings that a trace file does not: an address with a route before it, and a bare
//! name for a user of the same machine.

use weir_core::address;

/// Longer is no name: RFC 5321 allows an address 64 + 1 + 255 bytes.
const LENGTH_MAX: usize = 320;

/// The form in which two spellings of one address are equal; nothing if the text is no address.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let text = without_route(text.trim());
    if text.len() > LENGTH_MAX {
        return None;
    }
    if text.contains('@') { address::canonical(text).ok() } else { name(text).filter(|name| !name.contains(' ')) }
}

/// The name of a user, if it can be one.
pub(crate) fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let strange = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    (!text.is_empty() && text.len() <= LENGTH_MAX && !text.contains(strange)).then(|| text.into())
}

/// `@relay.example,@b:ann@example.org` is ann@example.org by way of two hosts, as was done long ago.
fn without_route(text: &str) -> &str {
    if text.starts_with('@') { text.split_once(':').map_or(text, |(_, rest)| rest) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_meet_and_nonsense_is_refused() {
        assert_eq!(canonical(" Ann+news@Example.ORG. ").as_deref(), Some("Ann@example.org"));
        assert_eq!(canonical("@r.org,@s.org:ann@x.org").as_deref(), Some("ann@x.org"));
        assert_eq!(canonical("\"a b\"@X.org").as_deref(), Some("\"a b\"@x.org"));
        assert_eq!(canonical("root").as_deref(), Some("root"));
        for text in ["", "@", "@x.org", "ann@", "a b", "a b@x.org", "a\0@x.org", &"x".repeat(400)] {
            assert_eq!(canonical(text), None, "{text}");
        }
        assert_eq!(name(" Ann B ").as_deref(), Some("Ann B"));
        assert_eq!(name("a\u{1b}[2J"), None);
    }
}
