//! Reads a message from the connection: in the form of DATA, with dots escaped, or as BDAT chunks.
//!
//! Only CR LF `.` CR LF ends DATA (RFC 5321 section 4.1.1.4). A bare CR, a bare LF or a NUL is a fault of the message: it is read to its
//! true end, and refused there. So no two servers can disagree about where a message ends (SMTP smuggling, CVE-2023-51764). Text is handed
//! on in place: one slice of the input for each run between stuffed dots. If the input is split, at most `.` and CR are held back. Cost:
//! one vectorised search per line.
//!
//! Some programs of users (printers, scanners, scripts) do send bare CR and LF and lines without end. A reader that repairs them
//! ([`BodyReader::mending`]) hands on CR LF for each of them and only notes long lines. The end of such a message is recognised in the same
//! way as of any other, and the text that is handed on has no bare CR or LF. So a false end becomes a line with a dot, which is escaped
//! when the message is sent on.

use memchr::memchr3;

/// What the reader found next.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan<'a> {
    /// Text of the message, dots unstuffed.
    Piece(&'a [u8]),
    /// The end of DATA. The input after it is untouched.
    End,
    /// More input is needed.
    More,
}

/// Why a message cannot be accepted. If there are several faults, the last one in this list is reported, wherever it was in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A line longer than the limit.
    LongLine,
    /// A NUL octet.
    Nul,
    /// A CR that is not followed by LF.
    BareCr,
    /// A LF that is not preceded by CR.
    BareLf,
    /// More octets than the limit.
    TooBig,
}

/// Properties of a message's text that matter to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TextTraits {
    /// It has octets above 127.
    pub eight_bit: bool,
    /// It has lines longer than the limit, which were let through.
    pub long_lines: bool,
}

/// The position in the present line, as the octets so far define it.
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
    /// After a bare CR or LF; the CR LF that replaces it is still to be handed on.
    Owed,
    /// After the CR LF that replaced a bare CR or LF.
    MendedStart,
    /// After a dot at the beginning of a line that follows a bare CR or LF.
    MendedDot,
}

/// The reader of one message.
#[derive(Clone, Debug)]
pub struct BodyReader {
    place: LinePosition,
    /// How many octets of the present line were read so far.
    column: u32,
    /// The longest line; 0 means that any length is allowed.
    line_max: u32,
    /// How many octets of the message were read so far, whether they were handed on or not.
    bytes: u64,
    bytes_max: u64,
    dots: bool,
    /// Whether bare CR and LF become line ends, and long lines are noted instead of refused.
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

    /// A reader of BDAT chunks: dots have no meaning, and the caller knows where the message ends.
    pub fn chunks(line_max: u32, bytes_max: u64) -> BodyReader {
        BodyReader { dots: false, ..BodyReader::data(line_max, bytes_max) }
    }

    /// The same reader, which mends line ends and lets long lines through if `mends` is set.
    #[must_use]
    pub fn mending(self, mends: bool) -> BodyReader {
        BodyReader { mends, ..self }
    }

    /// Properties of the text so far.
    pub fn traits(&self) -> TextTraits {
        self.traits
    }

    /// How many octets of the message were read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The worst fault so far. After a fault, no more text is handed out, but the end is still found.
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
                // A client that ends lines with LF alone may double dots all the same. A dot that is not doubled is text.
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

    /// Ends the last chunk. Returns what completes an unfinished line.
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
            // These states occur only in DATA, which does not end here.
            LinePosition::Dot | LinePosition::DotCr | LinePosition::MendedDot => b"",
        }
    }

    /// Tells the reader that the caller has handed on what [`BodyReader::finish`] returned.
    pub fn completed(&mut self) {
        self.place = LinePosition::LineStart;
        self.column = 0;
    }

    fn step<'a>(&mut self, place: LinePosition, input: &mut &'a [u8], rest: &'a [u8]) {
        self.place = place;
        *input = rest;
    }

    /// Takes whole lines, up to the next dot at the beginning of a line or to the end of the input.
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

    /// Accounts for the line end that replaces a bare CR or LF.
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

    /// The text, whether the end was found, the fault, and the input after the end.
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

    /// The text that a repairing reader hands on if the input comes octet by octet.
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
