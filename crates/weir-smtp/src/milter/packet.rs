//! Splits the octets of a milter connection into packets.

use super::Garbled;

/// The longest packet. Servers send the body in pieces of 64 KiB, and cut header fields before they are this long.
pub const PACKET_MAX: usize = 256 << 10;

/// A letter and its data.
pub(super) type Packet = (u8, Vec<u8>);

/// The packets of one connection.
#[derive(Debug, Default)]
pub struct Packets {
    octets: Vec<u8>,
    /// The octets before this position have been taken.
    at: usize,
}

impl Packets {
    /// Adds octets from the server. Afterwards, call `Packets::next_packet` until it returns none.
    pub fn feed(&mut self, octets: &[u8]) {
        self.octets.drain(..std::mem::take(&mut self.at));
        self.octets.extend_from_slice(octets);
    }

    /// The next packet; none until more octets arrive.
    pub(super) fn next_packet(&mut self) -> Result<Option<Packet>, Garbled> {
        let Some((length, rest)) = self.octets.get(self.at..).and_then(<[u8]>::split_first_chunk::<4>) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        if length as usize > PACKET_MAX {
            return Err(Garbled::Long(length));
        }
        let Some(packet) = rest.get(..length as usize) else { return Ok(None) };
        let (command, data) = packet.split_first().ok_or(Garbled::Empty)?;
        let packet = (*command, data.to_vec());
        self.at += 4 + length as usize;
        Ok(Some(packet))
    }

    /// How many octets are not parsed yet.
    pub(crate) fn waiting(&self) -> usize {
        self.octets.len() - self.at
    }
}
