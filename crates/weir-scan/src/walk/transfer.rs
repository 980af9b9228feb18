//! Content transfer encodings (RFC 2045, section 6), read as mail programs read them: forgiving.
//!
//! What one program refuses another shows, so nothing is refused: characters outside the alphabet are passed over, and what follows
//! padding is read on.

/// How the body of a part is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As it is.
    Plain,
    /// Base64.
    Base64,
    /// Quoted-printable.
    QuotedPrintable,
    /// Uuencode, which was never a standard and is still read.
    Uuencode,
}

impl Encoding {
    /// By its name in the header; what is unknown is read as it is.
    pub fn named(name: &[u8]) -> Encoding {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("base64") {
            Encoding::Base64
        } else if is("quoted-printable") {
            Encoding::QuotedPrintable
        } else if is("x-uuencode") || is("x-uue") || is("uuencode") {
            Encoding::Uuencode
        } else {
            Encoding::Plain
        }
    }

    /// Decodes; nothing for [`Encoding::Plain`], whose text is what it is. Never longer than what it came from.
    pub fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Encoding::Plain => None,
            Encoding::Base64 => Some(base64(text)),
            Encoding::QuotedPrintable => Some(quoted_printable(text)),
            Encoding::Uuencode => Some(uuencoded(text).map_or_else(Vec::new, |(_, data)| data)),
        }
    }
}

const NO: u8 = 0xff;

/// The value of each character, or [`NO`].
const SEXTETS: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut table, mut i) = ([NO; 256], 0);
    while i < 64 {
        table[alphabet[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// Base64; whatever is not of its alphabet is passed over, padding begins a new group.
pub fn base64(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut group, mut count, mut rest) = (0u32, 0, text);
    while let [first, behind @ ..] = rest {
        // Most of a body is whole groups.
        if let ([a, b, c, d, behind @ ..], 0) = (rest, count) {
            let sextets = [a, b, c, d].map(|c| SEXTETS[usize::from(*c)]);
            if sextets.iter().all(|sextet| *sextet != NO) {
                let [a, b, c, d] = sextets.map(u32::from);
                out.extend_from_slice(&(a << 18 | b << 12 | c << 6 | d).to_be_bytes()[1..]);
                rest = behind;
                continue;
            }
        }
        rest = behind;
        match (SEXTETS[usize::from(*first)], first) {
            (NO, b'=') => {
                finish(&mut out, group, count);
                (group, count) = (0, 0);
            }
            (NO, _) => {}
            (sextet, _) => {
                group = group << 6 | u32::from(sextet);
                count += 1;
                if count == 4 {
                    out.extend_from_slice(&group.to_be_bytes()[1..]);
                    (group, count) = (0, 0);
                }
            }
        }
    }
    finish(&mut out, group, count);
    out
}

fn finish(out: &mut Vec<u8>, group: u32, count: u32) {
    match count {
        2 => out.push((group >> 4) as u8),
        3 => out.extend_from_slice(&((group >> 2) as u16).to_be_bytes()),
        _ => {}
    }
}

/// Quoted-printable; what is not an escape stays as it is.
pub fn quoted_printable(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'=', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = match &rest[at..] {
            [_, b'\r', b'\n', behind @ ..] | [_, b'\n', behind @ ..] => behind,
            [_, high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                behind
            }
            [sign, behind @ ..] => match soft_break(behind) {
                Some(behind) => behind,
                None => {
                    out.push(*sign);
                    behind
                }
            },
            [] => &[],
        };
    }
    out.extend_from_slice(rest);
    out
}

/// Spaces between the sign and the end of its line do not count (RFC 2045, section 6.7, rule 3).
fn soft_break(behind: &[u8]) -> Option<&[u8]> {
    let blank = behind.iter().take(80).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let rest = &behind[blank..];
    rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n"))
}

/// A hexadecimal digit's value; other characters count as zero.
pub(super) fn nibble(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or(0) as u8
}

/// The first uuencoded file in a text: its name and what is in it.
pub fn uuencoded(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let (name, body) = memchr::memmem::find_iter(text, b"begin ").find_map(|at| {
        let fresh = at == 0 || text[at - 1] == b'\n';
        let line_end = memchr::memchr(b'\n', &text[at..]).map(|end| at + end)?;
        let (mode, name) = text[at + 6..line_end].trim_ascii().split_at_checked(3)?;
        let real = fresh && mode.iter().all(|c| matches!(c, b'0'..=b'7')) && name.first() == Some(&b' ');
        real.then(|| (String::from_utf8_lossy(name.trim_ascii()).into_owned(), &text[line_end + 1..]))
    })?;
    let mut out = Vec::with_capacity(body.len() / 4 * 3);
    for line in body.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((length, sextets)) = line.split_first() else { break };
        let length = usize::from(length.wrapping_sub(32) & 63);
        if length == 0 || line == b"end" {
            break;
        }
        let before = out.len();
        for group in sextets.chunks(4) {
            let group = group.iter().fold(0u32, |group, c| group << 6 | u32::from(c.wrapping_sub(32) & 63));
            out.extend_from_slice(&group.to_be_bytes()[1..]);
        }
        out.truncate(before + length);
    }
    Some((name, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_mail_programs_do() {
        assert_eq!(base64(b"aGVsbG8gd29ybGQ="), b"hello world");
        assert_eq!(base64(b"aGVs\r\nbG8g\r\nd29y\r\nbGQ"), b"hello world");
        assert_eq!(base64(b"aG!Vs bG8=aGVsbG8="), b"hellohello");
        assert_eq!(base64(b""), b"");
        assert_eq!(base64(b"===="), b"");
    }

    #[test]
    fn quoted_printable_keeps_what_is_no_escape() {
        assert_eq!(quoted_printable(b"a=3Db=\r\nc= \t\r\nd=zz="), b"a=bcd=zz=");
    }

    #[test]
    fn uuencode_has_a_name() {
        let text = b"hello\r\nbegin 644 cat.txt\r\n#0V%T\r\n`\r\nend\r\n";
        assert_eq!(uuencoded(text), Some(("cat.txt".to_owned(), b"Cat".to_vec())));
        assert_eq!(uuencoded(b"we begin 644 things"), None);
        assert_eq!(uuencoded(b"begin 64"), None);
    }
}
