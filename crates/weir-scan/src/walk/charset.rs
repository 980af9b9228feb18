//! File names in other charsets, as far as these can hide an extension.
//!
//! In nearly all charsets an extension is ASCII. It is not where the octets shift between sets (ISO 2022, HZ), are written as something
//! else (UTF-7, UTF-16) or are EBCDIC. Those are read here; the Chinese, Japanese and Korean sets among them by `encoding_rs`, so that
//! people can read the name in a reason. Programs differ in which charsets they know, so a name can have several readings ([`CharsetReading`]).
//! Cost: linear.

use super::transfer::{Padding, base64, is_base64};
use encoding_rs::{EUC_JP, EUC_KR, Encoding, GBK};

/// What a program makes of the charset that stands beside a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CharsetReading {
    /// It knows the charset.
    Named,
    /// It passes over the charset, and shows the octets.
    Octets,
    /// It takes the other order of octets for that of UTF-16.
    Swapped,
    /// It looks for shifts, whatever the charset is called.
    Shifted,
    /// Each of these is what a charset that we do not know may be another name of.
    Hz,
    /// See [`CharsetReading::Hz`].
    Utf7,
    /// See [`CharsetReading::Hz`].
    Ebcdic,
}

impl CharsetReading {
    /// The usual one first.
    pub(super) const ALL: [CharsetReading; 7] = [
        CharsetReading::Named,
        CharsetReading::Octets,
        CharsetReading::Swapped,
        CharsetReading::Shifted,
        CharsetReading::Hz,
        CharsetReading::Utf7,
        CharsetReading::Ebcdic,
    ];
}

/// How the octets of a text are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// As `encoding_rs` does.
    Usual(&'static Encoding),
    Utf8,
    Utf16 {
        little: bool,
        told: bool,
    },
    Utf32 {
        little: bool,
    },
    Utf7,
    /// Shifts by escape sequences and control characters; the set that a shift selects which names none.
    Iso2022(&'static Encoding),
    Hz,
    Ebcdic,
    /// Known to hardly anybody, and an extension need not be ASCII in it.
    Rare,
    /// No charset is named.
    None,
    /// Nobody here knows it.
    Unknown,
}

/// EBCDIC of the western countries: one set of letters under many numbers.
const EBCDIC: [&str; 12] = ["037", "273", "277", "278", "280", "284", "285", "297", "500", "871", "1047", "1140"];

impl Family {
    fn of(charset: &[u8]) -> Family {
        // The language may stand behind an asterisk (RFC 2231); `csUnicode11UTF7`, `unicode-1-1-utf-7` and `UTF7` are one charset.
        let charset = charset.split(|byte| *byte == b'*').next().unwrap_or_default();
        if charset.is_empty() {
            return Family::None;
        }
        let letters: Vec<u8> = charset.iter().filter(|byte| byte.is_ascii_alphanumeric()).copied().collect();
        let name = String::from_utf8_lossy(&letters).to_ascii_lowercase();
        let number = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        let little =
            ends(&["le", "1200", "12000"]) || matches!(name.as_str(), "unicode" | "csunicode" | "ucs2internal");
        match name.as_str() {
            _ if name.contains("scsu") || name.contains("bocu") || name.contains("utfebcdic") => Family::Rare,
            _ if name.contains("utf7") || number == "65000" => Family::Utf7,
            _ if name.contains("utf16") || name.contains("ucs2") || matches!(number, "1200" | "1201") => {
                Family::Utf16 { little, told: ends(&["le", "be", "1200", "1201"]) }
            }
            "unicode" | "csunicode" | "unicodefffe" => Family::Utf16 { little, told: false },
            _ if name.contains("utf32") || name.contains("ucs4") || matches!(number, "12000" | "12001") => {
                Family::Utf32 { little }
            }
            _ if name.starts_with("utf8") => Family::Utf8,
            "hz" | "hzgb2312" | "cp52936" | "windows52936" | "52936" => Family::Hz,
            _ if name.contains("2022kr") || number == "50225" => Family::Iso2022(EUC_KR),
            _ if name.contains("2022cn") || matches!(number, "50227" | "50229") => Family::Iso2022(GBK),
            _ if name.contains("2022") || name.starts_with("jis") || name == "csjisencoding" => Family::Iso2022(EUC_JP),
            _ if matches!(number, "50220" | "50221" | "50222") => Family::Iso2022(EUC_JP),
            _ if name.contains("ebcdic") || EBCDIC.contains(&number) && !name.starts_with("iso") => Family::Ebcdic,
            _ => match Encoding::for_label_no_replacement(charset) {
                Some(encoding) => Family::Usual(encoding),
                None => Family::Unknown,
            },
        }
    }
}

/// Whether this is a charset that hardly anybody reads, and in which an extension may look like anything.
pub(super) fn is_rare(charset: &[u8]) -> bool {
    Family::of(charset) == Family::Rare
}

/// Text in a charset, as a program reads it that makes this of the charset.
pub(super) fn text_of(charset: &[u8], bytes: &[u8], reading: CharsetReading) -> String {
    let family = Family::of(charset);
    match (family, reading) {
        (Family::Utf16 { .. } | Family::Utf32 { .. } | Family::Utf7, CharsetReading::Octets) => named(family, bytes),
        (_, CharsetReading::Octets) => octets(bytes),
        (Family::Utf16 { little, told: false }, CharsetReading::Swapped) => utf16(bytes, !little),
        (Family::None | Family::Unknown | Family::Usual(_) | Family::Utf8, CharsetReading::Shifted)
            if is_shifted(bytes) =>
        {
            iso2022(bytes, EUC_JP)
        }
        (Family::Unknown, CharsetReading::Hz) => hz(bytes),
        (Family::Unknown, CharsetReading::Utf7) => utf7(bytes),
        (Family::Unknown, CharsetReading::Ebcdic) => ebcdic(bytes),
        _ => named(family, bytes),
    }
}

fn named(family: Family, bytes: &[u8]) -> String {
    match family {
        Family::Usual(encoding) => match std::str::from_utf8(bytes) {
            Ok(text) if bytes.is_ascii() => text.to_owned(),
            _ => encoding.decode_without_bom_handling(bytes).0.into_owned(),
        },
        Family::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        Family::Utf16 { little, .. } => utf16(bytes, little),
        Family::Utf32 { little } => utf32(bytes, little),
        Family::Utf7 => utf7(bytes),
        Family::Iso2022(set) => iso2022(bytes, set),
        Family::Hz => hz(bytes),
        Family::Ebcdic => ebcdic(bytes),
        Family::Rare | Family::None | Family::Unknown => octets(bytes),
    }
}

/// Unicode if that is valid, else Latin 1.
fn octets(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => encoding_rs::mem::decode_latin1(bytes).into_owned(),
    }
}

