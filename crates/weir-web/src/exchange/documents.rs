//! The history documents of one front-end: which it holds, which it fetches, and when it switches to a new one.
//!
//! Signs of life tell who holds which document. Whoever lacks the newest one asks for its pages; of those that hold it, the
//! first by name answers. A front-end switches when all that are alive hold it, or [`BOUND`] after it has it itself. Memory: two documents of
//! at most [`TEXT_BYTES_MAX`].

use super::frame::{DocumentId, PAGE_BYTES};
use crate::profile::TEXT_BYTES_MAX;
use bytes::Bytes;
use ring::digest;
use std::time::Duration;
use weir_core::time::Instant;

/// The longest wait for others before the switch.
pub(super) const BOUND: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(100);
const PAGES_AT_ONCE: usize = 8;
const REFUSED_MAX: usize = 8;

/// The documents of one front-end.
#[derive(Debug, Default)]
pub(super) struct Documents {
    held: Option<HeldDocument>,
    uses: DocumentId,
    fetch: Option<Fetch>,
    /// Documents that arrived complete but could not be read; they are not requested again.
    refused: Vec<DocumentId>,
}

#[derive(Debug)]
struct HeldDocument {
    id: DocumentId,
    text: Bytes,
    since: Instant,
}

#[derive(Debug)]
struct Fetch {
    id: DocumentId,
    length: usize,
    pages: Vec<Option<Bytes>>,
    asked_at: Option<Instant>,
}

impl Documents {
    /// The newest document held, with its length.
    pub(super) fn holds(&self) -> (DocumentId, usize) {
        self.held.as_ref().map_or((DocumentId::default(), 0), |held| (held.id, held.text.len()))
    }

    pub(super) fn uses(&self) -> DocumentId {
        self.uses
    }

    /// A whole document; it counts if it is newer than what is held.
    pub(super) fn put(&mut self, id: DocumentId, text: Bytes, now: Instant) -> bool {
        let newer = id > self.holds().0 && text.len() <= TEXT_BYTES_MAX;
        if newer {
            self.held = Some(HeldDocument { id, text, since: now });
            self.fetch = None;
        }
        newer
    }

    /// A document that arrived complete cannot be read.
    pub(super) fn refuse(&mut self, id: DocumentId) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.remove(0);
        }
        self.refused.push(id);
        self.fetch = None;
    }

    /// Offsets of the pages to request now, given the newest document that others hold.
    pub(super) fn wants(&mut self, id: DocumentId, length: usize, now: Instant) -> Vec<u32> {
        if id <= self.holds().0 || length > TEXT_BYTES_MAX || self.refused.contains(&id) {
            return Vec::new();
        }
        // The front-end that had a newer one may be gone: a document that nobody holds any more is not waited for.
        if self.fetch.as_ref().is_none_or(|fetch| (fetch.id, fetch.length) != (id, length)) {
            self.fetch = Some(Fetch { id, length, pages: vec![None; length.div_ceil(PAGE_BYTES)], asked_at: None });
        }
        self.fetch.as_mut().map_or(Vec::new(), |fetch| fetch.wants(now))
    }

    /// The page that another front-end asks for, if it is here.
    pub(super) fn page(&self, id: DocumentId, offset: u32) -> Option<Bytes> {
        let held = self.held.as_ref().filter(|held| held.id == id)?;
        let (start, length) = (offset as usize, held.text.len());
        let fits = start.is_multiple_of(PAGE_BYTES) && start < length;
        fits.then(|| held.text.slice(start..length.min(start + PAGE_BYTES)))
    }

    /// A page has come; returns the document if it was the last one and the digest is right.
    pub(super) fn take_page(&mut self, id: DocumentId, offset: u32, page: Bytes) -> Option<Bytes> {
        let fetch = self.fetch.as_mut().filter(|fetch| fetch.id == id)?;
        let start = offset as usize;
        let right_length = page.len() == PAGE_BYTES.min(fetch.length.checked_sub(start)?);
        let place =
            fetch.pages.get_mut(start / PAGE_BYTES).filter(|_| right_length && start.is_multiple_of(PAGE_BYTES))?;
        *place = Some(page);
        // The next pages may be requested at once.
        fetch.asked_at = fetch.asked_at.filter(|_| fetch.pages.iter().flatten().count() % PAGES_AT_ONCE != 0);
        let text = fetch.whole()?;
        self.fetch = None;
        if digest_of(&text) == id.digest {
            return Some(text);
        }
        self.refuse(id);
        None
    }

    /// The document to switch to now: all others hold it or something newer, or the wait is over.
    pub(super) fn due(&mut self, mut others: impl Iterator<Item = DocumentId>, now: Instant) -> Option<Bytes> {
        let held = self.held.as_ref().filter(|held| held.id > self.uses)?;
        if now.since(held.since) < BOUND && !others.all(|other| other >= held.id) {
            return None;
        }
        self.uses = held.id;
        Some(held.text.clone())
    }
}

