//! Text in a header that is not ASCII: encoded words (RFC 2047), escapes (RFC 2231), charsets. Cost: linear.

use super::transfer::{base64, nibble, quoted_printable};

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
pub(super) fn decoded_words(value: &[u8]) -> String {
    let (mut out, mut rest, mut after_word) = (String::new(), value, false);
    // Behind the last end of a word there is none, and looking for it again and again would take long.
    let last = memchr::memmem::rfind(value, b"?=").unwrap_or(0);
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        if value.len() - rest.len() + at > last {
            break;
        }
        let Some((text, behind)) = encoded_word(&rest[at + 2..]) else {
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
fn encoded_word(text: &[u8]) -> Option<(String, &[u8])> {
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
        base64(body)
    };
    Some((text_of(charset, &bytes), &text[end + 2..]))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr::memchr(at, text.get(..text.len().min(100))?)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Text in a charset: Unicode by its name or if it is valid, everything else as Latin 1. An extension is ASCII in nearly all charsets.
pub(super) fn text_of(charset: &[u8], bytes: &[u8]) -> String {
    let named =
        |known: &str| charset.len() >= known.len() && charset[..known.len()].eq_ignore_ascii_case(known.as_bytes());
    if named("utf-16") || named("ucs-2") {
        let (big, body) = match bytes {
            [0xff, 0xfe, body @ ..] => (false, body),
            [0xfe, 0xff, body @ ..] => (true, body),
            body => (!named("utf-16le"), body),
        };
        let unit = |pair: &[u8]| {
            if big { u16::from_be_bytes([pair[0], pair[1]]) } else { u16::from_le_bytes([pair[0], pair[1]]) }
        };
        let units: Vec<u16> = body.chunks_exact(2).map(unit).collect();
        return String::from_utf16_lossy(&units);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if named("utf-8") => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}
