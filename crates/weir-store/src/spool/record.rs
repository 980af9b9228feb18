//! The format of segments and sidecars: both consist of records, each a header of 40 bytes and a payload.
//!
//! ```text
//! 0 marker 8 | id 16 | kind 1, follows a sync 1, zero 2 | payload length 4 | payload CRC-32 4 | CRC-32 of the 36 bytes before
//! ```
//!
//! Numbers are little-endian. The marker is drawn at random for each spool: recovery looks for it after
//! damage, and since no sender can know it, no mail can hold bytes that pass for a record.

use super::error::Limit;
use super::id::MessageId;

pub(super) const HEADER: usize = 40;
/// The longest payload of a chunk.
pub(super) const CHUNK_MAX: usize = 64 * 1024;
/// The longest envelope.
pub const ENVELOPE_MAX: usize = 4 << 20;
/// The longest mark.
pub const MARK_MAX: usize = 64 * 1024;
/// The longest body.
pub const BODY_MAX: u64 = 2 << 30;
const PLACE: usize = 12;
const COMMIT_HEAD: usize = 16;
/// The longest payload of any record; a record that claims more is damaged.
pub(super) const PAYLOAD_MAX: usize = ENVELOPE_MAX + COMMIT_HEAD + PLACE * (2 * BODY_MAX as usize / CHUNK_MAX + 1);

pub(super) type Marker = [u8; 8];

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordKind {
    /// Up to 64 KiB of a draft's body.
    Chunk = 1,
    /// The draft is a message now: its envelope, size, checksum and the places of its chunks.
    Commit = 2,
    /// Progress of a message whose commit stands in the same segment.
    Mark = 3,
    /// That message is done, or has been moved to a newer segment.
    Finish = 4,
    /// The marks so far do not count: those that follow are complete.
    Reset = 5,
    /// That commit was never acknowledged and does not count.
    Void = 6,
}

impl RecordKind {
    fn of(number: u8) -> Option<RecordKind> {
        use RecordKind::*;
        [Chunk, Commit, Mark, Finish, Reset, Void].into_iter().find(|kind| *kind as u8 == number)
    }

    fn payload_max(self) -> usize {
        match self {
            RecordKind::Chunk => CHUNK_MAX,
            RecordKind::Commit => PAYLOAD_MAX,
            RecordKind::Mark => MARK_MAX,
            RecordKind::Finish | RecordKind::Reset | RecordKind::Void => 0,
        }
    }
}

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    pub(super) marker: Marker,
    pub(super) id: MessageId,
    pub(super) kind: RecordKind,
    /// When it was written, everything before it in the file was durable. So damage before it happened later.
    pub(super) follows_sync: bool,
    pub(super) length: u32,
    pub(super) payload_crc: u32,
}

impl RecordHeader {
    /// The bytes of the whole record.
    pub(super) fn record_length(&self) -> u64 {
        HEADER as u64 + u64::from(self.length)
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.marker);
        bytes[8..24].copy_from_slice(&self.id.to_bytes());
        bytes[24] = self.kind as u8;
        bytes[25] = u8::from(self.follows_sync);
        bytes[28..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, if it is a header and undamaged.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Option<RecordHeader> {
        if crc32fast::hash(&bytes[..36]) != u32_at(bytes, 36)? {
            return None;
        }
        let kind = RecordKind::of(bytes[24])?;
        let header = RecordHeader {
            marker: *bytes.first_chunk()?,
            id: MessageId::from_bytes(*bytes[8..].first_chunk()?),
            kind,
            follows_sync: bytes[25] != 0,
            length: u32_at(bytes, 28)?,
            payload_crc: u32_at(bytes, 32)?,
        };
        (header.length as usize <= kind.payload_max()).then_some(header)
    }
}

/// Appends a record; `payload_crc` was computed by whoever made the payload.
pub(super) fn append(out: &mut Vec<u8>, marker: Marker, of: (RecordKind, MessageId), payload: &[u8], payload_crc: u32) {
    append_after(false, out, marker, of, (payload, payload_crc));
}

/// The same, and whether everything before it is durable.
pub(super) fn append_after(
    follows_sync: bool,
    out: &mut Vec<u8>,
    marker: Marker,
    (kind, id): (RecordKind, MessageId),
    (payload, payload_crc): (&[u8], u32),
) {
    let header = RecordHeader { marker, id, kind, follows_sync, length: payload.len() as u32, payload_crc };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(payload);
}

/// Where a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChunkPlace {
    pub(super) segment: u32,
    /// Of its record's first byte.
    pub(super) at: u32,
    /// Of its payload.
    pub(super) length: u32,
}

