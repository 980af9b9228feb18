//! xtext, the encoding of DSN and XCLIENT values (RFC 3461 section 4): a character that is not plain is written as `+` and two hex digits.
//!
//! Values are kept as they came, so that they can be passed on unchanged; [`decode`] is for code that must print them. A value that
//! contains an encoded control character is refused, because it could forge a header of a bounce.

/// Whether `text` is xtext, and its decoded form contains no control character.
pub fn is_valid(text: &str) -> bool {
    decode(text).is_some()
}

/// The decoded text; `None` if `text` is not xtext, is not UTF-8, or contains an encoded control character.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'!'..=b'~' if byte != b'=' => byte,
            _ => return None,
        });
    }
    String::from_utf8(out).ok().filter(|text| !text.contains(char::is_control))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_and_refuses() {
        assert_eq!(decode("a+2Bb+20c").as_deref(), Some("a+b c"));
        assert_eq!(decode("").as_deref(), Some(""));
        for bad in ["a=b", "a b", "+", "+4", "+GG", "+0D+0A", "x+00", "+FF", "é"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
