//! Lines of a header that are longer than RFC 5321 allows: some programs write all recipients on one.

use std::borrow::Cow;

/// The longest line, without its end.
const LINE_MAX: usize = 998;
/// Where there is a blank to break at, lines are made about this long.
const COMFORTABLE: usize = 900;

/// The same header with its long lines folded: before a blank where there is one, or else with a blank more.
pub(crate) fn fold_long(header: &[u8]) -> Cow<'_, [u8]> {
    let is_long = |line: &[u8]| without_end(line).len() > LINE_MAX;
    if header.len() <= LINE_MAX || !header.split_inclusive(|byte| *byte == b'\n').any(is_long) {
        return Cow::Borrowed(header);
    }
    let mut out = Vec::with_capacity(header.len() + 100);
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        if is_long(line) {
            fold(line, &mut out);
        } else {
            out.extend_from_slice(line);
        }
    }
    Cow::Owned(out)
}

fn fold(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while without_end(rest).len() > LINE_MAX {
        let start = rest.get(..COMFORTABLE).unwrap_or(rest);
        // Not at the very beginning: a line of blanks alone is taken for the end of a header by some.
        let blank =
            start.iter().rposition(|byte| b" \t".contains(byte)).filter(|at| !start[..*at].trim_ascii().is_empty());
        let at = blank.unwrap_or_else(|| between_characters(rest, COMFORTABLE));
        let (folded, behind) = rest.split_at(at);
        out.extend_from_slice(folded);
        out.extend_from_slice(if blank.is_some() { b"\r\n" } else { b"\r\n " });
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// The nearest place at or before `at` that is not inside a UTF-8 character.
fn between_characters(text: &[u8], at: usize) -> usize {
    let inside = |at: usize| text.get(at).is_some_and(|byte| (0x80..0xc0).contains(byte));
    (at - 3..=at).rev().find(|at| !inside(*at)).unwrap_or(at)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_and_unfolded_they_are_the_same() {
        let to: String = (0..200).map(|number| format!(" person{number}@example.org,")).collect();
        let header = format!("Subject: x\r\nTo:{to} last@example.org\r\nX: y\r\n\r\n");
        let folded = String::from_utf8(fold_long(header.as_bytes()).into_owned()).unwrap();
        assert!(folded.split("\r\n").all(|line| line.len() <= LINE_MAX), "{folded}");
        assert_eq!(folded.replace("\r\n ", " "), header);
        let header = format!("X: {}\r\n", "\u{fc}".repeat(3_000));
        let folded = String::from_utf8(fold_long(header.as_bytes()).into_owned()).unwrap();
        assert!(folded.split("\r\n").all(|line| line.len() <= LINE_MAX && !line.starts_with("  ")));
        assert!(matches!(fold_long(b"Subject: x\r\n\r\n"), Cow::Borrowed(_)));
    }
}
