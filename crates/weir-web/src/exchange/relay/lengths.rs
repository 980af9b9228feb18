//! How frames are separated in the stream of a relay: each is preceded by its length (u32, little-endian).

use crate::exchange::carrier::{CarrierError, Codec, Incoming};
use crate::exchange::frame::FRAME_BYTES_MAX;
use bytes::{Buf, BytesMut};

#[derive(Debug)]
pub(super) struct Lengths;

pub(super) const PREFIX_BYTES: usize = 4;

impl Codec for Lengths {
    fn encode(&mut self, frame: &[u8], out: &mut BytesMut) {
        out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(frame);
    }

    fn decode(&mut self, from: &mut BytesMut) -> Result<Option<Incoming>, CarrierError> {
        let Some(prefix) = from.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(CarrierError::Protocol("a frame longer than there are"));
        }
        if from.len() < PREFIX_BYTES + length {
            from.reserve(PREFIX_BYTES + length - from.len());
            return Ok(None);
        }
        from.advance(PREFIX_BYTES);
        Ok(Some(if length == 0 { Incoming::Nothing } else { Incoming::Frame(from.split_to(length).freeze()) }))
    }

    fn probe(&self) -> Option<&'static [u8]> {
        Some(&[0; PREFIX_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
            cut in 1usize..30,
        ) {
            let mut stream = BytesMut::new();
            frames.iter().for_each(|frame| Lengths.encode(frame, &mut stream));
            let (mut buffer, mut out) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(incoming) = Lengths.decode(&mut buffer).unwrap() {
                    out.push(incoming);
                }
            }
            let wanted = frames.into_iter().map(|frame| match frame.len() {
                0 => Incoming::Nothing,
                _ => Incoming::Frame(Bytes::from(frame)),
            });
            prop_assert_eq!(out, wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_length_past_the_bound_ends_it() {
        let mut buffer = BytesMut::from(&[255u8, 255, 255, 255][..]);
        assert!(Lengths.decode(&mut buffer).is_err());
    }
}
