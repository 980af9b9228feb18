//! Strings and names as PDF writes them (ISO 32000-1, sections 7.3.4 and 7.3.5).

use super::super::transfer::nibble;

/// No name of a file, and no key, is longer.
const STRING_MAX: usize = 4096;
/// No document has so many links.
const TARGETS_MAX: usize = 20_000;
/// After so many strings without an end, of each following one only so much is read: four mebibytes could come to gigabytes otherwise.
const ENDLESS_MAX: usize = 5_000;
const BEGINNING: usize = 256;
/// How far back the object is searched for that something is in.
const OBJECT_MAX: usize = 4096;
/// As long as a number and a generation before `obj` are.
pub(super) const OBJECT_HEAD: usize = 64;

/// Names may have their letters as `#` and two digits.
pub(crate) fn plain_names(text: &[u8]) -> Vec<u8> {
    if memchr::memchr(b'#', text).is_none() {
        return text.to_vec();
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memchr(b'#', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = match &rest[at + 1..] {
            [high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                behind
            }
            behind => {
                out.push(b'#');
                behind
            }
        };
    }
    out.extend_from_slice(rest);
    out
}

/// What links and actions name: the strings behind `/URI` and `/F`, `/UF`. Where too many have no end, of each the beginning counts.
pub(crate) fn targets(text: &[u8]) -> Vec<Vec<u8>> {
    const KEYS: [&[u8]; 4] = [b"/URI", b"/F", b"/UF", b"/Base"];
    let (mut out, mut endless) = (Vec::new(), 0);
    for key in KEYS {
        for at in memchr::memmem::find_iter(text, key) {
            if out.len() == TARGETS_MAX {
                return out;
            }
            let rest = text[at + key.len()..].trim_ascii_start();
            let found = match rest.first() {
                Some(b'(') if endless >= ENDLESS_MAX => Some(beginning(&rest[1..], BEGINNING).0),
                _ => string(rest),
            };
            endless += usize::from(found.is_none() && rest.first() == Some(&b'('));
            out.extend(found);
        }
    }
    out
}

/// A string at the start: in parentheses or as digits.
pub(super) fn string(text: &[u8]) -> Option<Vec<u8>> {
    match text.first()? {
        b'<' if text.get(1) != Some(&b'<') => {
            let digits = &text[1..text.len().min(2 + 4 * STRING_MAX)];
            Some(hex(&digits[..memchr::memchr(b'>', digits)?]))
        }
        b'(' => Some(beginning(&text[1..], STRING_MAX)).filter(|(_, ends)| *ends).map(|(out, _)| out),
        _ => None,
    }
}

/// The letters of a string in parentheses, about `most` of them, and whether its end was found.
fn beginning(text: &[u8], most: usize) -> (Vec<u8>, bool) {
    let (mut out, mut depth, mut rest) = (Vec::new(), 0, text);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b')' if depth == 0 => return (out, true),
            b'\\' => rest = escaped(behind, &mut out),
            byte => {
                depth += i32::from(*byte == b'(') - i32::from(*byte == b')');
                out.push(*byte);
            }
        }
        if out.len() > most {
            break;
        }
    }
    (out, false)
}

fn escaped<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    let digits = text.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits > 0 {
        out.push(text[..digits].iter().fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0')) as u8);
        return &text[digits..];
    }
    let Some((first, rest)) = text.split_first() else { return text };
    match first {
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'b' => out.push(8),
        b'f' => out.push(12),
        b'\r' | b'\n' => {}
        other => out.push(*other),
    }
    rest
}

pub(super) fn hex(text: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = text.iter().filter(|byte| byte.is_ascii_hexdigit()).map(|byte| nibble(*byte)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0)).collect()
}

/// The number and generation of the object that this place is in.
pub(super) fn object_before(data: &[u8], at: usize) -> (u32, u16) {
    let before = &data[at.saturating_sub(OBJECT_MAX)..at];
    object(&before[..memchr::memmem::rfind(before, b" obj").unwrap_or(0)])
}

/// The number and generation of an object that stand at the end of this text, before `obj`.
pub(super) fn object(before: &[u8]) -> (u32, u16) {
    let mut words = before.rsplit(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut number = || {
        let word = words.next().unwrap_or_default();
        let digits = word.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(word, |last| &word[last + 1..]);
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0)
    };
    let generation = u16::try_from(number()).unwrap_or(0);
    (number(), generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_without_an_end_neither_take_long_nor_hide_a_link() {
        let mut text = b"/F(".repeat(6_000);
        text.extend_from_slice(b"/URI (ms-msdt:/id x)");
        assert!(targets(&text).iter().any(|target| target.starts_with(b"ms-msdt:/id")));
        for endless in [b"/F(", b"/F<"] {
            let found = targets(&endless.repeat(1 << 20));
            assert!(found.len() <= TARGETS_MAX && found.iter().all(|target| target.len() <= BEGINNING + 4));
        }
    }

    #[test]
    fn strings_and_names() {
        assert_eq!(string(b"(a\\(b\\)\\101(c))x").as_deref(), Some(&b"a(b)A(c)"[..]));
        assert_eq!(string(b"<4d 5A9>").as_deref(), Some(&b"MZ\x90"[..]));
        assert_eq!(string(b"<< /x >>"), None);
        assert_eq!(plain_names(b"/Embedded#46ile #"), b"/EmbeddedFile #");
    }
}
