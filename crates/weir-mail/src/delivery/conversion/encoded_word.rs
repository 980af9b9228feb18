//! 8-bit text in header fields, written in ASCII (RFC 2047).
//!
//! Programs that put raw 8-bit text into a field do not keep to any standard, so this is only for people, who should be able to read a
//! subject or a name. In fields that describe content, such as file names in quotes, the encoded words are put inside the quotes, as most
//! mail programs write and read them.

use super::encoder::escaped;
use std::borrow::Cow;

/// Octets of text in one word, so that it has at most 75 characters.
const WORD_OCTETS: usize = 18;

/// The field in ASCII.
pub(super) fn in_seven_bits(field: &[u8]) -> Cow<'_, [u8]> {
    if field.is_ascii() {
        return Cow::Borrowed(field);
    }
    let ascii = |text: &[u8]| text.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }).collect::<Vec<u8>>();
    let Some(colon) = memchr::memchr(b':', field) else { return Cow::Owned(ascii(field)) };
    let (name, value) = field.split_at(colon + 1);
    let (mut out, value) = (ascii(name), unfolded(value));
    if name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-")) {
        parameters(&value, &mut out);
    } else {
        words(&value, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    Cow::Owned(out)
}

/// The value on one line, without blanks at its ends.
fn unfolded(value: &[u8]) -> Vec<u8> {
    let joined: Vec<u8> = value.iter().filter(|byte| !b"\r\n".contains(byte)).copied().collect();
    joined.trim_ascii().to_vec()
}

/// Neighbours that are to be encoded become one text, since blanks between encoded words do not count.
fn words(value: &[u8], out: &mut Vec<u8>) {
    let tokens: Vec<&[u8]> = value.split(|byte| b" \t".contains(byte)).filter(|token| !token.is_empty()).collect();
    for (place, run) in tokens.chunk_by(|a, b| a.is_ascii() == b.is_ascii()).enumerate() {
        out.extend_from_slice(if place == 0 { b" " } else { b"\r\n " });
        let text = run.join(&b' ');
        if text.is_ascii() {
            out.extend_from_slice(&text);
        } else {
            let name: Vec<u8> = text.iter().filter(|byte| **byte != b'"').copied().collect();
            out.extend_from_slice(encoded(&name, "\r\n ").as_bytes());
        }
    }
}

/// The values of parameters, in quotes or not.
fn parameters(value: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    let mut rest = value;
    while let Some(first) = rest.first() {
        let quoted = *first == b'"';
        let inside = rest.get(usize::from(quoted)..).unwrap_or_default();
        let ends = |byte: &u8| if quoted { *byte == b'"' } else { b"\"; =\t".contains(byte) };
        let end = inside.iter().position(ends).unwrap_or(inside.len());
        let text = inside.get(..end).unwrap_or_default();
        let next = inside.get(end..).unwrap_or_default();
        match (text.is_ascii(), quoted) {
            (true, true) => out.extend([b"\"", text, b"\""].concat()),
            (true, false) => out.extend_from_slice(text),
            (false, _) => out.extend_from_slice(format!("\"{}\"", encoded(text, "\r\n ")).as_bytes()),
        }
        let delimiter = usize::from(!next.is_empty());
        if !quoted && delimiter == 1 && next.first() != Some(&b'"') {
            out.extend(next.first());
        }
        let opens = !quoted && next.first() == Some(&b'"');
        rest = next.get(if opens { 0 } else { delimiter }..).unwrap_or_default();
    }
}

/// The text as encoded words.
fn encoded(text: &[u8], between: &str) -> String {
    let (charset, pieces): (_, Vec<&[u8]>) = match std::str::from_utf8(text) {
        Ok(text) => ("utf-8", pieces_of(text)),
        Err(_) => ("unknown-8bit", text.chunks(WORD_OCTETS).collect()),
    };
    let word = |piece: &&[u8]| {
        let inside: String = piece.iter().map(|byte| letter(*byte)).collect();
        format!("=?{charset}?q?{inside}?=")
    };
    pieces.iter().map(word).collect::<Vec<_>>().join(between)
}

/// Pieces of whole characters.
fn pieces_of(text: &str) -> Vec<&[u8]> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = (1..=WORD_OCTETS.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        pieces.push(piece.as_bytes());
        rest = behind;
    }
    pieces
}

fn letter(byte: u8) -> String {
    match byte {
        b' ' => "_".to_owned(),
        _ if byte.is_ascii_alphanumeric() || b"!*+-/".contains(&byte) => char::from(byte).to_string(),
        _ => escaped(byte).map(char::from).iter().collect(),
    }
}
