//! Identifiers that are computed from content: UUIDs of version 5 (RFC 9562, section 5.5).

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A name space of our own, generated once.
const OURS: [u8; 16] = [0x6b, 0x1d, 0x0e, 0x4c, 0x58, 0x7a, 0x5d, 0x2f, 0x9e, 0x3b, 0x41, 0x7c, 0xd2, 0x90, 0x6a, 0x55];

/// The UUID of this text.
pub(super) fn named(text: &str) -> String {
    in_space(OURS, text)
}

/// The UUID of a text in a name space.
pub(super) fn in_space(space: [u8; 16], text: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[&space, text.as_bytes()].concat());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = weir_store::hex(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_says() {
        // RFC 9562, appendix A.4: www.example.com among names of domains.
        const DNS: [u8; 16] =
            [0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
        assert_eq!(in_space(DNS, "www.example.com"), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
        assert_eq!(named("a"), named("a"));
        assert_ne!(named("a"), named("b"));
    }
}
