//! Addresses as past mail writes them, brought to one form.

/// Longer is no address: RFC 5321 allows 64 + 1 + 255 bytes.
const LENGTH_MAX: usize = 320;

/// The form in which two spellings of one address are equal; nothing if the text is no address.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let text = without_route(text.trim());
    let strange = |c: char| c.is_control() || (c.is_whitespace() && !text.starts_with('"'));
    if text.is_empty() || text.len() > LENGTH_MAX || text.contains(strange) {
        return None;
    }
    match text.rsplit_once('@') {
        Some((local, domain)) if local.is_empty() || domain.is_empty() => None,
        Some((local, domain)) => Some(format!("{local}@{}", domain.trim_end_matches('.').to_lowercase())),
        None => Some(text.into()),
    }
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
        assert_eq!(canonical(" Ann@Example.ORG. ").as_deref(), Some("Ann@example.org"));
        assert_eq!(canonical("@r.org,@s.org:ann@x.org").as_deref(), Some("ann@x.org"));
        assert_eq!(canonical("\"a b\"@X.org").as_deref(), Some("\"a b\"@x.org"));
        assert_eq!(canonical("root").as_deref(), Some("root"));
        for text in ["", "@", "@x.org", "ann@", "a b@x.org", "a\0@x.org", &"x".repeat(400)] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
