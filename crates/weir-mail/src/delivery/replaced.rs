//! Replaces the subject of a message, if the scan asked for it: the new subject is among the added header lines, and the old one is left
//! out.

use super::ledger::{LedgerError, StoredBody};
use std::sync::Arc;
use weir_smtp::client::content::BodySource;
use weir_store::spool::Piece;

/// The body of a message, without the subject if another one is added.
pub(super) struct WithoutReplaced<B> {
    body: B,
    /// The added header lines, until the first piece has been read.
    added: Option<Arc<str>>,
}

impl<B: StoredBody> WithoutReplaced<B> {
    /// The body, which must not have been read yet, with these header lines added before it.
    pub(super) fn new(body: B, added: &Arc<str>) -> WithoutReplaced<B> {
        WithoutReplaced { body, added: Some(Arc::clone(added)) }
    }
}

impl<B: StoredBody> BodySource for WithoutReplaced<B> {
    type Piece = Piece;
    type Error = LedgerError;

    async fn next(&mut self) -> Result<Option<Piece>, LedgerError> {
        let piece = self.body.next().await?;
        Ok(match self.added.take() {
            Some(added) => piece.map(|first| without_replaced(first, &added)),
            None => piece,
        })
    }
}

/// The first piece of a message, without its subject if another one is added. The header of nearly every message is in its first piece;
/// a longer one keeps both.
pub(super) fn without_replaced(first: Piece, added: &str) -> Piece {
    if !added.lines().any(|line| line.starts_with("Subject: ")) {
        return first;
    }
    let (mut kept, mut rest, mut left_out) = (Vec::with_capacity(first.len()), &first[..], false);
    while !rest.is_empty() {
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let (line, behind) = rest.split_at(length);
        if line.trim_ascii().is_empty() {
            break;
        }
        let goes_on = matches!(line.first(), Some(b' ' | b'\t'));
        left_out = if goes_on { left_out } else { is_subject(line) };
        if !left_out {
            kept.extend_from_slice(line);
        }
        rest = behind;
    }
    kept.extend_from_slice(rest);
    kept.into()
}

fn is_subject(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    name.len() < line.len() && name.trim_ascii().eq_ignore_ascii_case(b"subject")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_subject_goes_where_a_new_one_comes() {
        let message = "From: a@b\r\nSUBJECT : old\r\n goes on\r\nTo: c@d\r\n\r\nSubject: in the text\r\n";
        let kept = |added: &str| {
            let piece = without_replaced(message.as_bytes().to_vec().into(), added);
            String::from_utf8_lossy(&piece).into_owned()
        };
        assert_eq!(kept("X-Spam: yes\r\nX-Subject: x\r\n"), message);
        let without = "From: a@b\r\nTo: c@d\r\n\r\nSubject: in the text\r\n";
        assert_eq!(kept("X-Spam: yes\r\nSubject: [SPAM] old\r\n"), without);
    }
}
