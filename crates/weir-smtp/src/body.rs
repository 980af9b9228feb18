//! Reads a message from the connection: in the form of DATA, with dots escaped, or as BDAT chunks.
//!
//! Only CR LF `.` CR LF ends DATA (RFC 5321 section 4.1.1.4). A bare CR, a bare LF or a NUL is a fault of the message: it is read to its
//! true end, and refused there. So no two servers can disagree about where a message ends (SMTP smuggling, CVE-2023-51764). Text is handed
//! on in place: one slice of the input for each run between stuffed dots. If the input is split, at most `.` and CR are held back. Cost:
//! one vectorised search per line.
//!
//! Users' own programs (printers, scanners, scripts) do send bare CR and LF and lines without end. A reader that repairs them
//! ([`BodyReader::mending`]) hands on CR LF for each of them and only notes long lines. A message ends in the same way, and the text that
//! is handed on has no bare CR or LF. So a false end becomes a line of text with a dot, which is escaped on its way out.

use memchr::memchr3;

/// What the reader found next.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan<'a> {
    /// Text of the message, dots unstuffed.
    Piece(&'a [u8]),
    /// The end of DATA; input behind it is untouched.
    End,
    /// The input is used up.
    More,
}

/// Why a message cannot be taken; of several the greatest is told, wherever it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A line longer than the limit.
    LongLine,
    /// A NUL octet.
    Nul,
    /// A CR that no LF follows.
    BareCr,
    /// A LF that no CR precedes.
    BareLf,
    /// More octets than the limit.
    TooBig,
}

/// What the text of a message is, as far as that matters to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TextTraits {
    /// It has octets above 127.
    pub eight_bit: bool,
    /// It has lines longer than the limit, which were let through.
    pub long_lines: bool,
}

/// Where in a line the input stood.
///
/// `LineStart → Dot → DotCr →` end; `LineStart | Mid → Cr → LineStart`; every state may go to `Mid`. Where line ends are mended,
/// also `→ Owed → MendedStart → MendedDot → Mid`: from there no end is reached without a true line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// After CR LF, or before the first octet.
    LineStart,
    /// Inside a line, or after a bare LF.
    Mid,
    /// After a CR that has not been handed on.
    Cr,
    /// After the dot that opens a line.
    Dot,
    /// After a line's opening dot and a CR.
    DotCr,
    /// After a bare CR or LF, for which CR LF is still to be handed on.
    Owed,
    /// After that CR LF.
    MendedStart,
    /// After a dot that opens a line which a bare CR or LF precedes.
    MendedDot,
}

/// The reader of one message.
#[derive(Clone, Debug)]
pub struct BodyReader {
    place: LinePosition,
    /// Octets of the present line so far.
    column: u32,
    /// The longest line; 0 means any.
    line_max: u32,
    /// Octets of the message so far, whether handed on or not.
    bytes: u64,
    bytes_max: u64,
    dots: bool,
    /// Bare CR and LF are made line ends, and long lines are noted instead of refused.
    mends: bool,
    traits: TextTraits,
    fault: Option<Fault>,
}

const CRLF: &[u8] = b"\r\n";

impl BodyReader {
    /// A reader of DATA: dots are unstuffed and a dot alone ends the message.
    pub fn data(line_max: u32, bytes_max: u64) -> BodyReader {
        BodyReader {
            place: LinePosition::LineStart,
            column: 0,
            line_max,
            bytes: 0,
            bytes_max,
            dots: true,
            mends: false,
            traits: TextTraits::default(),
            fault: None,
        }
    }

    /// A reader of BDAT chunks: dots mean nothing and the caller knows the end.
    pub fn chunks(line_max: u32, bytes_max: u64) -> BodyReader {
        BodyReader { dots: false, ..BodyReader::data(line_max, bytes_max) }
    }

    /// The same reader, which mends line ends and lets long lines through if `mends` is set.
    #[must_use]
    pub fn mending(self, mends: bool) -> BodyReader {
        BodyReader { mends, ..self }
    }

    /// What the text so far is.
    pub fn traits(&self) -> TextTraits {
        self.traits
    }

