//! Lines of any input, one at a time, in bounded memory.
//!
//! A line is given without its end (LF or CRLF). Of a line longer than the limit only the beginning is kept, and the
//! line says that it was cut: a file without a single newline costs time but no memory.

use std::io::{self, BufRead, Read};

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    limit: usize,
    number: u64,
    line: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawLine<'a> {
    /// Its bytes, without the line's end.
    pub(crate) bytes: &'a [u8],
    /// The first is 1.
    pub(crate) number: u64,
    /// More bytes followed and were dropped.
    pub(crate) cut: bool,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`, each cut after `limit` bytes.
    pub(crate) fn new(input: R, limit: usize) -> Lines<R> {
        Lines { input, limit, number: 0, line: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.line.clear();
        let whole = self.limit as u64 + 1;
        if self.input.by_ref().take(whole).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let cut = self.line.len() > self.limit && !self.line.ends_with(b"\n");
        if cut {
            self.input.skip_until(b'\n')?;
            self.line.truncate(self.limit);
        }
        self.number += 1;
        Ok(Some(RawLine { bytes: without_end(&self.line), number: self.number, cut }))
    }
}

impl RawLine<'_> {
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], limit: usize) -> Vec<(String, bool)> {
        let mut lines = Lines::new(input, limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.text().into_owned(), line.cut));
        }
        found
    }

    #[test]
    fn lines_end_as_they_like() {
        let found = all(b"a\r\n\nbc\n\0d", 10);
        let texts: Vec<&str> = found.iter().map(|l| l.0.as_str()).collect();
        assert_eq!(texts, ["a", "", "bc", "\0d"]);
        assert!(all(b"", 10).is_empty());
    }

    #[test]
    fn an_endless_line_is_cut_and_the_next_one_is_whole() {
        let mut input = vec![b'x'; 100_000];
        input.extend_from_slice(b"\nnext");
        assert_eq!(all(&input, 4), [("xxxx".into(), true), ("next".into(), false)]);
        assert_eq!(all(b"1234\n5", 4), [("1234".into(), false), ("5".into(), false)]);
        assert_eq!(all(b"12345\n5", 4), [("1234".into(), true), ("5".into(), false)]);
    }
}
