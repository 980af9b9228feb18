//! Text in a header that is not ASCII: encoded words (RFC 2047) and escapes (RFC 2231). Cost: linear.

use super::charset::{Reading, is_rare, text_of};
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
pub(super) fn decoded_words(value: &[u8], padding: Padding, reading: Reading) -> String {
    let (mut out, mut rest, mut after_word) = (String::new(), value, false);
    // Behind the last end of a word there is none, and looking for it again and again would take long.
    let last = memchr::memmem::rfind(value, b"?=").unwrap_or(0);
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        if value.len() - rest.len() + at > last {
            break;
        }
        let Some((text, behind)) = encoded_word(&rest[at + 2..], padding, reading) else {
            out.push_str(&text_of(b"", &rest[..at + 2], reading));
            (rest, after_word) = (&rest[at + 2..], false);
            continue;
        };
        // White space between two encoded words is not shown.
        if !(after_word && rest[..at].iter().all(u8::is_ascii_whitespace)) {
            out.push_str(&text_of(b"", &rest[..at], reading));
        }
        out.push_str(&text);
        (rest, after_word) = (behind, true);
    }
    out.push_str(&text_of(b"", rest, reading));
    out
}

/// What follows `=?`: charset, `?`, encoding, `?`, text, `?=`.
fn encoded_word(text: &[u8], padding: Padding, reading: Reading) -> Option<(String, &[u8])> {
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
    Some((text_of(charset, &bytes, reading), &text[end + 2..]))
}

/// Whether an encoded word names a charset in which an extension may look like anything.
pub(super) fn has_rare_charset(value: &[u8]) -> bool {
    let charset = |at: usize| split_once(&value[at + 2..], b'?').map_or(&b""[..], |(charset, _)| charset);
    memchr::memmem::find_iter(value, b"=?").any(|at| is_rare(charset(at)))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr::memchr(at, text.get(..text.len().min(100))?)?;
    Some((&text[..place], &text[place + 1..]))
}
