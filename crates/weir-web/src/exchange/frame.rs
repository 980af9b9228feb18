//! The wire format of the exchange: bounded, versioned, authenticated.
//!
//! ```text
//! magic "WX" · version · kind · front-end u64 · incarnation u64 · number u64 · sent µs u64 · body · 16 bytes of HMAC-SHA256
//! ```
//!
//! Integers are little-endian. Every frame is authenticated with the cluster's secret, so a relay or a NATS server can drop or repeat
//! frames but not forge them. Decoding allocates no more than [`RECORDS_MAX`] records or one page; anything that is not exactly a
//! frame of this version is refused.

use super::shared_queue::QueueId;
use bytes::Bytes;
use ring::hmac;
use weir_core::fair::{Report, SessionKey, SubnetKey, Work};

pub const FRAME_BYTES_MAX: usize = 36 * 1024;
/// Most records in a frame.
pub const RECORDS_MAX: usize = 64;
/// Most numbers in one [`Body::Want`].
pub const WANTED_MAX: usize = 64;
/// Most bytes of a document in one frame.
pub const PAGE_BYTES: usize = 32 * 1024;

/// Who sent a frame, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub origin: Origin,
    /// Number of the last news sent, this one included.
    pub number: u64,
    /// The sender's clock, in µs since 1970.
    pub sent_us: u64,
}

/// A front-end in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub front_end: u64,
    /// Start of the process, in µs since 1970: a later life is a higher one.
    pub incarnation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub header: Header,
    pub body: Body,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Reports of one backend. The only kind that is numbered; all others tell the last number used.
    News {
        queue: QueueId,
        /// At most [`RECORDS_MAX`].
        reports: Vec<Report>,
    },
    /// A sign of life.
    Heartbeat(Heartbeat),
    /// The sender of this frame is missing news.
    Want {
        /// Who should send it.
        to: Origin,
        /// Everything is requested, unless it was sent in news above this number.
        all: Option<u64>,
        /// These numbers, at most [`WANTED_MAX`].
        numbers: Vec<u64>,
    },
    /// A page of a document is wanted, from whoever has it.
    Ask {
        document: DocumentId,
        /// Where the page begins.
        offset: u32,
    },
    /// A page of a document.
    Page {
        document: DocumentId,
        /// Where it begins.
        offset: u32,
        /// At most [`PAGE_BYTES`].
        bytes: Bytes,
    },
}

/// A sign of life, and what the front-end has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Everything was last sent in news from this number on.
    pub snapshot: u64,
    /// The oldest news that can be sent again.
    pub oldest: u64,
    /// The newest history document held in full, and its length in bytes.
    pub holds: DocumentId,
    pub length: u32,
    pub uses: DocumentId,
}

/// A version of the history document. A higher version is newer; for the same version the higher digest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentId {
    /// Counts up; zero is no document.
    pub version: u64,
    /// First half of the SHA-256 of its text.
    pub digest: u128,
}

const MAGIC: [u8; 3] = [b'W', b'X', 1];
const HEADER_BYTES: usize = 36;
const TAG_BYTES: usize = 16;
const RECORD_BYTES: usize = 29;

impl Frame {
    /// The bytes of this frame. Records beyond a limit are left out.
    pub fn encode(&self, key: &hmac::Key) -> Bytes {
        let mut out = Vec::with_capacity(256);
        out.extend(MAGIC);
        out.push(self.body.kind());
        for word in self.header.words() {
            out.extend(word.to_le_bytes());
        }
        self.body.encode(&mut out);
        let tag = hmac::sign(key, &out);
        out.extend(tag.as_ref().iter().take(TAG_BYTES));
        out.into()
    }

    /// Reads a frame and checks its HMAC.
    pub fn decode(key: &hmac::Key, frame: &Bytes) -> Result<Frame, FrameError> {
        let header = Header::peek(frame)?;
        let end = frame.len().checked_sub(TAG_BYTES).ok_or(FrameError::Malformed)?;
        let (signed, tag) = frame.split_at(end);
        if !proves(key, signed, tag) {
            return Err(FrameError::Forged);
        }
        let mut reader = FrameReader { frame, place: HEADER_BYTES, end };
        let body = Body::decode(frame[MAGIC.len()], &mut reader).ok_or(FrameError::Malformed)?;
        if reader.place == end { Ok(Frame { header, body }) } else { Err(FrameError::Malformed) }
    }
}

fn proves(key: &hmac::Key, signed: &[u8], tag: &[u8]) -> bool {
    let right = hmac::sign(key, signed);
    let half = |bytes: &[u8]| bytes.first_chunk::<TAG_BYTES>().map(|bytes| u128::from_le_bytes(*bytes));
    half(right.as_ref()) == half(tag)
}

