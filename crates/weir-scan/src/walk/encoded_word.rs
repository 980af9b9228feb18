//! Text in a header that is not ASCII: encoded words (RFC 2047), escapes (RFC 2231), charsets. Cost: linear.

use super::transfer::{Padding, base64, nibble, quoted_printable};

/// A value after RFC 2231, without its escapes.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match behind {
            [high, low, behind @ ..] if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = behind;
            }
            _ => out.push(*first),
        }
    }
    out
}

/// Text with encoded words (RFC 2047), also inside quotes, where they do not belong and are found.
pub(super) fn decoded_words(value: &[u8], padding: Padding) -> String {
    let (mut out, mut rest, mut after_word) = (String::new(), value, false);
    // Behind the last end of a word there is none, and looking for it again and again would take long.
    let last = memchr::memmem::rfind(value, b"?=").unwrap_or(0);
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        if value.len() - rest.len() + at > last {
            break;
        }
        let Some((text, behind)) = encoded_word(&rest[at + 2..], padding) else {
            out.push_str(&text_of(b"", &rest[..at + 2]));
            (rest, after_word) = (&rest[at + 2..], false);
            continue;
        };
        // White space between two encoded words is not shown.
        if !(after_word && rest[..at].iter().all(u8::is_ascii_whitespace)) {
            out.push_str(&text_of(b"", &rest[..at]));
        }
        out.push_str(&text);
        (rest, after_word) = (behind, true);
    }
    out.push_str(&text_of(b"", rest));
    out
}

/// What follows `=?`: charset, `?`, encoding, `?`, text, `?=`.
fn encoded_word(text: &[u8], padding: Padding) -> Option<(String, &[u8])> {
    let (charset, text) = split_once(text, b'?')?;
    let (encoding, text) = split_once(text, b'?')?;
    let printable = match encoding {
        b"B" | b"b" => false,
        b"Q" | b"q" => true,
        _ => return None,
    };
    let end = memchr::memmem::find(text, b"?=")?;
    let body = &text[..end];
    let bytes = if printable {
        let spaced: Vec<u8> = body.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect();
        quoted_printable(&spaced)
    } else {
        base64(body, padding)
    };
    Some((text_of(charset, &bytes), &text[end + 2..]))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr::memchr(at, text.get(..text.len().min(100))?)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Text in a charset: Unicode by its name or if it is valid, everything else as Latin 1. An extension is ASCII in nearly all charsets.
pub(super) fn text_of(charset: &[u8], bytes: &[u8]) -> String {
    let charset = String::from_utf8_lossy(charset).to_ascii_lowercase();
    let named = |known: &str| charset.starts_with(known) || charset.strip_prefix("iso-10646-") == Some(known);
    if named("utf-16") || named("ucs-2") {
        return utf16(bytes, charset.ends_with("le"));
    }
    if named("utf-32") || named("ucs-4") {
        return utf32(bytes, charset.ends_with("le"));
    }
    // Also `unicode-1-1-utf-7` and its like.
    if charset.ends_with("utf-7") {
        return utf7(bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if named("utf-8") => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
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
        out.push_str(&text_of(b"", &rest[..at]));
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
    out.push_str(&text_of(b"", rest));
    out
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicode_in_all_its_forms() {
        for (charset, bytes) in [
            ("utf-8", b"a\xe2\x82\xac".as_slice()),
            ("UTF-16", b"\0a\x20\xac"),
            ("utf-16le", b"a\0\xac\x20"),
            ("iso-10646-ucs-2", b"\xff\xfea\0\xac\x20"),
            ("utf-32be", b"\0\0\0a\0\0\x20\xac"),
            ("ucs-4le", b"a\0\0\0\xac\x20\0\0"),
            ("utf-7", b"a+IKw-"),
            ("unicode-1-1-utf-7", b"+AGEgrA"),
        ] {
            assert_eq!(text_of(charset.as_bytes(), bytes), "a€", "{charset}");
        }
        assert_eq!(text_of(b"utf-7", b"1+-2 +AC4-x +"), "1+2 .x +");
        assert_eq!(text_of(b"iso-8859-1", b"caf\xe9"), "café");
        assert_eq!(text_of(b"utf-32", b"\xff\xff\xff\xffab"), "\u{fffd}");
    }
}