    /// Octets of the message so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The worst fault so far. After it no more pieces are handed out; the end is still found.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The next piece of `input`, which is advanced past it.
    pub fn scan<'a>(&mut self, input: &mut &'a [u8]) -> Scan<'a> {
        while let Some((&first, rest)) = input.split_first() {
            match (self.place, first) {
                (LinePosition::LineStart, b'.') if self.dots => self.step(LinePosition::Dot, input, rest),
                (LinePosition::LineStart | LinePosition::Mid, _) => {
                    let piece = self.text(input);
                    if self.fault.is_none() && !piece.is_empty() {
                        return Scan::Piece(piece);
                    }
                }
                (LinePosition::Cr, b'\n') => {
                    self.column = 0;
                    self.enlarge(2);
                    self.step(LinePosition::LineStart, input, rest);
                    if self.fault.is_none() {
                        return Scan::Piece(CRLF);
                    }
                }
                (LinePosition::Dot, b'\r') => self.step(LinePosition::DotCr, input, rest),
                (LinePosition::DotCr, b'\n') => {
                    *input = rest;
                    return Scan::End;
                }
                (LinePosition::Dot, _) => self.place = LinePosition::Mid,
                (LinePosition::Cr | LinePosition::DotCr, _) if self.mends => self.place = LinePosition::Owed,
                (LinePosition::Cr | LinePosition::DotCr, _) => {
                    self.enlarge(1);
                    self.blame(Fault::BareCr);
                    self.place = LinePosition::Mid;
                }
                (LinePosition::Owed, _) => {
                    self.pay_line_end();
                    if self.fault.is_none() {
                        return Scan::Piece(CRLF);
                    }
                }
                (LinePosition::MendedStart, b'.') if self.dots => self.step(LinePosition::MendedDot, input, rest),
                (LinePosition::MendedStart, _) => self.place = LinePosition::Mid,
                // Whoever ends lines with LF alone may stuff dots all the same; a dot that is not doubled is text.
                (LinePosition::MendedDot, b'.') => self.place = LinePosition::Mid,
                (LinePosition::MendedDot, _) => {
                    self.place = LinePosition::Mid;
                    self.lengthen(1);
                    self.enlarge(1);
                    if self.fault.is_none() {
                        return Scan::Piece(b".");
                    }
                }
            }
        }
        Scan::More
    }

    /// The end of the last chunk: text that completes an unfinished line.
    pub fn finish(&mut self) -> &'static [u8] {
        match self.place {
            LinePosition::Mid => {
                self.enlarge(2);
                CRLF
            }
            LinePosition::Cr if !self.mends => {
                self.blame(Fault::BareCr);
                b""
            }
            LinePosition::Cr | LinePosition::Owed => {
                self.enlarge(2);
                CRLF
            }
            LinePosition::LineStart | LinePosition::MendedStart => b"",
            // Only DATA has dots, and it does not end here.
            LinePosition::Dot | LinePosition::DotCr | LinePosition::MendedDot => b"",
        }
    }

    /// The caller has handed on what [`BodyReader::finish`] returned.
    pub fn completed(&mut self) {
        self.place = LinePosition::LineStart;
        self.column = 0;
    }

    fn step<'a>(&mut self, place: LinePosition, input: &mut &'a [u8], rest: &'a [u8]) {
        self.place = place;
        *input = rest;
    }

    /// Whole lines up to the next dot that opens a line, or to the end of the input.
    fn text<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let all = *input;
        let mut rest = all;
        let mut place = self.place;
        let held = loop {
            let Some(at) = memchr3(b'\r', b'\n', 0, rest) else {
                self.lengthen(rest.len());
                place = if rest.is_empty() { place } else { LinePosition::Mid };
                rest = &[];
                break 0;
            };
            self.lengthen(at);
            let (_, tail) = rest.split_at(at);
            match tail {
                [b'\r'] => {
                    place = LinePosition::Cr;
                    rest = &[];
                    break 1;
                }
                [b'\r', b'\n', after @ ..] => {
                    self.column = 0;
                    place = LinePosition::LineStart;
                    rest = after;
                    if self.dots && after.first() == Some(&b'.') {
                        break 0;
                    }
                }
                [b'\r' | b'\n', after @ ..] if self.mends => {
                    place = LinePosition::Owed;
                    rest = after;
                    break 1;
                }
                [wrong, after @ ..] => {
                    self.blame(fault_of(*wrong));
                    place = LinePosition::Mid;
                    rest = after;
                }
                [] => break 0,
            }
        };
        self.place = place;
        *input = rest;
        let piece = all.get(..all.len() - rest.len() - held).unwrap_or_default();
        self.enlarge(piece.len());
        self.traits.eight_bit |= !piece.is_ascii();
        piece
    }

    /// The line end that stands for a bare CR or LF.
    fn pay_line_end(&mut self) {
        self.column = 0;
        self.enlarge(2);
        self.place = LinePosition::MendedStart;
    }

    fn lengthen(&mut self, by: usize) {
        self.column = self.column.saturating_add(u32::try_from(by).unwrap_or(u32::MAX));
        if self.line_max > 0 && self.column > self.line_max {
            if self.mends {
                self.traits.long_lines = true;
            } else {
                self.blame(Fault::LongLine);
            }
        }
    }

    fn enlarge(&mut self, by: usize) {
        self.bytes = self.bytes.saturating_add(by as u64);
        if self.bytes > self.bytes_max {
            self.blame(Fault::TooBig);
        }
    }

    fn blame(&mut self, fault: Fault) {
        self.fault = self.fault.max(Some(fault));
    }
}

