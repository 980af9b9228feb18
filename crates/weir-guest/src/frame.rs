//! Frames: eight bytes that say what follows and how long it is, then that.
//!
//! ```text
//! 0  2  "Wg"
//! 2  1  version, 1
//! 3  1  kind
//! 4  4  length of what follows, little endian, at most FRAME_MAX
//! ```

use std::io::{self, Read, Write};

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// The longest content of a frame.
pub const FRAME_MAX: usize = 256 * 1024;
/// The length of what goes before the content.
pub const HEADER: usize = 8;

const MAGIC: [u8; 2] = *b"Wg";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the guest: are you there? With a nonce, fresh randomness and the time.
    Hello = 1,
    /// From the guest: I am, with the same nonce.
    Ready = 2,
    /// To the guest: a sample follows, and this is how to run it.
    Run = 3,
    /// A piece of a sample or of a file.
    Data = 4,
    /// From the guest, while a sample runs: I am still watching.
    Alive = 5,
    /// From the guest: a piece of the report.
    Report = 6,
    /// From the guest: a file that the sample left follows.
    File = 7,
    /// From the guest: that was all.
    End = 8,
    /// From the guest: it could not be done, and why.
    Failed = 9,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{Alive, Data, End, Failed, File, Hello, Ready, Report, Run};
        [Hello, Ready, Run, Data, Alive, Report, File, End, Failed].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// How long it is.
    pub length: usize,
}

impl Header {
    /// As it is sent. What is longer than a frame can be is cut by nobody: the other side refuses it.
    pub fn bytes(self) -> [u8; HEADER] {
        let [a, b, c, d] = u32::try_from(self.length).unwrap_or(u32::MAX).to_le_bytes();
        [MAGIC[0], MAGIC[1], VERSION, self.kind as u8, a, b, c, d]
    }

    /// Reads one, or says what is wrong with it.
    pub fn read(bytes: [u8; HEADER]) -> Result<Header, &'static str> {
        let [m, n, version, kind, a, b, c, d] = bytes;
        if [m, n] != MAGIC {
            return Err("no frame begins so");
        }
        if version != VERSION {
            return Err("another version of the protocol");
        }
        let kind = Kind::of(kind).ok_or("an unknown kind of frame")?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > FRAME_MAX {
            return Err("a frame longer than a frame may be");
        }
        Ok(Header { kind, length })
    }
}

/// Writes one frame.
pub fn write(to: &mut impl Write, kind: Kind, content: &[u8]) -> io::Result<()> {
    to.write_all(&Header { kind, length: content.len() }.bytes())?;
    to.write_all(content)
}

/// Writes content as frames of one kind.
pub fn write_pieces(to: &mut impl Write, kind: Kind, content: &[u8]) -> io::Result<()> {
    content.chunks(FRAME_MAX).try_for_each(|piece| write(to, kind, piece))
}

/// Reads one frame.
pub fn read(from: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let header = Header::read(header).map_err(io::Error::other)?;
    let mut content = vec![0; header.length];
    from.read_exact(&mut content)?;
    Ok((header.kind, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut line = Vec::new();
        write(&mut line, Kind::Hello, b"abc").unwrap();
        write_pieces(&mut line, Kind::Data, &vec![7; FRAME_MAX + 1]).unwrap();
        let mut line = &line[..];
        assert_eq!(read(&mut line).unwrap(), (Kind::Hello, b"abc".to_vec()));
        assert_eq!(read(&mut line).unwrap().1.len(), FRAME_MAX);
        assert_eq!(read(&mut line).unwrap(), (Kind::Data, vec![7]));
        assert!(read(&mut line).is_err());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let good = Header { kind: Kind::End, length: 0 }.bytes();
        assert!(Header::read(good).is_ok());
        for (place, byte) in [(0, b'x'), (2, 2), (3, 0), (3, 10), (7, 1)] {
            let mut bad = good;
            bad[place] = byte;
            assert!(Header::read(bad).is_err(), "{bad:?}");
        }
    }
}