impl Header {
    /// The header, not verified: good enough to recognise a repeated frame.
    pub fn peek(frame: &[u8]) -> Result<Header, FrameError> {
        if frame.len() > FRAME_BYTES_MAX || frame.len() < HEADER_BYTES + TAG_BYTES {
            return Err(FrameError::Malformed);
        }
        if !frame.starts_with(&MAGIC) {
            return Err(FrameError::Version);
        }
        let mut reader = FrameReader { frame, place: 4, end: HEADER_BYTES };
        let mut word = || reader.u64().ok_or(FrameError::Malformed);
        let origin = Origin { front_end: word()?, incarnation: word()? };
        Ok(Header { origin, number: word()?, sent_us: word()? })
    }

    /// Whether the frame with this header is news.
    pub fn is_news(frame: &[u8]) -> bool {
        frame.get(MAGIC.len()) == Some(&NEWS)
    }

    fn words(&self) -> [u64; 4] {
        [self.origin.front_end, self.origin.incarnation, self.number, self.sent_us]
    }
}

const NEWS: u8 = 1;
const HEARTBEAT: u8 = 2;
const WANT: u8 = 3;
const ASK: u8 = 4;
const PAGE: u8 = 5;

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::News { .. } => NEWS,
            Body::Heartbeat(_) => HEARTBEAT,
            Body::Want { .. } => WANT,
            Body::Ask { .. } => ASK,
            Body::Page { .. } => PAGE,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::News { queue, reports } => {
                out.extend(queue.0.to_le_bytes());
                let reports = &reports[..reports.len().min(RECORDS_MAX)];
                out.push(reports.len() as u8);
                reports.iter().for_each(|report| encode_report(report, out));
            }
            Body::Heartbeat(beat) => {
                out.extend(beat.snapshot.to_le_bytes());
                out.extend(beat.oldest.to_le_bytes());
                beat.holds.encode(out);
                out.extend(beat.length.to_le_bytes());
                beat.uses.encode(out);
            }
            Body::Want { to, all, numbers } => {
                let numbers = &numbers[..numbers.len().min(WANTED_MAX)];
                out.extend(to.front_end.to_le_bytes());
                out.extend(to.incarnation.to_le_bytes());
                out.push(u8::from(all.is_some()));
                out.extend(all.unwrap_or(0).to_le_bytes());
                out.push(numbers.len() as u8);
                numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            }
            Body::Ask { document, offset } => {
                document.encode(out);
                out.extend(offset.to_le_bytes());
            }
            Body::Page { document, offset, bytes } => {
                document.encode(out);
                out.extend(offset.to_le_bytes());
                out.extend(&bytes[..bytes.len().min(PAGE_BYTES)]);
            }
        }
    }

    fn decode(kind: u8, from: &mut FrameReader<'_, Bytes>) -> Option<Body> {
        Some(match kind {
            NEWS => {
                let (queue, count) = (QueueId(from.u64()?), usize::from(from.u8()?));
                let fits = count <= RECORDS_MAX && from.left() == count * RECORD_BYTES;
                Body::News {
                    queue,
                    reports: fits.then(|| (0..count).map(|_| decode_report(from)).collect::<Option<_>>())??,
                }
            }
            HEARTBEAT => Body::Heartbeat(Heartbeat {
                snapshot: from.u64()?,
                oldest: from.u64()?,
                holds: DocumentId::decode(from)?,
                length: from.u32()?,
                uses: DocumentId::decode(from)?,
            }),
            WANT => {
                let to = Origin { front_end: from.u64()?, incarnation: from.u64()? };
                let (flag, above, count) = (from.u8()?, from.u64()?, usize::from(from.u8()?));
                let fits = flag <= 1 && count <= WANTED_MAX && from.left() == 8 * count;
                let numbers = fits.then(|| (0..count).map(|_| from.u64()).collect::<Option<_>>())??;
                Body::Want { to, all: (flag == 1).then_some(above), numbers }
            }
            ASK => Body::Ask { document: DocumentId::decode(from)?, offset: from.u32()? },
            PAGE => {
                let (document, offset) = (DocumentId::decode(from)?, from.u32()?);
                Body::Page { document, offset, bytes: from.rest().filter(|bytes| bytes.len() <= PAGE_BYTES)? }
            }
            _ => return None,
        })
    }
}

fn encode_report(report: &Report, out: &mut Vec<u8>) {
    out.extend(report.session.0.to_le_bytes());
    out.extend(report.subnet.0.to_le_bytes());
    out.extend(report.life.to_le_bytes());
    out.extend(report.served.0.to_le_bytes());
    out.push(u8::from(report.active));
}

fn decode_report(from: &mut FrameReader<'_, Bytes>) -> Option<Report> {
    Some(Report {
        session: SessionKey(from.u64()?),
        subnet: SubnetKey(from.u64()?),
        life: from.u32()?,
        served: Work(from.u64()?),
        active: from.u8().filter(|flag| *flag <= 1)? == 1,
    })
}

impl DocumentId {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.version.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
    }

    fn decode(from: &mut FrameReader<'_, Bytes>) -> Option<DocumentId> {
        Some(DocumentId { version: from.u64()?, digest: u128::from_le_bytes(from.array()?) })
    }
}

