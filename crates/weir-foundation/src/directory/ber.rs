//! The part of BER (X.690) that LDAP needs: definite lengths, and tags of one octet. Without I/O.

/// Tags of the universal class, which mean the same in every protocol.
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const SEQUENCE: u8 = 0x30;

/// An element with this content.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut octets = vec![tag];
    match content.len() {
        short @ 0..=127 => octets.push(short as u8),
        long => {
            let length = long.to_be_bytes();
            let skipped = length.iter().take_while(|octet| **octet == 0).count();
            octets.push(0x80 | (length.len() - skipped) as u8);
            octets.extend_from_slice(&length[skipped..]);
        }
    }
    octets.extend_from_slice(content);
    octets
}

/// An element that consists of other elements.
pub(super) fn nested(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    element(tag, &parts.concat())
}

/// A number that is not negative.
pub(super) fn number(tag: u8, value: u32) -> Vec<u8> {
    let octets = u64::from(value).to_be_bytes();
    // The first bit is the sign, so a number that begins with it needs a zero octet before it.
    let skipped = (0..7).take_while(|at| octets[*at] == 0 && octets[at + 1] < 0x80).count();
    element(tag, &octets[skipped..])
}

/// Reads elements one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Elements<'a> {
    /// The next element with its tag; none at the end, or if the element is cut off.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (whole, head) = length(self.0)??;
        let element = self.0.get(..whole)?;
        self.0 = &self.0[whole..];
        Some((element[0], &element[head..]))
    }

    /// The next element, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// Reads a number of at most four octets that is not negative.
    pub(super) fn number(&mut self, tag: u8) -> Option<u32> {
        let octets = self.expect(tag)?;
        let sane = (1..=4).contains(&octets.len()) && octets[0] < 0x80;
        sane.then(|| octets.iter().fold(0, |value, octet| value << 8 | u32::from(*octet)))
    }
}

/// The length of the first element with its head, and the length of the head alone. `Some(None)` if the length cannot be read, `None` if
/// more octets are needed.
#[expect(clippy::option_option, reason = "incomplete and wrong are two things")]
pub(super) fn length(octets: &[u8]) -> Option<Option<(usize, usize)>> {
    let first = *octets.get(1)?;
    let (head, content) = match first {
        0..=0x7f => (2, usize::from(first)),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = octets.get(2..2 + count)?;
            (2 + count, digits.iter().fold(0, |length, octet| length << 8 | usize::from(*octet)))
        }
        // An indefinite length, or more digits than anything that we read has.
        _ => return Some(None),
    };
    Some(content.checked_add(head).map(|whole| (whole, head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for size in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; size];
            let octets = element(OCTETS, &content);
            assert_eq!(Elements(&octets).next(), Some((OCTETS, &content[..])));
            assert_eq!(Elements(&octets[..octets.len() - 1]).next(), None, "cut off");
        }
        for value in [0, 1, 127, 128, 255, 256, 65_535, 1 << 24, i32::MAX as u32] {
            assert_eq!(Elements(&number(INTEGER, value)).number(INTEGER), Some(value));
        }
        assert_eq!(number(INTEGER, 128), [2, 2, 0, 128]);
    }

    #[test]
    fn lengths_that_nobody_should_send_are_no_lengths() {
        for octets in [&[0x30, 0x80][..], &[0x30, 0x85, 1, 1, 1, 1, 1], &[0x30, 0xff]] {
            assert_eq!(length(octets), Some(None));
        }
        assert_eq!((length(&[0x30]), length(&[0x30, 0x82, 1])), (None, None));
        assert_eq!(Elements(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).next(), None);
    }
}
