//! Cryptographic messages (PKCS #7, CMS: RFC 5652) as far as they carry something that everybody can read: what is signed, packed or stamped
//! with a time, and whether it is sealed. Read by its tags, not checked.

/// The types of PKCS #7, and those that S/MIME added, up to the last octet.
const PKCS7: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07";
const SMIME: &[u8] = b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01";
/// `data`, before what is signed.
const DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// Encrypted: enveloped, encrypted, signed and enveloped, enveloped with a sum.
    Sealed,
    /// Packed with zlib.
    Packed,
    /// Its content stands there as it is: signed, digested, authenticated, stamped with a time, or nothing of that.
    Open,
}

/// The type that the sequence begins with.
fn type_of(inside: &[u8]) -> Option<Type> {
    let last = |prefix: &[u8]| inside.strip_prefix(prefix).and_then(|rest| rest.first().copied());
    match (last(PKCS7), last(SMIME)) {
        (Some(3 | 4 | 6), _) | (_, Some(0x17)) => Some(Type::Sealed),
        (_, Some(9)) => Some(Type::Packed),
        (Some(1 | 2 | 5), _) | (_, Some(2 | 0x1f)) => Some(Type::Open),
        _ => None,
    }
}

/// Whether this is PKCS #7: a sequence that begins with one of its types.
pub(super) fn is_pkcs7(data: &[u8]) -> bool {
    matches!(tagged(data), Some((0x30, _, inside)) if type_of(inside).is_some())
}

/// What a message of PKCS #7 carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pkcs7 {
    /// Encrypted for its reader.
    Sealed,
    /// Signed, with the content inside.
    Signed(Vec<u8>),
    /// Packed with zlib.
    Packed(Vec<u8>),
}

impl Pkcs7 {
    /// None if it carries nothing.
    pub(super) fn read(data: &[u8]) -> Option<Pkcs7> {
        let (_, _, inside) = tagged(data)?;
        let kind = type_of(inside)?;
        if kind == Type::Sealed {
            return Some(Pkcs7::Sealed);
        }
        let content = by_structure(inside).or_else(|| by_type(&inside[DATA.len().min(inside.len())..]))?;
        Some(if kind == Type::Packed { Pkcs7::Packed(content) } else { Pkcs7::Signed(content) })
    }
}

/// What archives may be looked for in: what stands behind the message if its content is in pieces, else all of it. An archive in pieces looks
/// damaged, and nobody but a reader of such messages opens it.
pub(super) fn loose(data: &[u8]) -> &[u8] {
    let in_pieces = match Pkcs7::read(data) {
        Some(Pkcs7::Signed(content) | Pkcs7::Packed(content)) => memchr::memmem::find(data, &content).is_none(),
        Some(Pkcs7::Sealed) | None => false,
    };
    let behind = || element(data, 0).map_or(&[][..], |(_, _, behind)| behind);
    if in_pieces { behind() } else { data }
}

/// The content by its place: behind the type, in the first sequence that is a type and what is of it, or as octets beside the other fields.
fn by_structure(inside: &[u8]) -> Option<Vec<u8>> {
    let (_, _, behind) = element(inside, 0)?;
    let (0xa0, outer, _) = element(behind, 0)? else { return None };
    let (tag, fields, _) = element(outer, 0)?;
    if matches!(tag, 0x04 | 0x24) {
        return Some(joined(outer, 0));
    }
    let mut rest = fields;
    while let Some((tag, content, behind)) = element(rest, 0) {
        match tag {
            0x30 => {
                if let Some((0x06, _, typed)) = element(content, 0)
                    && let Some((0xa0, octets, _)) = element(typed, 0)
                {
                    let whole = joined(octets, 0);
                    return Some(if whole.is_empty() { octets.to_vec() } else { whole });
                }
            }
            0x04 | 0x24 => return Some(joined(rest, 0)),
            _ => {}
        }
        rest = behind;
    }
    None
}

