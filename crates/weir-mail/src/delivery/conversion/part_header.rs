//! The header of a part: what it says about the part, and how it is rewritten when the part is converted.

use super::encoded_word::in_seven_bits;
use crate::intake::long_lines::fold_long;
use mail_parser::{ContentType, HeaderValue, MessageParser};
use weir_smtp::header_field;

/// What a part is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PartHeader {
    pub(super) kind: PartKind,
    /// The part is covered by a signature of its sender.
    pub(super) signed: bool,
    /// The header names a type.
    typed: bool,
    /// It is the header of the whole message, and has no MIME-Version.
    lacks_version: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PartKind {
    /// It holds parts between these boundaries.
    Multipart { boundary: Vec<u8>, digest: bool, signed: bool },
    /// It is a message.
    Message,
    /// It holds no others.
    Leaf { text: bool, coding: Coding },
}

/// How a part that holds no others is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    /// As it is.
    Identity,
    /// In ASCII, or in a way that we do not know.
    Other,
}

/// What a part becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Becoming {
    QuotedPrintable {
        /// The character set of its text, where the header does not name one.
        charset: &'static str,
    },
    Base64,
    /// It holds other parts, which have no 8-bit text any more.
    SevenBit,
    /// It stays.
    Same,
}

impl PartHeader {
    /// Reads a header. Where it names no type, it is text, or a message inside a digest.
    pub(super) fn read(block: &[u8], digest: bool, top: bool, signed: bool) -> PartHeader {
        let coding = coding(block);
        let parsed = MessageParser::new().parse_headers(block);
        let named = parsed.as_ref().and_then(|message| message.header("Content-Type"));
        let content_type = named.and_then(HeaderValue::as_content_type);
        let kind = match content_type {
            _ if coding == Coding::Other => leaf(content_type, coding),
            Some(content_type) => kind(content_type),
            None if digest => PartKind::Message,
            None => leaf(None, coding),
        };
        let typed = fields(block).any(|field| is_named(field, b"content-type"));
        let lacks_version = top && !fields(block).any(|field| is_named(field, b"mime-version"));
        PartHeader { kind, signed, typed, lacks_version }
    }

    /// The header of the part once it is converted. In seven bits, 8-bit text in fields becomes encoded words.
    pub(super) fn converted(&self, block: &[u8], becoming: Becoming, seven_bit: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 100);
        let recoded = becoming != Becoming::Same;
        let (mut ended, mut had_coding) = (false, false);
        for field in fields(block) {
            if matches!(field, b"\r\n" | b"\n") {
                ended = true;
                break;
            }
            if recoded && is_named(field, b"content-transfer-encoding") {
                had_coding = true;
                continue;
            }
            let field = if seven_bit { in_seven_bits(field) } else { field.into() };
            out.extend_from_slice(&fold_long(&field));
        }
        if !out.is_empty() && !out.ends_with(b"\n") {
            out.extend_from_slice(b"\r\n");
        }
        self.add_fields(&mut out, becoming, had_coding);
        if ended || recoded {
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    fn add_fields(&self, out: &mut Vec<u8>, becoming: Becoming, had_coding: bool) {
        let coding = match becoming {
            Becoming::QuotedPrintable { .. } => "quoted-printable",
            Becoming::Base64 => "base64",
            Becoming::SevenBit if had_coding => "7bit",
            Becoming::SevenBit | Becoming::Same => return,
        };
        if self.lacks_version {
            out.extend_from_slice(b"MIME-Version: 1.0\r\n");
        }
        if let (false, Becoming::QuotedPrintable { charset }) = (self.typed, becoming) {
            out.extend_from_slice(format!("Content-Type: text/plain; charset={charset}\r\n").as_bytes());
        }
        out.extend_from_slice(format!("Content-Transfer-Encoding: {coding}\r\n").as_bytes());
    }
}

fn kind(content_type: &ContentType<'_>) -> PartKind {
    let (outer, inner) = (content_type.ctype(), content_type.subtype().unwrap_or_default());
    if outer.eq_ignore_ascii_case("multipart")
        && let Some(boundary) = content_type.attribute("boundary").filter(|boundary| !boundary.is_empty())
    {
        return PartKind::Multipart {
            boundary: boundary.as_bytes().to_vec(),
            digest: inner.eq_ignore_ascii_case("digest"),
            signed: inner.eq_ignore_ascii_case("signed"),
        };
    }
    if outer.eq_ignore_ascii_case("message") && ["rfc822", "global"].iter().any(|it| inner.eq_ignore_ascii_case(it)) {
        return PartKind::Message;
    }
    leaf(Some(content_type), Coding::Identity)
}

fn leaf(content_type: Option<&ContentType<'_>>, coding: Coding) -> PartKind {
    let text =
        content_type.is_none_or(|it| ["text", "message"].iter().any(|text| it.ctype().eq_ignore_ascii_case(text)));
    PartKind::Leaf { text, coding }
}

/// How the part is written. If one of several fields names a coding, nobody knows which of them counts.
fn coding(block: &[u8]) -> Coding {
    let plain = |field: &[u8]| {
        let value = memchr::memchr(b':', field).and_then(|colon| field.get(colon + 1..)).unwrap_or_default();
        let word = value.trim_ascii();
        [&b"7bit"[..], b"8bit", b"binary", b""].iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    let all = fields(block).filter(|field| is_named(field, b"content-transfer-encoding")).all(plain);
    if all { Coding::Identity } else { Coding::Other }
}

fn fields(mut block: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (field, rest) = block.split_at(header_field::end(block));
        block = rest;
        (!field.is_empty()).then_some(field)
    })
}

fn is_named(field: &[u8], name: &[u8]) -> bool {
    memchr::memchr(b':', field)
        .is_some_and(|colon| field.get(..colon).unwrap_or_default().trim_ascii().eq_ignore_ascii_case(name))
}
