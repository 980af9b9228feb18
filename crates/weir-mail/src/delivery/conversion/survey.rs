//! Finds out which parts of a message must be converted.

use super::part_header::{Becoming, Coding, PartHeader, PartKind};
use super::walker::Visitor;
use super::{Needs, Obstacle};

/// RFC 5321 section 4.5.3.1.6, without the line end.
pub(super) const LINE_MAX: usize = 998;

/// What was found, by the headers of a message in their order.
#[derive(Debug)]
pub(in crate::delivery) struct Survey {
    pub(super) needs: Needs,
    parts: Vec<Becoming>,
    /// The part that is being read, as far as it matters.
    now: Option<LeafTraits>,
    column: usize,
    header_eight_bit: bool,
    long_header: bool,
    obstacle: Option<Obstacle>,
}

#[derive(Debug, Clone, Copy)]
struct LeafTraits {
    text: bool,
    signed: bool,
    recodable: bool,
    eight_bit: bool,
    utf8: bool,
    long: bool,
}

impl Survey {
    pub(super) fn new(needs: Needs) -> Survey {
        Survey {
            needs,
            parts: Vec::new(),
            now: None,
            column: 0,
            header_eight_bit: false,
            long_header: false,
            obstacle: None,
        }
    }

    /// What becomes of the part with this header; the first is 0.
    pub(super) fn becoming(&self, part: usize) -> Becoming {
        self.parts.get(part).copied().unwrap_or(Becoming::Same)
    }

    /// The survey is over. Nothing if the message fits as it is.
    pub(super) fn concluded(self) -> Result<Option<Survey>, Obstacle> {
        if let Some(obstacle) = self.obstacle {
            return Err(obstacle);
        }
        let leaves = self.parts.iter().any(|part| !matches!(part, Becoming::Same | Becoming::SevenBit));
        let header = (self.needs.seven_bit && self.header_eight_bit) || (self.needs.short_lines && self.long_header);
        Ok((leaves || header).then_some(self))
    }

    fn becomes(&self, leaf: LeafTraits) -> Result<Becoming, Obstacle> {
        let eight_bit = leaf.eight_bit && self.needs.seven_bit;
        let long = leaf.long && self.needs.short_lines;
        match leaf {
            _ if !eight_bit && !long => Ok(Becoming::Same),
            LeafTraits { signed: true, .. } if eight_bit => Err(Obstacle::Signed),
            LeafTraits { signed: true, .. } | LeafTraits { recodable: false, .. } => Ok(Becoming::Same),
            LeafTraits { text: false, .. } => Ok(Becoming::Base64),
            LeafTraits { eight_bit: false, .. } => Ok(Becoming::QuotedPrintable { charset: "us-ascii" }),
            LeafTraits { utf8: true, .. } => Ok(Becoming::QuotedPrintable { charset: "utf-8" }),
            LeafTraits { .. } => Ok(Becoming::QuotedPrintable { charset: "unknown-8bit" }),
        }
    }

    fn lengthen(&mut self, by: usize) {
        self.column += by;
        if let Some(leaf) = self.now.as_mut().filter(|_| self.column > LINE_MAX) {
            leaf.long = true;
        }
    }
}

impl Visitor for Survey {
    fn header(&mut self, header: &PartHeader, block: &[u8]) {
        if header.signed && self.needs.seven_bit && !block.is_ascii() {
            self.obstacle = Some(Obstacle::Signed);
        }
        self.header_eight_bit |= !block.is_ascii();
        self.long_header |= block.split(|byte| *byte == b'\n').any(|line| line.len() > LINE_MAX + 1);
        self.parts.push(match header.kind {
            PartKind::Multipart { .. } | PartKind::Message if self.needs.seven_bit && !header.signed => {
                Becoming::SevenBit
            }
            _ => Becoming::Same,
        });
        self.column = 0;
        self.now = match header.kind {
            PartKind::Leaf { text, coding } => Some(LeafTraits {
                text,
                signed: header.signed,
                recodable: coding == Coding::Identity,
                eight_bit: false,
                utf8: true,
                long: false,
            }),
            _ => None,
        };
    }

    fn text(&mut self, text: &[u8], continues: bool) {
        self.lengthen(text.len());
        if let Some(leaf) = self.now.as_mut().filter(|_| !text.is_ascii()) {
            leaf.eight_bit = true;
            leaf.utf8 &= is_utf8(text, continues);
        }
    }

    fn line_end(&mut self) {
        self.column = 0;
    }

    fn part_end(&mut self, _: bool) {
        let Some(leaf) = self.now.take() else { return };
        match (self.becomes(leaf), self.parts.last_mut()) {
            (Ok(becoming), Some(part)) => *part = becoming,
            (Err(obstacle), _) => self.obstacle = Some(obstacle),
            (Ok(_), None) => {}
        }
    }

    fn between(&mut self, _: &[u8]) {}
}

/// Whether it is UTF-8, apart from a character that is cut at either end of a piece of a line.
fn is_utf8(text: &[u8], continues: bool) -> bool {
    let cut = text.iter().take(3).take_while(|byte| continues && (0x80..0xc0).contains(*byte)).count();
    match std::str::from_utf8(text.get(cut..).unwrap_or_default()) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
