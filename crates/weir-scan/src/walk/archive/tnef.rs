//! TNEF, the `winmail.dat` of Outlook: attachments with the names that they have, short and long.
//!
//! Source: Microsoft, *[MS-OXTNEF]*. Members are not packed.

use super::super::{Oddity, Walk, bounded_name};
use super::rtf_packed;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};

const BEGINS_ATTACHMENT: u32 = 0x0006_9002;
const TITLE: u32 = 0x0001_8010;
const TRANSPORT_NAME: u32 = 0x0006_9001;
const DATA: u32 = 0x0006_800f;
const PROPERTIES: u32 = 0x0006_9005;
/// Those of the message itself, among them its text.
const OF_MESSAGE: u32 = 0x0006_9003;
const BODY: u32 = 0x0002_800c;

/// Names of an attachment among its properties: long, short, shown, paths, that of the transport, and the extension alone. And its content where
/// that is an object.
const NAMES: [u16; 7] = [0x3707, 0x3704, 0x3001, 0x370d, 0x3708, 0x370c, 0x3703];
const OBJECT: u16 = 0x3701;
/// Outlook writes half as many.
const NAMES_MAX: usize = 16;
/// Contents of one attachment. It has one; an empty one takes fewer octets in the file than in memory.
const CONTENTS_MAX: usize = 1 << 12;

#[derive(Default)]
struct Attachment<'d> {
    names: Vec<String>,
    has_more_names: bool,
    contents: Vec<&'d [u8]>,
    has_more_contents: bool,
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let (mut at, mut attachment) = (6, Attachment::default());
    while at < data.len() {
        let (Some(id), Some(length)) = (u32_at(data, at + 1), u32_at(data, at + 5)) else { break };
        let Some(value) = data.get(at + 9..at.saturating_add(9).saturating_add(length as usize)) else {
            walk.odd_here(Oddity::Unreadable("a TNEF file that breaks off".into()));
            break;
        };
        match id {
            BEGINS_ATTACHMENT => std::mem::take(&mut attachment).show(walk, level)?,
            TITLE | TRANSPORT_NAME => attachment.named(value),
            DATA => attachment.content(value),
            PROPERTIES if attachment.properties(value).is_none() => {
                walk.odd_here(Oddity::Unreadable("a damaged TNEF file".into()));
            }
            OF_MESSAGE => rtf_packed::open(walk, value, level)?,
            BODY => walk.stored(&["body.txt".into()], value, level)?,
            _ => {}
        }
        at += 9 + value.len() + 2;
    }
    attachment.show(walk, level)
}

impl<'d> Attachment<'d> {
    fn named(&mut self, name: &[u8]) {
        let name = bounded_name(&name[..memchr::memchr(0, name).unwrap_or(name.len())]);
        if name.is_empty() || self.names.contains(&name) {
            return;
        }
        match self.names.len() {
            NAMES_MAX.. => self.has_more_names = true,
            _ => self.names.push(name),
        }
    }

    fn content(&mut self, content: &'d [u8]) {
        match self.contents.len() {
            CONTENTS_MAX.. => self.has_more_contents = true,
            _ => self.contents.push(content),
        }
    }

    fn show(self, walk: &mut Walk<'_>, level: u32) -> Result<(), Exceeded> {
        if self.has_more_names {
            walk.odd(&self.names, Oddity::Inconsistent("an attachment with more than 16 names".into()));
        }
        if self.has_more_contents {
            walk.odd(&self.names, Oddity::Unreadable("an attachment with thousands of contents".into()));
        }
        self.contents.iter().try_for_each(|content| walk.stored(&self.names, content, level))
    }