fn utf16(bytes: &[u8], little: bool) -> String {
    let (little, body) = match bytes {
        [0xff, 0xfe, body @ ..] => (true, body),
        [0xfe, 0xff, body @ ..] => (false, body),
        body => (little, body),
    };
    let unit = |pair: &[u8; 2]| if little { u16::from_le_bytes(*pair) } else { u16::from_be_bytes(*pair) };
    let units: Vec<u16> = body.as_chunks::<2>().0.iter().map(unit).collect();
    String::from_utf16_lossy(&units)
}

fn utf32(bytes: &[u8], little: bool) -> String {
    let (little, body) = match bytes {
        [0xff, 0xfe, 0, 0, body @ ..] => (true, body),
        [0, 0, 0xfe, 0xff, body @ ..] => (false, body),
        body => (little, body),
    };
    let unit = |four: &[u8; 4]| if little { u32::from_le_bytes(*four) } else { u32::from_be_bytes(*four) };
    let units = body.as_chunks::<4>().0.iter().map(unit);
    units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// `+`, UTF-16 in base64, and an end that is `-` or anything else outside its alphabet; `+-` is a plus (RFC 2152).
fn utf7(bytes: &[u8]) -> String {
    let (mut out, mut rest) = (String::new(), bytes);
    while let Some(at) = memchr::memchr(b'+', rest) {
        out.push_str(&octets(&rest[..at]));
        let shifted = &rest[at + 1..];
        let end = shifted.iter().position(|byte| !is_base64(*byte)).unwrap_or(shifted.len());
        let (packed, behind) = shifted.split_at(end);
        out.push_str(&if packed.is_empty() {
            "+".to_owned()
        } else {
            utf16(&base64(packed, Padding::EndsGroup), false)
        });
        rest = behind.strip_prefix(b"-").unwrap_or(behind);
    }
    out.push_str(&octets(rest));
    out
}

const ESCAPE: u8 = 0x1b;
const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;

/// Whether a text may shift between sets: no name has such control characters otherwise.
fn is_shifted(bytes: &[u8]) -> bool {
    memchr::memchr3(ESCAPE, SHIFT_OUT, SHIFT_IN, bytes).is_some()
}

/// A text without its escape sequences, if it has some.
pub(super) fn without_escapes(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(ESCAPE, text)?;
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memchr(ESCAPE, rest) {
        out.extend_from_slice(&rest[..at]);
        let between = rest[at + 1..].iter().take_while(|byte| matches!(byte, 0x20..=0x2f)).count();
        rest = rest.get(at + between + 2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Some(out)
}

/// A set that a text in ISO 2022 has shifted to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    /// ASCII, or one of the national sets, which have the same letters.
    Letters,
    /// Katakana of half width, one octet each.
    Katakana,
    /// Two octets each, which are those of this encoding without their highest bits.
    Double(&'static Encoding),
}

/// ISO 2022 with seven bits: escape sequences select sets, and shifts choose between the two that are selected.
fn iso2022(bytes: &[u8], usual: &'static Encoding) -> String {
    let (mut out, mut rest) = (String::new(), bytes);
    let (mut selected, mut second, mut shifted) = (Set::Letters, Set::Double(usual), false);
    while let Some((first, behind)) = rest.split_first() {
        match *first {
            ESCAPE => {
                let length = behind.iter().take_while(|byte| matches!(byte, 0x20..=0x2f)).count();
                let (between, last) = (&behind[..length], behind.get(length).copied().unwrap_or(0));
                match (between, last) {
                    (b"(", b'I') => selected = Set::Katakana,
                    (b"(", _) => selected = Set::Letters,
                    (b"$" | b"$(", last) => selected = Set::Double(double(last)),
                    (b"$)", last) => second = Set::Double(double(last)),
                    _ => {}
                }
                rest = behind.get(length + 1..).unwrap_or_default();
            }
            SHIFT_OUT | SHIFT_IN => (shifted, rest) = (*first == SHIFT_OUT, behind),
            _ => {
                let run = rest.iter().position(|byte| matches!(*byte, ESCAPE | SHIFT_OUT | SHIFT_IN));
                let (run, behind) = rest.split_at(run.unwrap_or(rest.len()));
                out.push_str(&in_set(run, if shifted { second } else { selected }));
                rest = behind;
            }
        }
    }
    out
}

/// The set of two octets that an escape sequence with this end selects.
fn double(last: u8) -> &'static Encoding {
    match last {
        b'A' | b'E' | b'G' | b'H' => GBK,
        b'C' => EUC_KR,
        _ => EUC_JP,
    }
}

fn in_set(run: &[u8], set: Set) -> String {
    match set {
        Set::Letters => octets(run),
        Set::Katakana => run.iter().map(|byte| katakana(*byte)).collect(),
        Set::Double(encoding) => {
            let high: Vec<u8> =
                run.iter().map(|byte| if (0x21..0x7f).contains(byte) { byte | 0x80 } else { *byte }).collect();
            encoding.decode_without_bom_handling(&high).0.into_owned()
        }
    }
}

fn katakana(byte: u8) -> char {
    match byte {
        0x21..=0x5f => char::from_u32(0xff40 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::from(byte),
    }
}

/// HZ (RFC 1843): `~{` and `~}` around GB 2312, `~~` a tilde, and a tilde before the end of a line is not shown.
fn hz(bytes: &[u8]) -> String {
    let (mut out, mut rest, mut set) = (String::new(), bytes, Set::Letters);
    while let Some(at) = memchr::memchr(b'~', rest) {
        out.push_str(&in_set(&rest[..at], set));
        let (behind, next) = match rest.get(at + 1) {
            Some(b'{') => (2, Set::Double(GBK)),
            Some(b'}') => (2, Set::Letters),
            Some(b'\n') => (2, set),
            Some(b'\r') if rest.get(at + 2) == Some(&b'\n') => (3, set),
            Some(b'~') => {
                out.push('~');
                (2, set)
            }
            _ => {
                out.push('~');
                (1, set)
            }
        };
        (rest, set) = (rest.get(at + behind..).unwrap_or_default(), next);
    }
    out.push_str(&in_set(rest, set));
    out
}

/// The letters, digits and marks that all EBCDIC of the west has at the same places.
fn ebcdic(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match *byte {
        byte @ 0x81..=0x89 => char::from(byte - 0x81 + b'a'),
        byte @ 0x91..=0x99 => char::from(byte - 0x91 + b'j'),
        byte @ 0xa2..=0xa9 => char::from(byte - 0xa2 + b's'),
        byte @ 0xc1..=0xc9 => char::from(byte - 0xc1 + b'A'),
        byte @ 0xd1..=0xd9 => char::from(byte - 0xd1 + b'J'),
        byte @ 0xe2..=0xe9 => char::from(byte - 0xe2 + b'S'),
        byte @ 0xf0..=0xf9 => char::from(byte - 0xf0 + b'0'),
        0x40 => ' ',
        0x4b => '.',
        0x60 => '-',
        0x61 => '/',
        0x6d => '_',
        0x7a => ':',
        _ => char::REPLACEMENT_CHARACTER,
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(charset: &str, bytes: &[u8]) -> String {
        text_of(charset.as_bytes(), bytes, CharsetReading::Named)
    }

    #[test]
    fn unicode_in_all_its_forms() {
        for (charset, bytes) in [
            ("utf-8", b"a\xe2\x82\xac".as_slice()),
            ("UTF-16", b"\0a\x20\xac"),
            ("utf-16le", b"a\0\xac\x20"),
            ("unicode", b"a\0\xac\x20"),
            ("iso-10646-ucs-2", b"\xff\xfea\0\xac\x20"),
            ("utf-32be", b"\0\0\0a\0\0\x20\xac"),
            ("ucs-4le", b"a\0\0\0\xac\x20\0\0"),
            ("utf-7", b"a+IKw-"),
            ("unicode-1-1-utf-7", b"+AGEgrA"),
            ("csUnicode11UTF7", b"a+IKw-"),
            ("cp65000", b"a+IKw-"),
            ("windows-65000", b"a+IKw-"),
        ] {
            assert_eq!(named(charset, bytes), "a€", "{charset}");
        }
        assert_eq!(named("utf-7", b"1+-2 +AC4-x +"), "1+2 .x +");
        assert_eq!(named("iso-8859-1", b"caf\xe9"), "café");
        assert_eq!(named("utf-32", b"\xff\xff\xff\xffab"), "\u{fffd}");
        assert_eq!(text_of(b"utf-16", b"a\0.\0j\0s\0", CharsetReading::Swapped), "a.js");
    }

    #[test]
    fn shifts_hide_no_letters() {
        for (charset, bytes) in [
            ("iso-2022-jp", b"a.\x1b(Jj\x1b(Bs".as_slice()),
            ("ISO-2022-JP-2", b"a.j\x1b(J\x1b(Bs"),
            ("CP50220", b"\x1b(Ja.js\x1b(B"),
            ("csISO2022JP", b"a\x1b.A\x1b(J.\x1b(Bjs"),
            ("iso-2022-kr", b"\x1b$)Ca.j\x0e\x0fs"),
            ("iso-2022-cn", b"a.j\x1b$)A\x0e\x0fs"),
            ("HZ-GB-2312", b"a.j~{~}s"),
            ("hz", b"a.j~\ns"),
            ("ibm037", b"\x81\x4b\x91\xa2"),
            ("ebcdic-cp-us", b"\x81\x4b\x91\xa2"),
        ] {
            assert_eq!(named(charset, bytes), "a.js", "{charset}");
        }
        assert_eq!(named("iso-2022-jp", b"\x1b$B@A5a=q\x1b(J.js\x1b(B"), "請求書.js");
        assert_eq!(named("hz", b"~{VPND~}.js"), "中文.js");
        assert_eq!(named("iso-2022-kr", b"\x1b$)C\x0eGQ1[\x0f.js"), "한글.js");
        assert_eq!(named("iso-2022-jp", b"\x1b(I1\x1b(B.js"), "ｱ.js");
    }

    #[test]
    fn an_unknown_charset_is_read_in_every_way() {
        for (bytes, reading) in [
            (b"a.j\x1b(J\x1b(Bs".as_slice(), CharsetReading::Shifted),
            (b"a.j~{~}s", CharsetReading::Hz),
            (b"a.+AGo-s", CharsetReading::Utf7),
            (b"\x81\x4b\x91\xa2", CharsetReading::Ebcdic),
            (b"a.js", CharsetReading::Octets),
        ] {
            assert_eq!(text_of(b"x-no-such", bytes, reading), "a.js", "{reading:?}");
        }
        assert!(is_rare(b"SCSU") && is_rare(b"BOCU-1") && !is_rare(b"utf-8") && !is_rare(b"x-no-such"));
        assert_eq!(
            text_of(b"utf-8", b"a+b~{.pdf", CharsetReading::Utf7),
            "a+b~{.pdf",
            "a charset that is known is believed"
        );
    }

    #[test]
    fn what_breaks_off_ends() {
        for charset in ["iso-2022-jp", "hz", "utf-7", "utf-16", "utf-32", "ibm037", "shift_jis", "x"] {
            for bytes in [b"\x1b".as_slice(), b"\x1b$", b"\x1b$(", b"~", b"~{!", b"+", b"\x0e", b"\x1b$B!"] {
                for reading in CharsetReading::ALL {
                    text_of(charset.as_bytes(), bytes, reading);
                }
            }
        }
    }
}
