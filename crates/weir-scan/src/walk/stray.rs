//! Base64 with extra letters: some readers skip what does not fit, others take it for the beginning of the data, and so each sees a
//! different file.
//!
//! Four letters are three octets, so a single letter before the data shifts everything behind it. Readers that go by lines drop a line of less
//! than four letters, or what is left over at the end of a line. Where the letters do not come out even, every beginning is looked at; where
//! they do, a beginning counts if a file that we know begins there. Cost: one pass, and one for each reading that is worth it.

use super::kind::Kind;
use super::transfer::{Decode, Padding, base64, base64_letters, is_base64};

/// How far one looks for the mark of a file.
const HEAD: usize = 1400;

/// What a body in base64 is to readers who begin at other letters.
pub(super) struct Stray {
    /// Ways to read it besides the usual one and those of [`super::transfer::Encoding::other_readings`].
    pub(super) readings: Vec<Decode>,
    /// Whether readers begin at different letters: the letters are one too many, a line of less than four stands before others, or a file
    /// that we know begins at another letter.
    pub(super) is_ambiguous: bool,
}

impl Stray {
    pub(super) fn look(text: &[u8]) -> Stray {
        let Shape { letters, padding, has_stray_line, has_odd_line, is_cut } = Shape::of(text);
        let shifts: [Decode; 3] = [|text| from(text, 1), |text| from(text, 2), |text| from(text, 3)];
        let is_even = (letters + padding).is_multiple_of(4);
        let is_worth_it = |decode: &Decode| !is_even || Kind::is_marked(&decode(head(text)));
        let mut readings: Vec<Decode> = shifts.into_iter().filter(is_worth_it).collect();
        let begins = |decode: &Decode| Kind::is_marked(&decode(head(text)));
        let is_odd = letters % 4 == 1 && (!is_cut || readings.iter().any(begins));
        let is_ambiguous = is_odd || has_stray_line || (is_even && !readings.is_empty());
        if has_stray_line || has_odd_line {
            readings.push(by_lines);
        }
        // Node takes the alphabet of addresses as well.
        if memchr::memchr2(b'-', b'_', text).is_some_and(|at| at > 0 && is_base64(text[at - 1])) {
            readings.push(of_addresses);
        }
        Stray { readings, is_ambiguous }
    }
}

/// How many letters there are, and how they stand in lines.
struct Shape {
    /// Letters before the first padding.
    letters: usize,
    padding: usize,
    /// Whether a line of less than four letters stands before others.
    has_stray_line: bool,
    /// Whether one with a letter too many does.
    has_odd_line: bool,
    /// Whether only the end is missing: lines of one length, and a last one that is shorter, without padding. Then everybody begins at the first
    /// letter, and gives up at the last one, or shows the letters as they stand.
    is_cut: bool,
}

impl Shape {
    fn of(text: &[u8]) -> Shape {
        let end = memchr::memchr(b'=', text).unwrap_or(text.len());
        let signs = text[end..].iter().take_while(|byte| **byte == b'=' || byte.is_ascii_whitespace());
        let padding = signs.filter(|byte| **byte == b'=').count();
        let mut shape = Shape { letters: 0, padding, has_stray_line: false, has_odd_line: false, is_cut: false };
        let (mut begin, mut before, mut first, mut is_even) = (0, 0, 0, true);
        while begin < end {
            let line = memchr::memchr(b'\n', &text[begin..end]).map_or(end, |length| begin + length);
            let (letters, _) = base64_letters(&text[begin..line]);
            if letters > 0 {
                shape.has_stray_line |= (1..4).contains(&before);
                shape.has_odd_line |= before % 4 == 1;
                is_even &= before == first;
                first = if shape.letters == 0 { letters } else { first };
                shape.letters += letters;
                before = letters;
            }
            begin = line + 1;
        }
        shape.is_cut = end == text.len() && is_even && first.is_multiple_of(4) && before < first;
        shape
    }
}

fn head(text: &[u8]) -> &[u8] {
    &text[..text.len().min(HEAD)]
}

/// What comes behind so many letters.
fn from(text: &[u8], letters: usize) -> Vec<u8> {
    let mut places = text.iter().enumerate().filter(|(_, byte)| is_base64(**byte)).map(|(at, _)| at);
    places.nth(letters).map(|at| base64(&text[at..], Padding::EndsGroup)).unwrap_or_default()
}

/// A line with letters that others follow.
struct LetterLine {
    begin: usize,
    end: usize,
    letters: usize,
}

