//! Repairs JSON that plugins wrote, so that hostile text inside of it never makes a whole report unreadable.
//!
//! A plugin copies what it finds in a file: zero characters, bytes that are no text, halves of characters. Some writers of JSON pass such
//! things on in ways that readers refuse, and a sample could hide behind its own unreadable report. So what is wrong inside a
//! string is written in the way that every reader takes: a raw control character as its escape, half of a surrogate pair and bytes that are no
//! UTF-8 as U+FFFD. What is wrong outside of strings stays wrong. Cost: one pass.

/// The same JSON with strings that every parser accepts.
pub fn readable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let bytes = text.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let (mut at, mut in_string) = (0, false);
    while let Some(byte) = bytes.get(at).copied() {
        let length = match (in_string, byte) {
            (true, b'\\') => escape(bytes, at, &mut out),
            (true, 0..=0x1f) => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                1
            }
            _ => {
                in_string ^= byte == b'"';
                out.push(byte);
                1
            }
        };
        at += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Copies the escape at this position, and returns its length.
fn escape(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let (written, length) = match (unit(bytes, at), unit(bytes, at + 6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (&bytes[at..at + 12], 12),
        (Some(0xd800..=0xdfff), _) => (&b"\\ufffd"[..], 6),
        (Some(_), _) => (&bytes[at..at + 6], 6),
        (None, _) => {
            let end = bytes.len().min(at + 2);
            (&bytes[at..end], end - at)
        }
    };
    out.extend_from_slice(written);
    length
}

/// The number of a Unicode escape at this place: `\u` and four digits.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digit = |number: u32, digit: &u8| Some(number * 16 + char::from(*digit).to_digit(16)?);
    digits.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn whatever_is_in_a_string_can_be_read() {
        for (text, expected) in [
            (&b"{\"a\":\"b\"}"[..], "b"),
            (b"{\"a\":\"x\\u0000y\"}", "x\0y"),
            (b"{\"a\":\"x\0y\nz\"}", "x\0y\nz"),
            (b"{\"a\":\"\\ud800\"}", "\u{fffd}"),
            (b"{\"a\":\"\\udc80x\\ud83d\"}", "\u{fffd}x\u{fffd}"),
            (b"{\"a\":\"\\ud83d\\ude00\"}", "\u{1f600}"),
            (b"{\"a\":\"\\ud83d\\u0041\"}", "\u{fffd}A"),
            (b"{\"a\":\"\\\\ud800\"}", "\\ud800"),
            (b"{\"a\":\"\\\"\\u00e9\xff\"}", "\"\u{e9}\u{fffd}"),
        ] {
            let read: serde_json::Value = serde_json::from_str(&readable(text)).unwrap();
            assert_eq!(read["a"], expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn what_is_no_json_stays_none_and_ends() {
        for text in [&b"\"\\"[..], b"\"\\u12", b"\"\\ud800\\u", b"{\0}", b"\\", b""] {
            assert!(serde_json::from_str::<serde_json::Value>(&readable(text)).is_err());
        }
        let long = format!("\"{}\"", "\\u0000".repeat(200_000));
        assert_eq!(readable(long.as_bytes()), long);
    }
}
