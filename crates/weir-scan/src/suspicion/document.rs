//! Documents of Word as texts: what is looked at of one, what its fields name, and RTF without its control words.

use super::has;
use crate::walk::File;
use crate::walk::kind::Kind;

/// What is behind is not looked at. It is much more than a document has as text, since what people write hides nothing that a rule looks for.
const TEXT_MAX: usize = 64 << 20;

pub(super) fn text<'f>(file: &File<'f>) -> &'f [u8] {
    &file.data[..file.data.len().min(TEXT_MAX)]
}

/// A document of today's Word in one XML file, or of Word 2003.
pub(super) fn is_flat(file: &File<'_>) -> bool {
    let says = |word: &str| has(text(file), word);
    file.kind == Kind::Xml && (says("office/2006/xmlPackage") || says("office/word/2003/wordml"))
}

/// What fields that fetch or open something have as arguments: the word of each, and one argument.
pub(super) fn field_arguments(fields: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    const FIELDS: [&str; 5] = ["INCLUDEPICTURE", "INCLUDETEXT", "IMPORT", "LINK", "HYPERLINK"];
    let (upper, mut out) = (fields.to_ascii_uppercase(), Vec::new());
    for word in FIELDS {
        for at in memchr::memmem::find_iter(&upper, word.as_bytes()).take(1000) {
            if at == 0 || !fields[at - 1].is_ascii_alphanumeric() {
                out.extend(arguments(&fields[at + word.len()..]).into_iter().map(|argument| (word, argument)));
            }
        }
    }
    out
}

/// The first arguments of a field, in quotes or not, with its switches; two backslashes are one, but at the beginning two at least. In the next line is
/// another field.
fn arguments(text: &[u8]) -> Vec<Vec<u8>> {
    const MOST: usize = 64;
    let text = &text[..text.len().min(2048)];
    let line = &text[..memchr::memchr(b'\n', text).unwrap_or(text.len())];
    let (mut out, mut rest) = (Vec::new(), line.trim_ascii_start());
    while !rest.is_empty() && out.len() < MOST {
        let quoted = rest.strip_prefix(b"\"");
        let from = quoted.unwrap_or(rest);
        let ends = |byte: &u8| if quoted.is_some() { *byte == b'"' } else { byte.is_ascii_whitespace() };
        let (argument, behind) = from.split_at(from.iter().position(ends).unwrap_or(from.len()));
        let single = String::from_utf8_lossy(argument).replace("\\\\", "\\");
        out.push(single.replacen('\\', "\\\\", usize::from(argument.starts_with(b"\\"))).into_bytes());
        rest = behind.get(usize::from(quoted.is_some())..).unwrap_or_default().trim_ascii_start();
    }
    out
}

/// The templates of an RTF document: one, unless somebody hides it behind another.
pub(super) fn rtf_templates(file: &File<'_>) -> impl Iterator<Item = Vec<u8>> {
    rtf_groups(file, b"\\template")
}

/// The addresses of links that are not written as fields.
pub(super) fn rtf_links(file: &File<'_>) -> impl Iterator<Item = Vec<u8>> {
    rtf_groups(file, b"\\hlsrc")
}

/// What stands behind a control word of RTF in its group, with escapes read.
fn rtf_groups<'f>(file: &File<'f>, word: &'static [u8]) -> impl Iterator<Item = Vec<u8>> + use<'f> {
    let data = if file.kind == Kind::Rtf { file.data } else { &[] };
    let whole = move |at: &usize| !data.get(at + word.len()).is_some_and(u8::is_ascii_alphanumeric);
    memchr::memmem::find_iter(data, word).filter(whole).take(1000).map(move |at| {
        let rest = &data[at + word.len()..];
        let rest = &rest[..rest.len().min(8192)];
        rtf_text(&rest[..group_end(rest)])
    })
}

/// Where the group ends that this stands in. What is escaped is no bracket, nor are raw octets behind `\binN`.
pub(super) fn group_end(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0u32, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += raw(&text[at + 1..]).unwrap_or(1),
            b'{' => depth += 1,
            b'}' if depth == 0 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// How long `binN` and its raw octets are; none for any other control word.
fn raw(word: &[u8]) -> Option<usize> {
    let rest = word.strip_prefix(b"bin")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let count: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let blank = usize::from(rest.get(digits) == Some(&b' '));
    Some(3 + digits + blank + count.min(word.len()))
}

/// Without control words and groups, and with letters that are written as numbers.
pub(super) fn rtf_text(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    // How many letters behind one of Unicode stand for it in old readers; `\uc` sets this.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_where_its_last_bracket_is() {
        for (text, end) in
            [(&b"{\\\\{}}a}"[..], 7), (b"\\}a}b", 3), (b"\\bin1 }a}b", 8), (b"\\bin3{}}a}", 9), (b"{a", 2)]
        {
            assert_eq!(group_end(text), end, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(group_end(b"\\bin99999999999999999999999 }"), 28);
        assert_eq!(group_end(b"\\bin999 }}}"), 11);
    }

    #[test]
    fn arguments_stand_behind_a_class_or_a_switch() {
        let found = |text: &str| -> Vec<String> {
            let all = field_arguments(text.as_bytes());
            all.into_iter().map(|(word, argument)| format!("{word} {}", String::from_utf8_lossy(&argument))).collect()
        };
        assert_eq!(
            found(" LINK Excel.Sheet.8 \"\\\\\\\\evil.example\\\\a.xls\" r1c1"),
            ["LINK Excel.Sheet.8", "LINK \\\\\\evil.example\\a.xls", "LINK r1c1"]
        );
        assert_eq!(
            found("HYPERLINK \\o \"a tip\" \"ms-msdt:/id x\"")[1..],
            ["HYPERLINK a tip", "HYPERLINK ms-msdt:/id x"]
        );
        assert!(found("\nPAGE\nSHYPERLINK x\n").is_empty());
        assert_eq!(
            found(" INCLUDETEXT \"C:\\\\a.docx\"\n\n HYPERLINK \"https://a.example\" \n"),
            ["INCLUDETEXT C:\\a.docx", "HYPERLINK https://a.example"]
        );
        for odd in ["LINK \"", "LINK \"\"", "LINK", "LINK \\"] {
            let _ = found(odd);
        }
    }
}