    /// A list of MAPI properties.
    fn properties(&mut self, list: &'d [u8]) -> Option<()> {
        let (count, mut at) = (u32_at(list, 0)?, 4);
        for _ in 0..count {
            let (kind, id) = (u16_at(list, at)?, u16_at(list, at + 2)?);
            at += 4;
            if id >= 0x8000 {
                at = behind_name(list, at)?;
            }
            let values = if is_variable(kind) || kind & 0x1000 != 0 { u32_at(list, at)? } else { 1 };
            if is_variable(kind) || kind & 0x1000 != 0 {
                at += 4;
            }
            // Values without octets may be any number of them, and say nothing.
            let values = if fixed(kind) == Some(0) { 0 } else { values };
            for _ in 0..values {
                let length = if is_variable(kind) { u32_at(list, at)? as usize } else { fixed(kind)? };
                at += if is_variable(kind) { 4 } else { 0 };
                let value = list.get(at..at.checked_add(length)?)?;
                self.property(kind, id, value);
                at += length.next_multiple_of(4);
            }
        }
        Some(())
    }

    fn property(&mut self, kind: u16, id: u16, value: &'d [u8]) {
        match (id, kind & 0xfff) {
            // An object begins with the sixteen octets of its interface.
            (OBJECT, 0x0d) => self.content(value.get(16..).unwrap_or_default()),
            (OBJECT, 0x102) => self.content(value),
            (id, 0x1e) if NAMES.contains(&id) => self.named(value),
            (id, 0x1f) if NAMES.contains(&id) => {
                let units: Vec<u16> =
                    value.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
                self.named(String::from_utf16_lossy(&units).trim_end_matches('\0').as_bytes());
            }
            _ => {}
        }
    }
}

fn is_variable(kind: u16) -> bool {
    matches!(kind & 0xfff, 0x1e | 0x1f | 0x102 | 0x0d)
}

/// How many octets a value of a fixed kind takes.
fn fixed(kind: u16) -> Option<usize> {
    Some(match kind & 0xfff {
        0x00 | 0x01 => 0,
        0x02 | 0x03 | 0x04 | 0x0a | 0x0b => 4,
        0x05 | 0x06 | 0x07 | 0x14 | 0x40 => 8,
        0x48 => 16,
        _ => return None,
    })
}

/// Some properties have a name: a number or a text behind sixteen octets.
fn behind_name(list: &[u8], at: usize) -> Option<usize> {
    let kind = u32_at(list, at + 16)?;
    match kind {
        0 => Some(at + 24),
        _ => (at + 24).checked_add((u32_at(list, at + 20)? as usize).next_multiple_of(4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use crate::walk::seen::Seen;

    /// How many files an attachment with one property is opened to, and what is odd.
    fn opened(kind: u16, values: u32, octets: &[u8]) -> (usize, Vec<Oddity>) {
        let head = [&1u32.to_le_bytes()[..], &kind.to_le_bytes(), &OBJECT.to_le_bytes(), &values.to_le_bytes()];
        let list = [&head.concat()[..], octets].concat();
        let attribute = [&[2][..], &PROPERTIES.to_le_bytes(), &(list.len() as u32).to_le_bytes(), &list, &[0; 2]];
        let (mut seen, data) = (Seen::default(), [&[0; 6][..], &attribute.concat()].concat());
        open(&mut Walk::new(&mut Budget::new(&Limits::default()), &mut seen), &data, 0).unwrap();
        (seen.files.len(), seen.odd)
    }

    #[test]
    fn values_without_octets_take_no_time() {
        for kind in [0x1000, 0x1001] {
            assert_eq!(opened(kind, u32::MAX, b""), (0, vec![]), "{kind:x}");
        }
    }

    #[test]
    fn the_contents_of_an_attachment_have_a_bound() {
        assert_eq!(opened(0x102, CONTENTS_MAX as u32, &[0; 4 * CONTENTS_MAX]), (CONTENTS_MAX, vec![]));
        let (files, odd) = opened(0x1102, CONTENTS_MAX as u32 + 1, &[0; 4 * (CONTENTS_MAX + 1)]);
        assert_eq!(files, CONTENTS_MAX);
        assert!(matches!(odd[..], [Oddity::Unreadable(_)]), "{odd:?}");
    }
}