fn fault_of(octet: u8) -> Fault {
    match octet {
        b'\n' => Fault::BareLf,
        0 => Fault::Nul,
        _ => Fault::BareCr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text, whether the end was found, fault, and what is left behind the end.
    fn read(mut input: &[u8]) -> (Vec<u8>, bool, Option<Fault>, &[u8]) {
        let (mut reader, mut text) = (BodyReader::data(998, 9_999), Vec::new());
        loop {
            match reader.scan(&mut input) {
                Scan::Piece(piece) => text.extend_from_slice(piece),
                Scan::End => return (text, true, reader.fault(), input),
                Scan::More => return (text, false, reader.fault(), input),
            }
        }
    }

    #[test]
    fn dots_are_unstuffed() {
        assert_eq!(read(b"a\r\n..b\r\n.c\r\n.\r\nQUIT"), (b"a\r\n.b\r\nc\r\n".to_vec(), true, None, &b"QUIT"[..]));
        assert_eq!(read(b".\r\n"), (vec![], true, None, &b""[..]));
        assert_eq!(read(b"...\r\n.\r\n"), (b"..\r\n".to_vec(), true, None, &b""[..]));
    }

    #[test]
    fn a_plain_message_is_one_piece() {
        let mut input: &[u8] = b"Subject: x\r\n\r\nbody.\r\nbody\r\n.\r\n";
        let mut reader = BodyReader::data(998, 9_999);
        assert_eq!(reader.scan(&mut input), Scan::Piece(b"Subject: x\r\n\r\nbody.\r\nbody\r\n"));
        assert_eq!(reader.scan(&mut input), Scan::End);
    }

    #[test]
    fn a_line_of_998_octets_is_allowed_and_its_stuffing_does_not_count() {
        let line = |n: usize| [vec![b'x'; n], b"\r\n.\r\n".to_vec()].concat();
        assert_eq!(read(&line(998)).2, None);
        assert_eq!(read(&line(999)).2, Some(Fault::LongLine));
        let stuffed = [b"..".to_vec(), line(997)].concat();
        assert_eq!(read(&stuffed).2, None);
    }

    #[test]
    fn the_size_is_counted_after_unstuffing_and_outweighs_other_faults() {
        let fault = |text: &[u8], max| {
            let (mut reader, mut input) = (BodyReader::data(998, max), text);
            while reader.scan(&mut input) != Scan::End {}
            (reader.bytes(), reader.fault())
        };
        assert_eq!(fault(b"..\r\nab\r\n.\r\n", 7), (7, None));
        assert_eq!(fault(b"..\r\nab\r\n.\r\n", 6), (7, Some(Fault::TooBig)));
        assert_eq!(fault(b"a\nb\r\n.\r\n", 1), (5, Some(Fault::TooBig)));
    }

    /// The text as a reader hands it on that mends, cut at every octet.
    fn mended(input: &[u8]) -> (String, TextTraits) {
        let (mut reader, mut text) = (BodyReader::data(20, 9_999).mending(true), Vec::new());
        for mut octet in input.chunks(1) {
            while let Scan::Piece(piece) = reader.scan(&mut octet) {
                text.extend_from_slice(piece);
            }
        }
        (String::from_utf8(text).unwrap(), reader.traits())
    }

    #[test]
    fn a_mending_reader_makes_line_ends_of_bare_cr_and_lf_and_notes_long_lines() {
        for (sent, text) in [
            (&b"a\nb\rc\r\n.\r\n"[..], "a\r\nb\r\nc\r\n"),
            (b"a\n\n.\nb\r\n.\r\n", "a\r\n\r\n.\r\nb\r\n"),
            (b"a\n..b\n...c\r\n.\r\n", "a\r\n.b\r\n..c\r\n"),
            (b"a\n.\r\nb\r\n.\r\n", "a\r\n.\r\nb\r\n"),
            (b"a\r\n.\nb\r\n.\r\n", "a\r\n\r\nb\r\n"),
            (b"a\r\r\n.\r\n", "a\r\n\r\n"),
            (b"a\r\n.\rb\r\n.\r\n", "a\r\n\r\nb\r\n"),
        ] {
            assert_eq!(mended(sent).0, text, "{:?}", String::from_utf8_lossy(sent));
        }
        assert_eq!(mended(b"short\n.\r\n").1, TextTraits::default());
        assert!(mended(b"a line of more than twenty\r\n").1.long_lines);
        assert!(mended("gr\u{fc}n\r\n".as_bytes()).1.eight_bit);
    }

    #[test]
    fn chunks_know_no_dots_and_complete_the_last_line() {
        let mut reader = BodyReader::chunks(998, 9_999);
        let mut input: &[u8] = b"a\r\n.\r\nb";
        assert_eq!(reader.scan(&mut input), Scan::Piece(b"a\r\n.\r\nb"));
        assert_eq!((reader.finish(), reader.fault()), (CRLF, None));
        let mut input: &[u8] = b"\r";
        assert_eq!(reader.scan(&mut input), Scan::More);
        assert_eq!((reader.finish(), reader.fault()), (&b""[..], Some(Fault::BareCr)));
    }
}
