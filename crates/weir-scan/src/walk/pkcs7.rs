//! Cryptographic messages (PKCS #7, CMS: RFC 5652) as far as they carry something that everybody can read: what is signed, packed or stamped
//! with a time, and whether it is sealed. Read by its tags, not checked.

use std::borrow::Cow;
use std::ops::Range;

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
pub(super) enum Pkcs7<'d> {
    /// Encrypted for its reader.
    Sealed,
    /// Signed, with the content inside.
    Signed(Cow<'d, [u8]>),
    /// Packed with zlib.
    Packed(Cow<'d, [u8]>),
    /// Its content is in pieces that are inside each other, deeper than any program writes them.
    TooDeep,
}

impl Pkcs7<'_> {
    /// None if it carries nothing.
    pub(super) fn read(data: &[u8]) -> Option<Pkcs7<'_>> {
        let (_, _, inside) = tagged(data)?;
        let kind = type_of(inside)?;
        if kind == Type::Sealed {
            return Some(Pkcs7::Sealed);
        }
        let Content { octets, is_whole, .. } = content(inside)?;
        Some(match kind {
            _ if !is_whole => Pkcs7::TooDeep,
            Type::Packed => Pkcs7::Packed(octets),
            _ => Pkcs7::Signed(octets),
        })
    }
}

/// Where programs for archives may find one that no reader of such messages shows: anywhere, but not in content that is written in pieces. To such a
/// program an archive with lengths in its midst is damaged, and to a reader of such messages it is whole.
pub(super) fn loose(data: &[u8]) -> [&[u8]; 2] {
    let content = tagged(data).and_then(|(_, _, inside)| content(inside));
    match content {
        Some(Content { octets: Cow::Owned(_), written, .. }) => {
            let Range { start, end } = place(data, written);
            [&data[..start], &data[end..]]
        }
        _ => [data, &[]],
    }
}

/// Where a piece of a whole stands in it.
fn place(whole: &[u8], piece: &[u8]) -> Range<usize> {
    let start = piece.as_ptr().addr().saturating_sub(whole.as_ptr().addr()).min(whole.len());
    start..(start + piece.len()).min(whole.len())
}

/// What is signed or packed: its octets, of their own if they are written in pieces, and how it is written.
struct Content<'d> {
    octets: Cow<'d, [u8]>,
    written: &'d [u8],
    /// Whether that is all of it.
    is_whole: bool,
}

impl<'d> Content<'d> {
    /// The string at the start.
    fn of(data: &'d [u8]) -> Content<'d> {
        let mut content = Content { octets: Cow::Borrowed(&[][..]), written: data, is_whole: true };
        let length = content.gather(data, 0);
        content.written = &data[..length.min(data.len())];
        content
    }

    /// Joins the pieces of a string, which may have pieces of their own; how long it is as it is written.
    fn gather(&mut self, data: &'d [u8], depth: u32) -> usize {
        let mut at = 0;
        while let Some((tag, told, inside)) = data.get(at..).and_then(tagged) {
            let length = match tag {
                0x04 => {
                    match self.octets.is_empty() {
                        true => self.octets = Cow::Borrowed(inside),
                        false => self.octets.to_mut().extend_from_slice(inside),
                    }
                    inside.len()
                }
                0x24 if depth < PIECES_MAX => {
                    let length = self.gather(inside, depth + 1);
                    let has_end = !told && inside.get(length..).is_some_and(|rest| rest.starts_with(&[0, 0]));
                    if told { inside.len() } else { length + 2 * usize::from(has_end) }
                }
                0x24 => {
                    self.is_whole = false;
                    break;
                }
                _ => break,
            };
            at += head_length(&data[at..]) + length;
        }
        at
    }
}

fn content(inside: &[u8]) -> Option<Content<'_>> {
    by_structure(inside).or_else(|| by_type(&inside[DATA.len().min(inside.len())..]))
}

/// The content by its place: behind the type, in the first sequence that is a type and what is of it, or as octets beside the other fields.
fn by_structure(inside: &[u8]) -> Option<Content<'_>> {
    let (_, _, behind) = element(inside, 0)?;
    let (0xa0, outer, _) = element(behind, 0)? else { return None };
    let (tag, fields, _) = element(outer, 0)?;
    if matches!(tag, 0x04 | 0x24) {
        return Some(Content::of(outer));
    }
    let mut rest = fields;
    while let Some((tag, content, behind)) = element(rest, 0) {
        match tag {
            0x30 => {
                if let Some((0x06, _, typed)) = element(content, 0)
                    && let Some((0xa0, octets, _)) = element(typed, 0)
                {
                    let whole = Content::of(octets);
                    let plain = || Content { octets: Cow::Borrowed(octets), written: octets, is_whole: true };
                    let is_none = whole.octets.is_empty() && whole.is_whole;
                    return Some(if is_none { plain() } else { whole });
                }
            }
            0x04 | 0x24 => return Some(Content::of(rest)),
            _ => {}
        }
        rest = behind;
    }
    None
}

/// The content by what stands before it nearly always, wherever that is.
fn by_type(rest: &[u8]) -> Option<Content<'_>> {
    let at = memchr::memmem::find(rest, DATA)? + DATA.len();
    match tagged(&rest[at..])? {
        (0xa0, _, content) => Some(Content::of(content)),
        _ => None,
    }
}

