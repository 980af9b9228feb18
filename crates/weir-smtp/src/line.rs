//! Cuts the command stream into lines.
//!
//! A line ends with CR LF. A line with a bare LF at its end, a CR elsewhere or any other control character is reported as [`Line::Bad`]: it
//! is not carried out, but the client still gets a reply. A line that lies within one piece of input is not copied; of a line that is
//! split, at most `max` octets are kept.

use memchr::memchr;

/// What the next octets hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line with its CR LF.
    Whole(&'a [u8]),
    /// The end of a line that began in earlier input. [`LineReader::take`] has the whole line.
    Joined,
    /// A line with a bare CR or LF, or another control character.
    Bad,
    /// A line longer than allowed; its end has now been seen.
    TooLong,
    /// The discard limit was reached without a line end.
    Endless,
    /// More input is needed.
    More,
}

/// Splits the input, and keeps the beginning of an unfinished line.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    partial: Vec<u8>,
    /// How many octets of the present line were discarded because it is too long; 0 if it is not.
    discarded: u64,
}

/// A larger buffer of a split line is freed, so that idle sessions stay small.
const KEEP_MAX: usize = 256;

impl LineReader {
    /// The next line of `input`, which is advanced past it.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8], max: usize, discard_max: u64) -> Line<'a> {
        let Some(end) = memchr(b'\n', input) else {
            return self.keep(std::mem::take(input), max, discard_max);
        };
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        let length = self.discarded.saturating_add((self.partial.len() + line.len()) as u64);
        if self.discarded > 0 || length > max as u64 {
            self.clear();
            return if length > discard_max.max(max as u64) { Line::Endless } else { Line::TooLong };
        }
        if self.partial.is_empty() {
            return if is_clean(line) { Line::Whole(line) } else { Line::Bad };
        }
        self.partial.extend_from_slice(line);
        if is_clean(&self.partial) {
            return Line::Joined;
        }
        self.clear();
        Line::Bad
    }

    /// The line that was joined. Give it back with [`LineReader::put_back`].
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Takes the buffer back for the next split line.
    pub(crate) fn put_back(&mut self, mut line: Vec<u8>) {
        // The line may have contained a password.
        line.fill(0);
        if line.capacity() <= KEEP_MAX {
            line.clear();
            self.partial = line;
        }
    }

    /// Forgets an unfinished line.
    pub(crate) fn clear(&mut self) {
        self.discarded = 0;
        let line = self.take();
        self.put_back(line);
    }

    /// How many octets of memory are held.
    pub(crate) fn buffered(&self) -> usize {
        self.partial.capacity()
    }

    fn keep(&mut self, piece: &[u8], max: usize, discard_max: u64) -> Line<'static> {
        if self.discarded == 0 && self.partial.len() + piece.len() <= max {
            self.partial.extend_from_slice(piece);
            return Line::More;
        }
        let held = self.take().len();
        self.discarded = self.discarded.saturating_add((held + piece.len()) as u64);
        if self.discarded > discard_max { Line::Endless } else { Line::More }
    }
}

/// Whether the line ends with CR LF and holds no other control character.
fn is_clean(line: &[u8]) -> bool {
    line.strip_suffix(b"\r\n").is_some_and(|text| !text.iter().any(|byte| byte.is_ascii_control()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `input` fed in pieces of `size` octets, as text; `!` bad, `#` too long, `$` endless.
    fn lines(input: &[u8], size: usize) -> Vec<String> {
        let (mut reader, mut lines) = (LineReader::default(), Vec::new());
        for mut piece in input.chunks(size) {
            loop {
                lines.push(match reader.next(&mut piece, 16, 100) {
                    Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Line::Joined => {
                        let line = reader.take();
                        let text = String::from_utf8(line.clone()).unwrap();
                        reader.put_back(line);
                        text
                    }
                    Line::Bad => "!".into(),
                    Line::TooLong => "#".into(),
                    Line::Endless => return vec!["$".into()],
                    Line::More => break,
                });
                assert!(reader.buffered() <= 64);
            }
        }
        lines
    }

    #[test]
    fn every_split_gives_the_same_lines() {
        let input = b"NOOP\r\nbare\nQU\rIT\r\nnul\0\r\n0123456789abcd\r\n0123456789abcde\r\nRSET\r\n";
        let whole = ["NOOP\r\n", "!", "!", "!", "0123456789abcd\r\n", "#", "RSET\r\n"];
        for size in 1..input.len() {
            assert_eq!(lines(input, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_given_up() {
        assert_eq!(lines(&[b'x'; 500], 7), ["$"]);
        assert_eq!(lines(&[[b'x'; 90].as_slice(), b"\r\n"].concat(), 7), ["#"]);
    }
}