/// The content by what stands before it nearly always, wherever that is.
fn by_type(rest: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::find(rest, DATA)? + DATA.len();
    match tagged(&rest[at..])? {
        (0xa0, _, content) => Some(joined(content, 0)),
        _ => None,
    }
}

/// Deeper than any message is.
const DEPTH_MAX: u32 = 12;

/// The element at the start: its tag, what is inside, and what is behind. One that does not tell its length ends with two zeros.
fn element(data: &[u8], depth: u32) -> Option<(u8, &[u8], &[u8])> {
    let (tag, told, inside) = tagged(data)?;
    let head = head_length(data);
    if told {
        return Some((tag, inside, data.get(head + inside.len()..)?));
    }
    let mut rest = inside;
    while !rest.is_empty() && !rest.starts_with(&[0, 0]) {
        if depth >= DEPTH_MAX {
            return Some((tag, inside, &[]));
        }
        (_, _, rest) = element(rest, depth + 1)?;
    }
    let length = inside.len() - rest.len();
    Some((tag, &inside[..length], rest.get(2..).unwrap_or_default()))
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

    const SIGNED: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";

    #[test]
    fn strings_in_pieces() {
        assert_eq!(joined(b"\x24\x80\x04\x02ab\x04\x01c\0\0", 0), b"abc");
        assert_eq!(joined(b"\x04\x03abc", 0), b"abc");
        assert!(is_pkcs7(&[b"\x30\x80".as_slice(), SIGNED].concat()) && !is_pkcs7(b"\x30\x03abc"));
    }

    /// A message of a type, with this content of another.
    fn message(kind: &[u8], content: &[u8], indefinite: bool) -> Vec<u8> {
        let wrap = |tag: u8, inside: &[u8]| match indefinite {
            true => [&[tag, 0x80][..], inside, &[0, 0]].concat(),
            false => [&[tag, inside.len() as u8][..], inside].concat(),
        };
        let octets = [&[4, content.len() as u8][..], content].concat();
        let typed = wrap(0x30, &[b"\x06\x02\x2a\x03".as_slice(), &wrap(0xa0, &octets)].concat());
        let algorithms = wrap(0x31, &wrap(0x30, b"\x06\x02\x2a\x04"));
        let fields = wrap(0x30, &[b"\x02\x01\x01".as_slice(), &algorithms, &typed].concat());
        wrap(0x30, &[kind, &wrap(0xa0, &fields)].concat())
    }

    #[test]
    fn content_is_found_whatever_type_it_has() {
        for indefinite in [false, true] {
            let signed = message(SIGNED, b"hello", indefinite);
            assert_eq!(Pkcs7::read(&signed), Some(Pkcs7::Signed(b"hello".to_vec())), "{indefinite}");
            let packed = message(&[SMIME, &[9]].concat(), b"hello", indefinite);
            assert_eq!(Pkcs7::read(&packed), Some(Pkcs7::Packed(b"hello".to_vec())), "{indefinite}");
            for last in [3, 4, 6] {
                let sealed = message(&[PKCS7, &[last]].concat(), b"hello", indefinite);
                assert_eq!(Pkcs7::read(&sealed), Some(Pkcs7::Sealed));
            }
            let sealed = message(&[SMIME, &[0x17]].concat(), b"hello", indefinite);
            assert!(is_pkcs7(&sealed) && Pkcs7::read(&sealed) == Some(Pkcs7::Sealed));
        }
        let stamped = [b"\x30\x1c".as_slice(), SMIME, b"\x1f\xa0\x0d\x30\x0b\x02\x01\x01\x04\x05hello"].concat();
        assert_eq!(Pkcs7::read(&stamped), Some(Pkcs7::Signed(b"hello".to_vec())));
    }

    #[test]
    fn nesting_without_end_ends() {
        let deep = [b"\x30\x80".as_slice(), SIGNED, &b"\xa0\x80".repeat(100_000)].concat();
        assert!(is_pkcs7(&deep));
        Pkcs7::read(&deep);
    }
}