/// Deeper than any message is.
const DEPTH_MAX: u32 = 32;
/// Pieces inside pieces; programs write one level, and OpenSSL reads five.
const PIECES_MAX: u32 = 12;

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

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";

    #[test]
    fn strings_in_pieces() {
        let joined = |data: &[u8]| {
            let content = Content::of(data);
            (content.octets.into_owned(), content.written.len())
        };
        assert_eq!(joined(b"\x24\x80\x04\x02ab\x04\x01c\0\0more"), (b"abc".to_vec(), 11));
        assert_eq!(joined(b"\x24\x80\x24\x80\x04\x02ab\0\0\x24\x80\x04\x01c\0\0\0\0"), (b"abc".to_vec(), 19));
        assert_eq!(joined(b"\x24\x07\x04\x02ab\x04\x01c\x30\0"), (b"abc".to_vec(), 9));
        assert_eq!(joined(b"\x04\x03abc\x31\0"), (b"abc".to_vec(), 5));
        assert_eq!(joined(b"\x04\x7fabc"), (b"abc".to_vec(), 5));
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
            assert_eq!(Pkcs7::read(&signed), Some(Pkcs7::Signed(b"hello".into())), "{indefinite}");
            let packed = message(&[SMIME, &[9]].concat(), b"hello", indefinite);
            assert_eq!(Pkcs7::read(&packed), Some(Pkcs7::Packed(b"hello".into())), "{indefinite}");
            for last in [3, 4, 6] {
                let sealed = message(&[PKCS7, &[last]].concat(), b"hello", indefinite);
                assert_eq!(Pkcs7::read(&sealed), Some(Pkcs7::Sealed));
            }
            let sealed = message(&[SMIME, &[0x17]].concat(), b"hello", indefinite);
            assert!(is_pkcs7(&sealed) && Pkcs7::read(&sealed) == Some(Pkcs7::Sealed));
        }
        let stamped = [b"\x30\x1c".as_slice(), SMIME, b"\x1f\xa0\x0d\x30\x0b\x02\x01\x01\x04\x05hello"].concat();
        assert_eq!(Pkcs7::read(&stamped), Some(Pkcs7::Signed(b"hello".into())));
    }

    #[test]
    fn all_but_content_in_pieces_is_searched() {
        let whole = message(SIGNED, b"hello", false);
        assert_eq!(loose(&whole), [&whole[..], b""]);
        // Two pieces, certificates, and what stands behind the message.
        let pieces =
            b"\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x80\x30\x80\x02\x01\x01\x30\x80\x06\x02\x2a\x03\
              \xa0\x80\x24\x80\x04\x02he\x04\x03llo\0\0\0\0\0\0\xa0\x05certs\0\0\0\0\0\0behind";
        assert_eq!(Pkcs7::read(pieces), Some(Pkcs7::Signed(b"hello".to_vec().into())));
        let [before, behind] = loose(pieces);
        assert!(
            before.ends_with(b"\x2a\x03\xa0\x80") && behind.starts_with(b"\0\0\0\0\xa0\x05certs"),
            "{before:x?} {behind:x?}"
        );
        assert!(behind.ends_with(b"behind"));
        assert_eq!(before.len() + behind.len() + 13, pieces.len());
        let sealed = message(&[PKCS7, &[3]].concat(), b"hello", false);
        assert_eq!(loose(&sealed), [&sealed[..], b""]);
    }

    #[test]
    fn pieces_inside_pieces_are_joined_or_said_to_be_too_deep() {
        for indefinite in [false, true] {
            let wrap = |tag: u8, inside: &[u8]| match indefinite {
                true => [&[tag, 0x80][..], inside, &[0, 0]].concat(),
                false => [&[tag, 0x82][..], &(inside.len() as u16).to_be_bytes(), inside].concat(),
            };
            for (depth, expected) in [(1, "abc"), (5, "abc"), (12, "abc"), (13, "too deep"), (40, "too deep")] {
                let string = (0..depth).fold(b"\x04\x02ab\x04\x01c".to_vec(), |inside, _| wrap(0x24, &inside));
                let typed = wrap(0x30, &[DATA, &wrap(0xa0, &string)].concat());
                let fields = wrap(0x30, &[b"\x02\x01\x01\x31\0".as_slice(), &typed].concat());
                let message = wrap(0x30, &[SIGNED, &wrap(0xa0, &fields)].concat());
                let said = match Pkcs7::read(&message) {
                    Some(Pkcs7::Signed(octets)) => String::from_utf8(octets.into_owned()).unwrap(),
                    Some(Pkcs7::TooDeep) => "too deep".into(),
                    other => format!("{other:?}"),
                };
                assert_eq!(said, expected, "{depth} {indefinite}");
            }
        }
    }

    #[test]
    fn nesting_without_end_ends() {
        let deep = [b"\x30\x80".as_slice(), SIGNED, &b"\xa0\x80".repeat(100_000)].concat();
        assert!(is_pkcs7(&deep));
        Pkcs7::read(&deep);
    }
}