/// Takes integers off the front of a frame.
struct FrameReader<'a, F: ?Sized> {
    frame: &'a F,
    place: usize,
    end: usize,
}

impl<F: AsRef<[u8]> + ?Sized> FrameReader<'_, F> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.frame.as_ref().get(self.place..self.end)?.first_chunk()?;
        self.place += N;
        Some(array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn left(&self) -> usize {
        self.end.saturating_sub(self.place)
    }
}

impl FrameReader<'_, Bytes> {
    fn rest(&mut self) -> Option<Bytes> {
        let rest = (self.place <= self.end).then(|| self.frame.slice(self.place..self.end));
        self.place = self.end;
        rest
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not ours, or of another version.
    #[error("no frame of this version")]
    Version,
    /// Its lengths do not fit.
    #[error("a malformed frame")]
    Malformed,
    /// Not made with this cluster's secret.
    #[error("a frame that this cluster's secret did not make")]
    Forged,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, b"key")
    }

    fn any_document() -> impl Strategy<Value = DocumentId> {
        (any::<u64>(), any::<u128>()).prop_map(|(version, digest)| DocumentId { version, digest })
    }

    fn any_origin() -> impl Strategy<Value = Origin> {
        (any::<u64>(), any::<u64>()).prop_map(|(front_end, incarnation)| Origin { front_end, incarnation })
    }

    fn any_report() -> impl Strategy<Value = Report> {
        any::<(u64, u64, u32, u64, bool)>().prop_map(|(session, subnet, life, served, active)| Report {
            session: SessionKey(session),
            subnet: SubnetKey(subnet),
            life,
            served: Work(served),
            active,
        })
    }

    fn any_body() -> impl Strategy<Value = Body> {
        prop_oneof![
            (any::<u64>(), prop::collection::vec(any_report(), 0..=RECORDS_MAX))
                .prop_map(|(queue, reports)| Body::News { queue: QueueId(queue), reports }),
            (any::<(u64, u64, u32)>(), any_document(), any_document()).prop_map(
                |((snapshot, oldest, length), holds, uses)| Body::Heartbeat(Heartbeat {
                    snapshot,
                    oldest,
                    holds,
                    length,
                    uses
                })
            ),
            (any_origin(), any::<Option<u64>>(), prop::collection::vec(any::<u64>(), 0..=WANTED_MAX))
                .prop_map(|(to, all, numbers)| Body::Want { to, all, numbers }),
            (any_document(), any::<u32>()).prop_map(|(document, offset)| Body::Ask { document, offset }),
            (any_document(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..200))
                .prop_map(|(document, offset, bytes)| Body::Page { document, offset, bytes: bytes.into() }),
        ]
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        (any_origin(), any::<(u64, u64)>(), any_body())
            .prop_map(|(origin, (number, sent_us), body)| Frame { header: Header { origin, number, sent_us }, body })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frame in any_frame()) {
            let bytes = frame.encode(&key());
            prop_assert_eq!(Header::peek(&bytes), Ok(frame.header));
            prop_assert_eq!(Header::is_news(&bytes), matches!(frame.body, Body::News { .. }));
            prop_assert_eq!(Frame::decode(&key(), &bytes), Ok(frame));
        }

        #[test]
        fn one_changed_bit_or_another_key_is_noticed(frame in any_frame(), place: prop::sample::Index, bit in 0u8..8) {
            let bytes = frame.encode(&key());
            prop_assert_eq!(Frame::decode(&hmac::Key::new(hmac::HMAC_SHA256, b"other"), &bytes), Err(FrameError::Forged));
            let mut bytes = bytes.to_vec();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            prop_assert!(Frame::decode(&key(), &bytes.into()).is_err());
        }

        /// Even somebody who has the key cannot send anything that panics or allocates beyond the limits.
        #[test]
        fn any_signed_bytes_are_a_frame_or_refused(kind: u8, body: Vec<u8>, cut: prop::sample::Index) {
            let mut bytes = [&MAGIC[..], &[kind % 8], &[7; 32], &body].concat();
            bytes.truncate(cut.index(bytes.len() + 1));
            let tag = hmac::sign(&key(), &bytes);
            bytes.extend(&tag.as_ref()[..TAG_BYTES]);
            if let Ok(frame) = Frame::decode(&key(), &bytes.clone().into()) {
                prop_assert_eq!(frame.encode(&key()), bytes);
            }
        }
    }

    #[test]
    fn the_largest_frames_fit() {
        let header = Header { origin: Origin { front_end: 1, incarnation: 2 }, number: 3, sent_us: 4 };
        let body = Body::Page { document: DocumentId::default(), offset: 0, bytes: vec![1; PAGE_BYTES].into() };
        let bytes = Frame { header, body }.encode(&key());
        assert!(bytes.len() <= FRAME_BYTES_MAX);
        assert!(Frame::decode(&key(), &bytes).is_ok());
        assert_eq!(Header::peek(&vec![0; FRAME_BYTES_MAX + 1]), Err(FrameError::Malformed));
    }
}
