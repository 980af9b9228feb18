//! The format of libpcap: what the agent writes, and what the lab accepts of it.
//!
//! ```text
//! 0  4  magic d4 c3 b2 a1: little endian, microseconds      then, for each packet:
//! 4  4  version 2.4                                          0  4  seconds since the Unix epoch
//! 8  8  nothing                                              4  4  microseconds
//! 16 4  the longest packet, PACKET_MAX                       8  4  how many bytes follow
//! 20 4  1: packets begin with an Ethernet header            12  4  how many there were
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

/// The longest file.
pub const FILE_MAX: usize = 768 * 1024;
/// How much of one packet is kept.
pub const PACKET_MAX: usize = 16 * 1024;
/// The beginning of a file.
pub const HEADER: [u8; 24] = [
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0x00, 0x40, 0, 0, 1, 0, 0, 0,
];
/// The length of what is before each packet.
const RECORD_HEADER: usize = 16;

/// One packet, of which there was more than is kept if it was long.
pub fn record(packet: &[u8], length: usize, at: Duration) -> Vec<u8> {
    let fit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let packet = packet.get(..PACKET_MAX).unwrap_or(packet);
    let mut record = Vec::with_capacity(RECORD_HEADER + packet.len());
    for number in [at.as_secs(), at.subsec_micros().into(), packet.len() as u64, length.max(packet.len()) as u64] {
        record.extend(fit(number));
    }
    record.extend_from_slice(packet);
    record
}

/// A file of these records, in base64.
pub fn encoded(records: &[u8]) -> String {
    STANDARD.encode([&HEADER[..], records].concat())
}

/// The file in this base64 text, if a reader finds nothing wrong with it. The text comes from a guest that ran malware, and what is
/// made of it is opened by programs that have had bugs: only a file as the agent writes it is one.
pub fn checked(text: &str) -> Option<Vec<u8>> {
    if text.len() > FILE_MAX.div_ceil(3) * 4 {
        return None;
    }
    let file = STANDARD.decode(text).ok()?;
    let mut rest = file.strip_prefix(&HEADER).filter(|_| file.len() <= FILE_MAX)?;
    while !rest.is_empty() {
        let (head, packets) = rest.split_at_checked(RECORD_HEADER)?;
        let number = |at: usize| {
            let bytes: Option<[u8; 4]> = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes)
        };
        let (micros, kept, length) = (number(4)?, number(8)?, number(12)?);
        if micros >= 1_000_000 || kept > length || kept as usize > PACKET_MAX {
            return None;
        }
        rest = packets.split_at_checked(kept as usize)?.1;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_agent_writes_is_accepted() {
        let at = Duration::new(1_700_000_000, 999_999_999);
        let records = [record(b"one", 3, at), record(&[1; 100_000], 100_000, at), record(b"", 0, at)].concat();
        assert_eq!(records.len(), 3 * RECORD_HEADER + 3 + PACKET_MAX);
        assert_eq!(checked(&encoded(&records)).map(|file| file.len()), Some(HEADER.len() + records.len()));
        assert_eq!(u32::from_le_bytes(HEADER[16..20].try_into().unwrap()) as usize, PACKET_MAX);
    }

    #[test]
    fn what_is_anything_else_is_not() {
        let good = record(b"one", 3, Duration::from_secs(1));
        let changed = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            encoded(&bad)
        };
        for bad in [
            String::new(),
            "no base64!".into(),
            STANDARD.encode(b"MZ\x90\0 and so on, which is no capture at all"),
            encoded(&good[..good.len() - 1]),
            encoded(&good[..10]),
            changed(7, 0xff),
            changed(8, 200),
            changed(11, 0x7f),
            changed(12, 0),
            STANDARD.encode(vec![0; FILE_MAX + 3]),
        ] {
            assert_eq!(checked(&bad), None, "{:.60}", bad);
        }
    }
}
