//! Quoted-printable and base64 (RFC 2045 sections 6.7 and 6.8), for text that comes in pieces.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Characters in a line of quoted-printable, with the sign that it goes on.
const QUOTED_LINE: usize = 76;
/// Octets in a line of base64, which are 76 characters.
const BASE64_LINE: usize = 57;
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// An encoder of quoted-printable.
#[derive(Debug, Default)]
pub(super) struct QuotedPrintable {
    column: usize,
    /// A blank that must be encoded if its line ends there.
    blank: Option<u8>,
}

impl QuotedPrintable {
    /// Text without line ends.
    pub(super) fn write(&mut self, text: &[u8], out: &mut Vec<u8>) {
        for byte in text {
            if let Some(blank) = self.blank.take() {
                self.put(&[blank], out);
            }
            match byte {
                b' ' | b'\t' => self.blank = Some(*byte),
                // Some servers double a dot at the beginning of a line and forget to take it away again.
                b'.' if self.column == 0 => self.put(&escaped(b'.'), out),
                b'=' | 0..=31 | 127.. => self.put(&escaped(*byte), out),
                _ => self.put(&[*byte], out),
            }
        }
    }

    /// A line end of the text.
    pub(super) fn line_end(&mut self, out: &mut Vec<u8>) {
        self.finish(out);
        out.extend_from_slice(b"\r\n");
        self.column = 0;
    }

    /// The end of the text.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(blank) = self.blank.take() {
            self.put(&escaped(blank), out);
        }
    }

    fn put(&mut self, token: &[u8], out: &mut Vec<u8>) {
        if self.column + token.len() >= QUOTED_LINE {
            out.extend_from_slice(b"=\r\n");
            self.column = 0;
            if token == b"." {
                return self.put(&escaped(b'.'), out);
            }
        }
        out.extend_from_slice(token);
        self.column += token.len();
    }
}

/// An octet as `=` and two digits.
pub(super) fn escaped(byte: u8) -> [u8; 3] {
    [b'=', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// An encoder of base64.
#[derive(Debug, Default)]
pub(super) struct Base64 {
    line: Vec<u8>,
    /// A line stands there without its end.
    ended_none: bool,
}

impl Base64 {
    /// Any octets.
    pub(super) fn write(&mut self, mut octets: &[u8], out: &mut Vec<u8>) {
        while !octets.is_empty() {
            let (some, rest) = octets.split_at(octets.len().min(BASE64_LINE - self.line.len()));
            self.line.extend_from_slice(some);
            octets = rest;
            if self.line.len() == BASE64_LINE {
                self.put(out);
            }
        }
    }

    /// The end, with a line end behind it or without.
    pub(super) fn finish(mut self, line_end: bool, out: &mut Vec<u8>) {
        if !self.line.is_empty() {
            self.put(out);
        }
        if line_end && self.ended_none {
            out.extend_from_slice(b"\r\n");
        }
    }

    fn put(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.ended_none, true) {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(STANDARD.encode(&self.line).as_bytes());
        self.line.clear();
    }
}
