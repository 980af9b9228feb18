//! Objects in RTF, written as hexadecimal digits.
//!
//! Between the digits may stand what is no digit: blanks, control words, groups, letters written as numbers. What Word makes of these depends on
//! its version, so an object in which they matter is read in each way that it may be. Sources: Microsoft, *Rich Text Format Specification 1.9.1*;
//! *[MS-OLEDS]*, section 2.2.

use super::super::kind::{COMPOUND, Kind};
use super::super::transfer::nibble;
use super::super::{Oddity, Walk};
use super::ole::packaged;
use crate::budget::Exceeded;
use crate::little_endian::u32_at;

const OBJECT: &[u8] = b"\\objdata";

/// Which groups inside an object have digits of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Groups {
    All,
    /// Those that are no destination of their own.
    Plain,
    None,
}

/// What a letter that is written as a number does to a digit that waits for its other half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letters {
    Nothing,
    /// That digit is lost.
    Lost,
    /// The number is two digits of the object.
    Digits,
}

/// The first is that of most readers, the others count where they differ from it.
const READINGS: [(Groups, Letters); 6] = [
    (Groups::All, Letters::Nothing),
    (Groups::Plain, Letters::Nothing),
    (Groups::None, Letters::Nothing),
    (Groups::All, Letters::Lost),
    (Groups::Plain, Letters::Lost),
    (Groups::All, Letters::Digits),
];

/// Groups that begin so have a destination of their own, besides those that say so by a star.
const DESTINATIONS: [&str; 22] = [
    "author",
    "bkmkstart",
    "colortbl",
    "comment",
    "company",
    "doccomm",
    "field",
    "fldinst",
    "fldrslt",
    "fonttbl",
    "footer",
    "footnote",
    "header",
    "info",
    "keywords",
    "object",
    "operator",
    "pict",
    "result",
    "stylesheet",
    "subject",
    "title",
];

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for at in memchr::memmem::find_iter(data, OBJECT) {
        walk.budget.entry()?;
        walk.odd_here(Oddity::EmbeddedObject);
        let text = &data[at + OBJECT.len()..];
        // A number behind the control word belongs to it, or is the first digits.
        let (number, behind) = behind_number(text);
        let mut seen = Vec::new();
        each_reading(walk, text, &mut seen, level)?;
        if !number.is_empty() {
            each_reading(walk, behind, &mut seen, level)?;
        }
    }
    Ok(())
}

/// What the digits are to some reader and has not been seen yet.
fn each_reading(walk: &mut Walk<'_>, text: &[u8], seen: &mut Vec<blake3::Hash>, level: u32) -> Result<(), Exceeded> {
    for reading in READINGS {
        walk.budget.time()?;
        let (object, is_clear) = digits(text, reading);
        let hash = blake3::hash(&object);
        if !seen.contains(&hash) {
            seen.push(hash);
            walk.holding(&object, |walk, object| look(walk, object, level))?;
        }
        if is_clear {
            break;
        }
    }
    Ok(())
}

/// An object, and the file in it.
fn look(walk: &mut Walk<'_>, object: &[u8], level: u32) -> Result<(), Exceeded> {
    let names = ["object".to_owned()];
    let place = native(object);
    if let Some(at) = place {
        let file = packaged(&object[at..]);
        if let Some((names, content)) = &file {
            walk.file(names, "", content, level)?;
        }
        let content = &object[(at + 4).min(object.len())..];
        let length = u32_at(object, at).map_or(0, |length| length as usize);
        let content = &content[..length.min(content.len())];
        // What is in a package was shown with its name.
        if file.is_none() || Kind::of(content) != Kind::Unknown {
            walk.file(&names, "", content, level)?;
        }
    }
    // A compound file behind a header that we do not understand.
    let inside = memchr::memmem::find(object, COMPOUND).filter(|at| *at > 0 && place.map(|at| at + 4) != Some(*at));
    if let Some(at) = inside {
        walk.file(&names, "", &object[at..], level)?;
    }
    walk.file(&names, "", object, level)
}

/// Where the data of an object of OLE 1 stand, from their length on: behind two numbers and three texts with their lengths.
fn native(object: &[u8]) -> Option<usize> {
    let mut at = 8usize;
    for _ in 0..3 {
        at = (at + 4).checked_add(u32_at(object, at)? as usize)?;
    }
    (at < object.len()).then_some(at)
}

/// Digits up to the end of the group, and whether every reader sees the same. White space and control words do not count. Behind `\\bin` and a number
/// stand so many octets as they are.
fn digits(text: &[u8], (groups, letters): (Groups, Letters)) -> (Vec<u8>, bool) {
    let (mut out, mut high, mut is_clear) = (Vec::new(), None, true);
    let (mut depth, mut other, mut rest) = (0u32, None, text);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b'{' => {
                (depth, is_clear) = (depth + 1, false);
                let is_other = match groups {
                    Groups::All => false,
                    Groups::Plain => is_destination(behind),
                    Groups::None => true,
                };
                other = other.or(is_other.then_some(depth));
            }
            b'}' if depth == 0 => break,
            b'}' => {
                other = other.filter(|group| *group != depth);
                depth -= 1;
            }
            b'\\' if behind.first() == Some(&b'\'') => {
                is_clear = false;
                if letters == Letters::Lost && other.is_none() {
                    high = None;
                }
                let length = if letters == Letters::Digits { 1 } else { 3 };
                rest = &behind[length.min(behind.len())..];
            }
            b'\\' => {
                let (octets, behind) = control(behind);
                rest = behind;
                if !octets.is_empty() && high.is_some() {
                    is_clear = false;
                    high = high.filter(|_| letters != Letters::Lost || other.is_some());
                }
                if other.is_none() {
                    out.extend_from_slice(octets);
                }
            }
            byte if byte.is_ascii_hexdigit() && other.is_none() => match high.take() {
                None => high = Some(nibble(*byte)),
                Some(first) => out.push(first << 4 | nibble(*byte)),
            },
            _ => {}
        }
    }
    (out, is_clear)
}

