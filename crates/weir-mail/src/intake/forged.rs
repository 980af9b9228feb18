//! Header fields that only we may write: `Authentication-Results` in our own name (RFC 8601 section 5), and everything
//! that begins with `X-Weir-`. In mail from outside they would speak in our name, so they are taken out.
//!
//! Cost: one pass over the header. A header without such a field is not copied.

use std::borrow::Cow;
use weir_smtp::header_field;

const RESULTS: &[u8] = b"authentication-results";
const OWN: &[u8] = b"x-weir-";

/// Fields that name recipients whom the others shall not see (RFC 5322 section 3.6.3).
const COPIES: &[&[u8]] = &[b"bcc", b"resent-bcc"];

/// The header without the fields that claim to be ours.
pub(crate) fn without_forged<'a>(header: &'a [u8], hostname: &str) -> Cow<'a, [u8]> {
    let forged = |field: &[u8]| {
        let forged = is_forged(field, hostname);
        if forged {
            tracing::debug!(field = %String::from_utf8_lossy(field).trim_end(), "a header field in our name is taken out");
        }
        forged
    };
    without(header, forged)
}

/// The header of a user's mail without `Bcc`. Most programs leave it out themselves; the others rely on the server to remove it.
pub(crate) fn without_copies(header: &[u8]) -> Cow<'_, [u8]> {
    let is_copy = |field: &[u8]| {
        let colon = memchr::memchr(b':', field).unwrap_or(0);
        COPIES.iter().any(|name| field[..colon].trim_ascii().eq_ignore_ascii_case(name))
    };
    without(header, is_copy)
}

fn without(header: &[u8], goes: impl Fn(&[u8]) -> bool) -> Cow<'_, [u8]> {
    let mut kept: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(rest) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let (field, _) = rest.split_at(header_field::end(rest));
        if goes(field) {
            kept.get_or_insert_with(|| header.get(..at).unwrap_or_default().to_vec());
        } else if let Some(kept) = &mut kept {
            kept.extend_from_slice(field);
        }
        at += field.len();
    }
    kept.map_or(Cow::Borrowed(header), Cow::Owned)
}

/// Whether a field speaks in our name.
pub(crate) fn is_forged(field: &[u8], hostname: &str) -> bool {
    let Some(colon) = memchr::memchr(b':', field) else { return false };
    let (name, value) = field.split_at(colon);
    let name = name.trim_ascii_end();
    if name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN)) {
        return true;
    }
    name.eq_ignore_ascii_case(RESULTS) && claims(value, hostname)
}

/// Whether the name of the server that speaks, which stands before the first semicolon, is or holds ours. Comments, quotes and folds can
/// hide a name or a semicolon even from a careful reader, and readers do not agree on where a strange comment ends. So if there is a
/// comment before the first semicolon, our name may not occur anywhere in the field.
fn claims(value: &[u8], hostname: &str) -> bool {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let plain = !value[..end].iter().any(|byte| b"()\"\\".contains(byte));
    let head = if plain { &value[..end] } else { value };
    let head: Vec<u8> = head.iter().filter(|byte| !b"\r\n\t \"\\".contains(byte)).map(u8::to_ascii_lowercase).collect();
    memchr::memmem::find(&head, hostname.to_ascii_lowercase().as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(header: &str) -> String {
        String::from_utf8(without_forged(header.as_bytes(), "mx.example.org").into_owned()).unwrap()
    }

    #[test]
    fn results_in_our_name_go_and_those_of_others_stay() {
        for forged in [
            "Authentication-Results: mx.example.org; spf=pass\r\n",
            "AUTHENTICATION-RESULTS : MX.Example.ORG 1; dkim=pass\r\n",
            "Authentication-Results:\r\n\t(a comment)\r\n mx.example.org;\r\n dmarc=pass\r\n",
            "Authentication-Results: \"mx.example.org\"; spf=pass\r\n",
            "Authentication-Results: \"mx.exam\\ple.org\"; spf=pass\r\n",
            "Authentication-Results: mx.example.org\r\n",
            "Authentication-Results: (a;b) mx.example.org; spf=pass\r\n",
            "Authentication-Results: (a (b;) \\); c) mx.example.org 1; spf=pass\r\n",
            "Authentication-Results: (\\( ; ) ; ) mx.example.org; spf=pass\r\n",
            "Authentication-Results: (;\r\n ;)\r\n\tmx.example.org; spf=pass\r\n",
            "X-Weir-Scan: clean\r\n",
            "x-weir-anything:\r\n folded\r\n",
        ] {
            let header = format!("From: a@b\r\n{forged}To: c@d\r\n\r\n");
            assert_eq!(kept(&header), "From: a@b\r\nTo: c@d\r\n\r\n", "{forged}");
        }
        for true_one in [
            "Authentication-Results: mx.example.net; spf=pass smtp.mailfrom=mx.example.org\r\n",
            "Authentication-Results: mx.example.net (of us); spf=pass (a;b) smtp.mailfrom=example.org\r\n",
            "X-Authentication-Results: mx.example.org; spf=pass\r\n",
            "ARC-Authentication-Results: i=1; mx.example.org; spf=pass\r\n",
            "Subject: Authentication-Results: mx.example.org;\r\n",
            "X-Weird: mx.example.org\r\n",
        ] {
            let header = format!("From: a@b\r\n{true_one}\r\n");
            assert!(matches!(without_forged(header.as_bytes(), "mx.example.org"), Cow::Borrowed(_)), "{true_one}");
        }
    }

    #[test]
    fn hidden_recipients_are_taken_out_however_they_are_written() {
        let header = b"To: a@b\r\nBCC : x@y,\r\n z@y\r\nSubject: Bcc: no\r\nresent-bcc: q@r\r\nX-Bcc: s\r\n\r\n";
        assert_eq!(&*without_copies(header), b"To: a@b\r\nSubject: Bcc: no\r\nX-Bcc: s\r\n\r\n");
        assert!(matches!(without_copies(b"To: a@b\r\n\r\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn strange_headers_are_kept_as_they_are() {
        for header in ["", "\r\n", "no colon\r\n\r\n", ":\r\n", " \r\n", "A: b"] {
            assert_eq!(kept(header), header);
        }
        assert_eq!(kept("X-Weir-Scan: clean"), "");
    }
}
