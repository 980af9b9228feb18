//! Documents of Word as texts: what is looked at of one, and RTF without its control words.

use super::has;
use crate::walk::File;
use crate::walk::kind::Kind;

/// What is behind is not looked at.
const TEXT_MAX: usize = 8 << 20;

pub(super) fn text<'f>(file: &File<'f>) -> &'f [u8] {
    &file.data[..file.data.len().min(TEXT_MAX)]
}

/// A document of today's Word in one XML file, or of Word 2003.
pub(super) fn is_flat(file: &File<'_>) -> bool {
    let says = |word: &str| has(text(file), word);
    file.kind == Kind::Xml && (says("office/2006/xmlPackage") || says("office/word/2003/wordml"))
}

/// Without control words and groups, and with letters that are written as numbers.
pub(super) fn rtf_text(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    // So many letters behind one of Unicode stand for it in old readers.
    let (mut behind_letter, mut skipped) = (1, 0usize);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (*first, behind.first().copied()) {
            (b'\\', Some(sign @ (b'\\' | b'{' | b'}'))) => {
                out.push(sign);
                rest = &behind[1..];
            }
            (b'\\', Some(b'\'')) => {
                let digits = behind.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
                let octet = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match skipped {
                    0 => out.extend(octet),
                    _ => skipped -= 1,
                }
                rest = behind.get(3..).unwrap_or_default();
            }
            (b'\\', _) => {
                if let Some(letter) = rtf_number(behind, b"u") {
                    let unit = [letter.rem_euclid(0x1_0000) as u16];
                    out.extend(String::from_utf16_lossy(&unit).into_bytes());
                    skipped = behind_letter;
                } else if let Some(count) = rtf_number(behind, b"uc") {
                    behind_letter = usize::try_from(count.clamp(0, 16)).unwrap_or(1);
                }
                let word = behind.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
                rest = &behind[word.max(1).min(behind.len())..];
                rest = rest.strip_prefix(b" ").unwrap_or(rest);
            }
            (b'{' | b'}', _) => skipped = 0,
            (b'\r' | b'\n', _) => {}
            _ if skipped > 0 => skipped -= 1,
            (byte, _) => out.push(byte),
        }
    }
    out
}

/// The number of a control word, if it is this one.
fn rtf_number(text: &[u8], word: &[u8]) -> Option<i64> {
    let rest = text.strip_prefix(word)?;
    let length = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    std::str::from_utf8(&rest[..length]).ok()?.parse().ok()
}
