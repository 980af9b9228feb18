//! PKCS #7 as far as it carries mail: what is signed, and whether it is sealed. Read by its tags, not checked.

/// `signedData` and `envelopedData` of PKCS #7.
const SIGNED: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
const ENVELOPED: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x03";
/// `data`, before what is signed.
const DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";

/// Whether this is PKCS #7: a sequence that begins with one of its types.
pub(super) fn is_pkcs7(data: &[u8]) -> bool {
    let Some((0x30, _, inside)) = tagged(data) else { return false };
    inside.starts_with(SIGNED) || inside.starts_with(ENVELOPED)
}

/// What a message of PKCS #7 carries.
pub(super) enum Pkcs7 {
    /// Encrypted for its reader.
    Sealed,
    /// Signed, with the content inside.
    Signed(Vec<u8>),
}

impl Pkcs7 {
    /// None if it carries nothing.
    pub(super) fn read(data: &[u8]) -> Option<Pkcs7> {
        let (_, _, inside) = tagged(data)?;
        if inside.starts_with(ENVELOPED) {
            return Some(Pkcs7::Sealed);
        }
        // What is signed stands in the first field of the type `data`.
        let rest = inside.strip_prefix(SIGNED)?;
        let at = memchr::memmem::find(rest, DATA)? + DATA.len();
        match tagged(&rest[at..])? {
            (0xa0, _, content) => Some(Pkcs7::Signed(joined(content, 0))),
            _ => None,
        }
    }
}

/// The tag at the start, whether its length is told, and what is inside.
fn tagged(data: &[u8]) -> Option<(u8, bool, &[u8])> {
    let (tag, rest) = data.split_first()?;
    let (first, rest) = rest.split_first()?;
    let octets = usize::from(first & 0x7f);
    match first {
        0x80 => Some((*tag, false, rest)),
        0..0x80 => Some((*tag, true, rest.get(..octets).unwrap_or(rest))),
        _ => {
            let length = rest.get(..octets.min(8))?.iter().fold(0usize, |sum, octet| sum << 8 | usize::from(*octet));
            let rest = rest.get(octets..)?;
            Some((*tag, true, rest.get(..length).unwrap_or(rest)))
        }
    }
}

/// How many octets the tag and the length at the start take.
fn head_length(data: &[u8]) -> usize {
    2 + data.get(1).filter(|first| **first > 0x80).map_or(0, |first| usize::from(first & 0x7f))
}

/// The octets of a string, whole or in pieces.
fn joined(data: &[u8], depth: u32) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    while let Some((tag, told, inside)) = tagged(rest) {
        let used = head_length(rest) + inside.len();
        match tag {
            0x04 => out.extend_from_slice(inside),
            0x24 if depth < 4 => out.extend(joined(inside, depth + 1)),
            _ => break,
        }
        if !told {
            break;
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_in_pieces() {
        assert_eq!(joined(b"\x24\x80\x04\x02ab\x04\x01c\0\0", 0), b"abc");
        assert_eq!(joined(b"\x04\x03abc", 0), b"abc");
        assert!(is_pkcs7(&[b"\x30\x80".as_slice(), SIGNED].concat()) && !is_pkcs7(b"\x30\x03abc"));
    }
}