/// The lines with letters before the padding, without the last one.
fn lines(text: &[u8]) -> impl Iterator<Item = LetterLine> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    let end = text[..end].iter().rposition(|byte| is_base64(*byte)).unwrap_or(0);
    let last = memchr::memrchr(b'\n', &text[..end]).unwrap_or(0);
    let mut begin = 0;
    let counted = text[..last].split(|byte| *byte == b'\n').map(move |line| {
        let (letters, _) = base64_letters(line);
        let found = LetterLine { begin, end: begin + line.len(), letters };
        begin = found.end + 1;
        found
    });
    counted.filter(|line| line.letters > 0)
}

/// Without lines of less than four letters, and without the letter that is left over at the end of a line.
fn by_lines(text: &[u8]) -> Vec<u8> {
    let (mut kept, mut behind) = (Vec::with_capacity(text.len()), 0);
    for line in lines(text) {
        let letters = &text[line.begin..line.end];
        behind = line.end;
        if line.letters >= 4 {
            let over = letters.iter().rposition(|byte| is_base64(*byte)).filter(|_| line.letters % 4 == 1);
            kept.extend_from_slice(&letters[..over.unwrap_or(letters.len())]);
        }
    }
    kept.extend_from_slice(&text[behind..]);
    base64(&kept, Padding::EndsGroup)
}

/// With the two letters that base64 has in addresses (RFC 4648, section 5).
fn of_addresses(text: &[u8]) -> Vec<u8> {
    let letter = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    };
    base64(&text.iter().map(letter).collect::<Vec<u8>>(), Padding::EndsGroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<String> {
        let read = |decode: &Decode| String::from_utf8_lossy(&decode(text.as_bytes())).into_owned();
        Stray::look(text.as_bytes()).readings.iter().map(read).collect()
    }

    fn is_ambiguous(text: &[u8]) -> bool {
        Stray::look(text).is_ambiguous
    }

    #[test]
    fn letters_too_many_are_passed_over_in_every_way() {
        for text in ["xaGVsbG8gd29ybGQ=", "xxaGVsbG8gd29ybGQ=", "xxx\r\naGVsbG8gd29ybGQ=", "x\naGVsbG8gd29ybGQ"] {
            assert!(seen(text).contains(&"hello world".to_owned()), "{text}: {:?}", seen(text));
        }
        for text in ["x\r\naGVsbG8g\r\nd29ybGQ=\r\nxx", "aGVsbG8gx\nd29ybGQ=\n", "aGVs\nx\nbG8gd29y\nbGQ="] {
            assert!(seen(text).iter().any(|read| read.starts_with("hello world")), "{text}: {:?}", seen(text));
        }
        assert!(is_ambiguous(b"xaGVs") && is_ambiguous(b"x\naGVsbG8g\nbGQ="));
    }

    #[test]
    fn a_file_that_begins_at_another_letter_is_seen_though_the_letters_come_out_even() {
        let text = b"xUEsDBBQAAAAIAAAAAAAAAAA";
        assert!(is_ambiguous(text));
        assert!(Stray::look(text).readings.iter().any(|decode| decode(text).starts_with(b"PK\x03\x04")));
    }

    #[test]
    fn the_alphabet_of_addresses_is_read_too() {
        let read = String::from_utf8_lossy(b"hel\xff\xef").into_owned();
        assert!(seen("aGVs_-8=").contains(&read));
    }

    #[test]
    fn a_file_whose_end_is_missing_is_the_same_to_everybody() {
        let line = "aGVsbG8gd29ybGQgYW5kIGFs\r\n".repeat(3);
        assert!(!is_ambiguous(format!("{line}aGVsb\r\n").as_bytes()));
        // A letter before the first line, lines of different lengths, another line behind it, or an archive that begins at another letter.
        let shifted = format!("xUEsDBBQAAAAIAAAAAAAAAAA\r\n{}\r\nAAAAA", "A".repeat(24));
        for text in
            [&format!("x{line}"), &format!("aGVs\r\n{line}aGVsb"), &format!("{line}aGVsb\r\n{line}"), "aGVsb", &shifted]
        {
            assert!(is_ambiguous(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn usual_bodies_have_one_reading() {
        for text in [
            "",
            "aGk=",
            "aGk=\nyo\nfooter",
            "aGVsbG8g\r\nd29ybGQ=\r\n",
            "aGVsbG8g\n\nd29y\n",
            "aGk=\r\n-- \r\nfooter\r\n",
            "aGVsbG8gd2\n9ybGQ=",
        ] {
            assert!(seen(text).is_empty(), "{text}: {:?}", seen(text));
            assert!(!is_ambiguous(text.as_bytes()), "{text}");
        }
        // Padding that is missing: other beginnings are looked at, and nobody calls it ambiguous.
        assert!(!is_ambiguous(b"aGVsbG8gd29ybGQ") && seen("aGVsbG8gd29ybGQ").len() == 3);
    }
}
