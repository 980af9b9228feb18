//! The hashes of a body that its signatures name, while it streams by: SHA-256 over the simple and the relaxed form (RFC 6376
//! section 3.4). The code for the relaxed form is the one that we sign with. We hash the body ourselves because mail-auth needs the whole
//! body in memory.

use mail_auth::AuthenticatedMessage;
use mail_auth::common::crypto::HashAlgorithm;
use mail_auth::dkim::Canonicalization;
use ring::digest::{Context, SHA256};
use weir_smtp::dkim::BodyHash;

/// The hashes that are wanted.
#[derive(Default)]
pub(super) struct BodyDigests {
    simple: Option<SimpleHash>,
    relaxed: Option<BodyHash>,
}

impl BodyDigests {
    /// Those that the signatures of a message name.
    pub(super) fn wanted(message: &AuthenticatedMessage<'_>) -> BodyDigests {
        let names = |canonicalization| message.body_hashes.iter().any(|(form, ..)| *form == canonicalization);
        BodyDigests {
            simple: names(Canonicalization::Simple).then(SimpleHash::default),
            relaxed: names(Canonicalization::Relaxed).then(BodyHash::default),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.simple.is_none() && self.relaxed.is_none()
    }

    pub(super) fn write(&mut self, piece: &[u8]) {
        if let Some(simple) = &mut self.simple {
            simple.write(piece);
        }
        if let Some(relaxed) = &mut self.relaxed {
            relaxed.write(piece);
        }
    }

    /// Puts the hashes where the verification of signatures looks for them. SHA-1 proves nothing (RFC 8301) and gets none.
    pub(super) fn finish(self, message: &mut AuthenticatedMessage<'_>) {
        let simple = self.simple.map(SimpleHash::finish);
        let relaxed = self.relaxed.map(BodyHash::finish);
        for (form, algorithm, _, hash) in &mut message.body_hashes {
            let found = match (form, algorithm) {
                (_, HashAlgorithm::Sha1) => None,
                (Canonicalization::Simple, HashAlgorithm::Sha256) => simple,
                (Canonicalization::Relaxed, HashAlgorithm::Sha256) => relaxed,
            };
            *hash = found.map(|digest| digest.as_ref().to_vec()).unwrap_or_default();
        }
    }
}

/// The simple form: empty lines at the end fall away, and there is one line end.
struct SimpleHash {
    context: Context,
    line_ends: u64,
}

impl Default for SimpleHash {
    fn default() -> SimpleHash {
        SimpleHash { context: Context::new(&SHA256), line_ends: 0 }
    }
}

impl SimpleHash {
    /// Takes a piece in which every line ends with CR LF, as the server demands; the CR are counted with their LF.
    fn write(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if !text.is_empty() {
                for _ in 0..std::mem::take(&mut self.line_ends) {
                    self.context.update(b"\r\n");
                }
                self.context.update(text);
            }
            self.line_ends += u64::from(part.ends_with(b"\n"));
        }
    }

    fn finish(mut self) -> ring::digest::Digest {
        self.context.update(b"\r\n");
        self.context.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(body: &[u8], cut: usize) -> Vec<u8> {
        let mut hash = SimpleHash::default();
        body.chunks(cut).for_each(|piece| hash.write(piece));
        hash.finish().as_ref().to_vec()
    }

    #[test]
    fn the_simple_form_is_that_of_the_rfc() {
        let of = |text: &[u8]| ring::digest::digest(&SHA256, text).as_ref().to_vec();
        let cases: [(&[u8], &[u8]); 6] = [
            (b"", b"\r\n"),
            (b"\r\n\r\n\r\n", b"\r\n"),
            (b"a", b"a\r\n"),
            (b"a \r\n\r\n b\r\n\r\n\r\n", b"a \r\n\r\n b\r\n"),
            (b"\r\n\r\na\r\n", b"\r\n\r\na\r\n"),
            (b"a\r\n", b"a\r\n"),
        ];
        for (body, form) in cases {
            for cut in 1..=body.len().max(1) {
                assert_eq!(simple(body, cut), of(form), "{:?} in pieces of {cut}", String::from_utf8_lossy(body));
            }
        }
    }
}
