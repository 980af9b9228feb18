//! Prepares the text of a message for sending: doubles dots at the beginning of lines, and makes all line ends CR LF (RFC 5321 sections
//! 2.3.8 and 4.5.2).
//!
//! It works on pieces of any length and keeps two flags between them. Mail that came in through our own server has only CR LF. A bare CR or
//! LF from elsewhere becomes a line end, so that nothing in a body can look like the end of data to the next server (SMTP smuggling). Cost:
//! one pass.

/// The state at the end of the last piece.
#[derive(Debug)]
pub struct Stuffing {
    line_start: bool,
    after_cr: bool,
}

impl Default for Stuffing {
    fn default() -> Stuffing {
        Stuffing { line_start: true, after_cr: false }
    }
}

impl Stuffing {
    /// Appends a piece in the form for DATA.
    pub fn stuff(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        self.each_run(piece, out, true);
    }

    /// Appends a piece in the form for BDAT: only line ends are changed.
    pub fn normalise(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        self.each_run(piece, out, false);
    }

    /// Appends the end of data.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.end_line(out);
        out.extend_from_slice(b".\r\n");
    }

    /// Ends the last line if the body did not.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        if self.after_cr {
            out.push(b'\n');
        } else if !self.line_start {
            out.extend_from_slice(b"\r\n");
        }
        *self = Stuffing::default();
    }

    fn each_run(&mut self, piece: &[u8], out: &mut Vec<u8>, dots: bool) {
        let mut rest = piece;
        while let Some(first) = rest.first() {
            if self.after_cr && *first != b'\n' {
                out.push(b'\n');
                (self.after_cr, self.line_start) = (false, true);
            }
            if dots && self.line_start && *first == b'.' {
                out.push(b'.');
            }
            rest = self.run(rest, out);
        }
    }

    /// Copies everything up to the next CR or LF, including it.
    fn run<'a>(&mut self, rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let Some(end) = memchr::memchr2(b'\r', b'\n', rest) else {
            out.extend_from_slice(rest);
            self.line_start = false;
            return &[];
        };
        let (run, behind) = rest.split_at(end);
        out.extend_from_slice(run);
        match behind {
            [b'\r', b'\n', behind @ ..] => self.ended(b"\r\n", behind, out),
            [b'\r', behind @ ..] => {
                out.push(b'\r');
                (self.after_cr, self.line_start) = (true, false);
                behind
            }
            [b'\n', behind @ ..] if self.after_cr && run.is_empty() => self.ended(b"\n", behind, out),
            [_, behind @ ..] => self.ended(b"\r\n", behind, out),
            [] => &[],
        }
    }

    fn ended<'a>(&mut self, end: &[u8], behind: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        out.extend_from_slice(end);
        *self = Stuffing::default();
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stuffed(pieces: &[&[u8]]) -> String {
        let (mut stuffing, mut out) = (Stuffing::default(), Vec::new());
        pieces.iter().for_each(|piece| stuffing.stuff(piece, &mut out));
        stuffing.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dots_at_the_start_of_a_line_are_doubled() {
        assert_eq!(stuffed(&[b".a\r\n..\r\nb.\r\n.\r\n"]), "..a\r\n...\r\nb.\r\n..\r\n.\r\n");
        assert_eq!(stuffed(&[]), ".\r\n");
        assert_eq!(stuffed(&[b"a"]), "a\r\n.\r\n");
    }

    #[test]
    fn no_bare_line_end_gets_through() {
        assert_eq!(stuffed(&[b"a\n.\nb"]), "a\r\n..\r\nb\r\n.\r\n");
        assert_eq!(stuffed(&[b"a\r.\rb\r"]), "a\r\n..\r\nb\r\n.\r\n");
        assert_eq!(stuffed(&[b"a\r\r\n.\r\n"]), "a\r\n\r\n..\r\n.\r\n");
    }

    fn naive(body: &[u8]) -> Vec<u8> {
        let text: Vec<char> = body.iter().map(|byte| char::from(*byte)).collect();
        let text: String = text.into_iter().collect();
        let mut text = text.replace("\r\n", "\n").replace('\r', "\n");
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let lines =
            text.split_inclusive('\n').map(|line| if line.starts_with('.') { format!(".{line}") } else { line.into() });
        lines.collect::<String>().replace('\n', "\r\n").chars().map(|c| c as u8).collect()
    }

    proptest! {
        #[test]
        fn any_cuts_give_what_the_naive_model_gives(
            body in proptest::collection::vec(prop_oneof![Just(b'.'), Just(b'\r'), Just(b'\n'), Just(b'a')], 0..60),
            cut in 0usize..60,
        ) {
            let cut = cut.min(body.len());
            let (mut stuffing, mut out) = (Stuffing::default(), Vec::new());
            stuffing.stuff(&body[..cut], &mut out);
            stuffing.stuff(&body[cut..], &mut out);
            stuffing.finish(&mut out);
            let mut expected = naive(&body);
            expected.extend_from_slice(b".\r\n");
            prop_assert_eq!(out, expected);
        }
    }
}
