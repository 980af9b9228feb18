//! The relaxed forms of header and body (RFC 6376 section 3.4).
//!
//! A bare CR or LF in a body counts as a line end, because the client that sends the body makes it one.

use crate::header_field;

/// One header field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    /// The text after the colon with its original line folds, but without the last line end.
    pub(super) value: &'a [u8],
}

/// The fields of a header, from the top. Lines that are not a field are skipped.
pub(super) fn fields(header: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = header;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (field, behind) = rest.split_at(header_field::end(rest));
            rest = behind;
            let Some(colon) = memchr::memchr(b':', field) else { continue };
            let (name, value) = field.split_at(colon);
            let value = value.get(1..).unwrap_or_default();
            let value = value.strip_suffix(b"\r\n").unwrap_or(value);
            return Some(Field { name: name.trim_ascii_end(), value });
        }
        None
    })
}

/// Appends a field in its relaxed form.
pub(super) fn canonical_header(field: &Field<'_>, out: &mut Vec<u8>) {
    out.extend(field.name.iter().map(u8::to_ascii_lowercase));
    out.push(b':');
    let start = out.len();
    for byte in field.value {
        match byte {
            b'\r' | b'\n' => {}
            b' ' | b'\t' => {
                if out.len() > start && out.last() != Some(&b' ') {
                    out.push(b' ');
                }
            }
            byte => out.push(*byte),
        }
    }
    if out.len() > start && out.last() == Some(&b' ') {
        out.pop();
    }
    out.extend_from_slice(b"\r\n");
}

/// Brings a body into its relaxed form, piece by piece.
#[derive(Clone, Default, Debug)]
pub(super) struct BodyCanon {
    space: bool,
    line_ends: u64,
    after_cr: bool,
    any: bool,
}

/// After this many consecutive line ends, `relieve` is called.
const LINE_ENDS_AT_ONCE: u64 = 4096;

impl BodyCanon {
    /// Appends a piece. `relieve` may take the text away, so that a body with millions of empty lines before its last letter need not be in
    /// memory as a whole.
    pub(super) fn write(&mut self, piece: &[u8], out: &mut Vec<u8>, relieve: &mut dyn FnMut(&mut Vec<u8>)) {
        for byte in piece {
            if std::mem::take(&mut self.after_cr) && *byte != b'\n' {
                self.end_line();
            }
            match byte {
                b'\r' => self.after_cr = true,
                b'\n' => self.end_line(),
                b' ' | b'\t' => self.space = true,
                byte => self.text(*byte, out, relieve),
            }
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.any {
            out.extend_from_slice(b"\r\n");
        }
    }

    fn end_line(&mut self) {
        self.space = false;
        self.line_ends += 1;
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>, relieve: &mut dyn FnMut(&mut Vec<u8>)) {
        self.any = true;
        // Line ends count only if text follows; at the end of the body they do not.
        for number in 1..=std::mem::take(&mut self.line_ends) {
            out.extend_from_slice(b"\r\n");
            if number % LINE_ENDS_AT_ONCE == 0 {
                relieve(out);
            }
        }
        if std::mem::take(&mut self.space) {
            out.push(b' ');
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Vec<String> {
        fields(text.as_bytes())
            .map(|field| {
                let mut out = Vec::new();
                canonical_header(&field, &mut out);
                String::from_utf8(out).unwrap()
            })
            .collect()
    }

    fn body(text: &str) -> String {
        let (mut canon, mut out) = (BodyCanon::default(), Vec::new());
        canon.write(text.as_bytes(), &mut out, &mut |_| {});
        canon.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn millions_of_empty_lines_cost_no_memory() {
        let (mut canon, mut out, mut taken) = (BodyCanon::default(), Vec::new(), 0);
        for _ in 0..1_000 {
            canon.write(&b"\r\n".repeat(1_000), &mut out, &mut |_| {});
        }
        assert!(out.is_empty());
        canon.write(b"x", &mut out, &mut |out| taken += std::mem::take(out).len());
        assert!(out.len() < 20_000, "{}", out.len());
        assert_eq!(taken + out.len(), 2_000_001);
    }

    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(header("A: X\r\nB : Y\t\r\n\tZ  \r\n"), ["a:X\r\n", "b:Y Z\r\n"]);
        assert_eq!(body(" C \r\nD \t E\r\n\r\n\r\n"), " C\r\nD E\r\n");
        assert_eq!(body(""), "");
        assert_eq!(body("\r\n\r\n"), "");
        assert_eq!(body("a"), "a\r\n");
        assert_eq!(body("a\n\rb\r"), "a\r\n\r\nb\r\n");
    }

    #[test]
    fn odd_headers_do_no_harm() {
        assert_eq!(header("nonsense\r\n folded\r\nA:\r\n \r\nB:b"), ["a:\r\n", "b:b\r\n"]);
        assert!(header("").is_empty() && header(":::\r\n").len() == 1);
    }
}