impl Fetch {
    fn wants(&mut self, now: Instant) -> Vec<u32> {
        if self.asked_at.is_some_and(|at| now.since(at) < ASK_AGAIN) {
            return Vec::new();
        }
        self.asked_at = Some(now);
        let missing = self.pages.iter().enumerate().filter(|(_, page)| page.is_none());
        missing.take(PAGES_AT_ONCE).map(|(place, _)| (place * PAGE_BYTES) as u32).collect()
    }

    fn whole(&self) -> Option<Bytes> {
        let pages: Option<Vec<&[u8]>> = self.pages.iter().map(Option::as_deref).collect();
        pages.map(|pages| pages.concat().into())
    }
}

/// First half of the SHA-256 of a text.
pub(super) fn digest_of(text: &[u8]) -> u128 {
    let digest = digest::digest(&digest::SHA256, text);
    digest.as_ref().first_chunk().map_or(0, |half| u128::from_be_bytes(*half))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(version: u64, text: &[u8]) -> (DocumentId, Bytes) {
        (DocumentId { version, digest: digest_of(text) }, Bytes::copy_from_slice(text))
    }

    #[test]
    fn a_document_comes_page_by_page_in_any_order() {
        let text: Vec<u8> = (0..PAGE_BYTES * 10 + 5).map(|i| (i % 251) as u8).collect();
        let (id, text) = document(3, &text);
        let (mut holder, mut seeker) = (Documents::default(), Documents::default());
        assert!(holder.put(id, text.clone(), Instant(0)));
        let mut came = None;
        for round in 0..5u64 {
            let mut offsets = seeker.wants(id, text.len(), Instant(round * 200_000_000));
            offsets.reverse();
            for offset in offsets.into_iter().skip(usize::from(round == 0)) {
                came = came.or(seeker.take_page(id, offset, holder.page(id, offset).unwrap()));
            }
        }
        assert_eq!(came, Some(text.clone()));
        assert!(seeker.put(id, came.unwrap(), Instant(0)));
        assert!(seeker.wants(id, text.len(), Instant(9_000_000_000)).is_empty());
        assert_eq!(holder.page(id, 7), None);
        assert_eq!(holder.page(id, u32::MAX), None);
    }

    #[test]
    fn a_document_whose_holder_is_gone_does_not_keep_an_older_one_away() {
        let ((newer, _), (older, text)) = (document(4, b"newer"), document(3, b"older"));
        let mut documents = Documents::default();
        assert_eq!(documents.wants(newer, PAGE_BYTES + 5, Instant(0)).len(), 2);
        assert_eq!(documents.wants(older, text.len(), Instant(1)), [0]);
        assert_eq!(documents.take_page(older, 0, text.clone()), Some(text));
    }

    #[test]
    fn a_false_document_is_dropped_once_and_for_all() {
        let (id, _) = document(3, b"true");
        let mut documents = Documents::default();
        assert_eq!(documents.wants(id, 4, Instant(0)), [0]);
        assert_eq!(documents.take_page(id, 1, Bytes::from_static(b"rue")), None);
        assert_eq!(documents.take_page(id, 0, Bytes::from_static(b"true but long")), None);
        assert_eq!(documents.take_page(id, 0, Bytes::from_static(b"fals")), None);
        assert!(documents.wants(id, 4, Instant(9_000_000_000)).is_empty());
        assert!(documents.wants(DocumentId { version: 9, ..id }, TEXT_BYTES_MAX + 1, Instant(0)).is_empty());
    }

    #[test]
    fn all_switch_when_all_hold_it_or_after_the_bound() {
        let (id, text) = document(3, b"text");
        let older = DocumentId { version: 2, digest: 9 };
        let mut documents = Documents::default();
        documents.put(id, text.clone(), Instant(0));
        assert_eq!(documents.due([id, older].into_iter(), Instant(1)), None);
        assert_eq!(documents.uses(), DocumentId::default());
        assert_eq!(documents.due([id, id].into_iter(), Instant(1)), Some(text.clone()));
        assert_eq!(documents.due([id, id].into_iter(), Instant(1)), None, "once");
        let (next, text) = document(4, b"next");
        documents.put(next, text.clone(), Instant(0));
        assert!(!documents.put(id, text.clone(), Instant(0)), "older ones do not count");
        assert_eq!(documents.due([id].into_iter(), Instant(10_000_000_000)), Some(text));
    }
}