impl ChunkPlace {
    pub(super) fn record_length(&self) -> u64 {
        HEADER as u64 + u64::from(self.length)
    }
}

/// The payload of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Commit<'a> {
    pub(super) size: u64,
    pub(super) body_crc: u32,
    pub(super) places: Vec<ChunkPlace>,
    pub(super) envelope: &'a [u8],
}

impl<'a> Commit<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.extend_from_slice(&(self.places.len() as u32).to_le_bytes());
        for place in &self.places {
            for number in [place.segment, place.at, place.length] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(self.envelope);
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Commit<'a>> {
        let (head, rest) = bytes.split_at_checked(COMMIT_HEAD)?;
        let count = u32_at(head, 12)? as usize;
        let (places, envelope) = rest.split_at_checked(count.checked_mul(PLACE)?)?;
        let place = |bytes: &[u8]| {
            Some(ChunkPlace { segment: u32_at(bytes, 0)?, at: u32_at(bytes, 4)?, length: u32_at(bytes, 8)? })
        };
        Some(Commit {
            size: Some(u64::from_le_bytes(*head.first_chunk()?)).filter(|size| *size <= BODY_MAX)?,
            body_crc: u32_at(head, 8)?,
            places: places.chunks_exact(PLACE).map(place).collect::<Option<_>>()?,
            envelope,
        })
    }
}

/// Whether something of this length may go into the spool.
pub(super) fn check_length(what: Limit, length: u64) -> Result<(), super::SpoolError> {
    let most = match what {
        Limit::Envelope => ENVELOPE_MAX as u64,
        Limit::Body => BODY_MAX,
        Limit::Mark => MARK_MAX as u64,
    };
    if length > most { Err(super::SpoolError::TooLong { what, length, most }) } else { Ok(()) }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_trip_and_no_flipped_bit_does() {
        let header = RecordHeader {
            marker: [7; 8],
            id: MessageId::of(1 << 77),
            kind: RecordKind::Mark,
            follows_sync: true,
            length: 300,
            payload_crc: 9,
        };
        let bytes = header.encode();
        assert_eq!(RecordHeader::decode(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_commit_survives_the_trip_and_a_cut_one_is_refused() {
        let places =
            vec![ChunkPlace { segment: 3, at: 32, length: 65_536 }, ChunkPlace { segment: 4, at: 32, length: 7 }];
        let commit = Commit { size: 65_543, body_crc: 5, places, envelope: b"from to" };
        let mut bytes = Vec::new();
        commit.encode(&mut bytes);
        assert_eq!(Commit::decode(&bytes), Some(commit));
        for length in 0..bytes.len() - b"from to".len() {
            assert_eq!(Commit::decode(&bytes[..length]), None);
        }
        for at in [0, 12] {
            let mut absurd = bytes.clone();
            absurd[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(Commit::decode(&absurd), None, "byte {at}");
        }
    }

    #[test]
    fn an_absurd_length_is_no_header() {
        let long = RecordHeader {
            marker: [7; 8],
            id: MessageId::of(1),
            kind: RecordKind::Chunk,
            follows_sync: false,
            length: 65_537,
            payload_crc: 0,
        };
        assert_eq!(RecordHeader::decode(&long.encode()), None);
    }
}