fn is_destination(group: &[u8]) -> bool {
    let Some(word) = group.trim_ascii_start().strip_prefix(b"\\") else { return false };
    let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    word.starts_with(b"*") || DESTINATIONS.iter().any(|own| own.as_bytes() == &word[..letters])
}

/// Behind a backslash: letters, a number, one blank. The octets that `bin` announces, and what is behind all that.
fn control(text: &[u8]) -> (&[u8], &[u8]) {
    let letters = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    if letters == 0 {
        // A sign.
        return (&[], &text[text.len().min(1)..]);
    }
    let (word, behind) = text.split_at(letters);
    let (number, behind) = behind_number(behind);
    if word != b"bin" {
        return (&[], behind);
    }
    let length: usize = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    behind.split_at(length.min(behind.len()))
}

/// The number that a control word may have, and what is behind it and one blank.
fn behind_number(text: &[u8]) -> (&[u8], &[u8]) {
    let sign = usize::from(text.first() == Some(&b'-'));
    let number = sign + text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = text.split_at(number);
    (number, behind.strip_prefix(b" ").unwrap_or(behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::seen::Seen;

    fn all(text: &[u8]) -> Vec<u8> {
        digits(text, READINGS[0]).0
    }

    #[test]
    fn digits_of_an_object() {
        assert_eq!(all(b" 4d\r\n5a \\par 90{\\*\\x 00} }ff"), b"MZ\x90\0");
        assert_eq!(all(b"4\\par d5\r\n{\\x}a\\par-12 9\\'410}"), b"MZ\x90");
        assert_eq!(all(b" \\bin4 MZ}\0 41}"), b"MZ}\0A");
        assert!(digits(b" 4d 5a\\par 90 \\bin2 }}", READINGS[0]).1);
    }

    #[test]
    fn digits_where_readers_differ() {
        let read = |text: &[u8]| READINGS.map(|reading| String::from_utf8(digits(text, reading).0).unwrap());
        assert_eq!(read(b"41{\\*\\x 42}{\\x 43}{\\info 44}45}"), ["ABCDE", "ACE", "AE", "ABCDE", "ACE", "ABCDE"]);
        assert_eq!(read(b"4\\'4241 42}"), ["D\x14", "D\x14", "D\x14", "AB", "AB", "D$\x14"]);
    }

    /// An object of OLE 1 of a class.
    fn object(class: &[u8], data: &[u8]) -> Vec<u8> {
        let number = |number: usize| (number as u32).to_le_bytes();
        let head = [number(0x501), number(2), number(class.len())].concat();
        [&head, class, &[0; 8], &number(data.len()), data].concat()
    }

    fn hex(data: &[u8]) -> Vec<String> {
        data.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    #[test]
    fn an_object_comes_out_in_whatever_way_it_is_hidden() {
        let program = b"MZ\x90\0 a program".as_slice();
        let data = object(b"Anything\0", program);
        let octets = hex(&data);
        let all = octets.concat();
        for digits in [
            all.clone(),
            format!("123 {all}"),
            format!("-1 {all}"),
            format!(" {all}"),
            octets.join("{\\*\\junk 41}"),
            octets.join("{41}"),
            octets.join("{\\info 4}\r\n"),
            octets.join("\\'41"),
            format!("{}{{\\*\\x \\'41}}{}4\\'41{}", &all[..71], &all[71..78], &all[78..]),
            format!("{}{{\\*\\x \\bin1 4}}{}4\\'41{}", &all[..71], &all[71..78], &all[78..]),
            octets.join("4\\'41"),
            octets.join(" \\par\\b0 {}"),
            format!("{}\\bin3 \0\0\x02{}", &all[..4], &all[10..]),
            format!("{}{{\\*\\x\\bin3 }}}}4}}{}", &all[..4], &all[4..]),
        ] {
            let document = format!("{{\\rtf1{{\\object\\objemb{{\\*\\objdata{digits}}}}}}}");
            assert!(Seen::of("a.rtf", document.as_bytes()).holds(program), "{document}");
        }
    }

    #[test]
    fn a_compound_file_is_found_behind_any_header() {
        let compound = [COMPOUND, &[1; 100]].concat();
        for data in [
            object(b"Word.Document.8\0", &compound),
            object(&[b'x'; 4000], &compound),
            object(COMPOUND, &compound),
            [&[0xff; 700][..], &compound].concat(),
        ] {
            let document = format!("{{\\rtf1{{\\*\\objdata {}}}}}", hex(&data).concat());
            let files = Seen::of("a.rtf", document.as_bytes()).files;
            assert_eq!(files.iter().filter(|file| file.data == compound).count(), 1);
        }
    }
}
