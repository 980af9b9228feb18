//! Walks through the parts of a message as it streams by.
//!
//! It follows the message's own structure only as far as conversion needs it: where a part's header ends, whether the part holds
//! others, and where the next boundary is. Text of a line that is longer than [`LINE_KEPT`] is handed on before its end is known; a
//! boundary is never so long.

use super::Obstacle;
use super::part_header::{PartHeader, PartKind};

/// What is kept of a line that has not ended.
const LINE_KEPT: usize = 4_096;
/// The longest header of a part.
const HEADER_MAX: usize = 512 << 10;
/// Levels of parts in parts.
const DEPTH_MAX: usize = 64;
/// Headers in a message.
const PARTS_MAX: usize = 10_000;

/// Something that is told what the walk meets.
pub(super) trait Visitor {
    /// The header of the message, of a part, or of a message inside, with its empty line if it has one.
    fn header(&mut self, header: &PartHeader, block: &[u8]);
    /// Text of a part that holds no others, without line ends. `continues`: its line has begun before.
    fn text(&mut self, text: &[u8], continues: bool);
    /// The end of a line of that text.
    fn line_end(&mut self);
    /// The part is over. Where a boundary follows, the last line end belongs to that.
    fn part_end(&mut self, boundary_follows: bool);
    /// A line that is no part's: a boundary, or what stands before the first and behind the last.
    fn between(&mut self, line: &[u8]);
}

/// The walk through one message.
#[derive(Debug, Default)]
pub(super) struct Walker {
    line: Vec<u8>,
    /// The beginning of the line has been handed on.
    continues: bool,
    place: Position,
    around: Vec<Multipart>,
    parts: usize,
}

#[derive(Debug)]
enum Position {
    /// In a header, of which this much has come; `digest` if its part is a message where it does not say what it is.
    Header {
        block: Vec<u8>,
        digest: bool,
        top: bool,
    },
    Leaf,
    Between,
}

impl Default for Position {
    fn default() -> Position {
        Position::Header { block: Vec::new(), digest: false, top: true }
    }
}

#[derive(Debug)]
struct Multipart {
    boundary: Vec<u8>,
    digest: bool,
    signed: bool,
}

impl Walker {
    /// Goes on with the next piece of the message.
    pub(super) fn walk(&mut self, mut text: &[u8], visitor: &mut impl Visitor) -> Result<(), Obstacle> {
        while !text.is_empty() {
            let end = memchr::memchr(b'\n', text).map(|at| at + 1);
            let room = LINE_KEPT - self.line.len();
            let (some, rest) = text.split_at(end.unwrap_or(text.len()).min(room));
            self.line.extend_from_slice(some);
            text = rest;
            if self.line.ends_with(b"\n") {
                self.line_done(visitor)?;
            } else if self.line.len() == LINE_KEPT {
                self.long_line(visitor)?;
            }
        }
        Ok(())
    }

    /// The message is over.
    pub(super) fn finish(&mut self, visitor: &mut impl Visitor) -> Result<(), Obstacle> {
        if !self.line.is_empty() || self.continues {
            self.line_done(visitor)?;
        }
        match std::mem::replace(&mut self.place, Position::Between) {
            Position::Header { block, digest, top } => self.header_done(&block, digest, top, visitor)?,
            place => self.place = place,
        }
        self.leave_part(false, visitor);
        Ok(())
    }

    fn line_done(&mut self, visitor: &mut impl Visitor) -> Result<(), Obstacle> {
        let line = std::mem::take(&mut self.line);
        let continues = std::mem::take(&mut self.continues);
        let done = match self.boundary_in(&line).filter(|_| !continues) {
            Some((level, last)) => self.at_boundary(&line, level, last, visitor),
            None => self.plain_line(&line, continues, visitor),
        };
        self.line = line;
        self.line.clear();
        done
    }

    fn plain_line(&mut self, line: &[u8], continues: bool, visitor: &mut impl Visitor) -> Result<(), Obstacle> {
        match &mut self.place {
            Position::Header { block, digest, top } => {
                block.extend_from_slice(line);
                if block.len() > HEADER_MAX {
                    return Err(Obstacle::TooComplex);
                }
                if !continues && matches!(line, b"\r\n" | b"\n") {
                    let (block, digest, top) = (std::mem::take(block), *digest, *top);
                    return self.header_done(&block, digest, top, visitor);
                }
            }
            Position::Leaf => {
                visitor.text(without_end(line), continues);
                if line.ends_with(b"\n") {
                    visitor.line_end();
                }
            }
            Position::Between => visitor.between(line),
        }
        Ok(())
    }

    /// The beginning of a line that is too long to be kept, but for a CR that may belong to its end.
    fn long_line(&mut self, visitor: &mut impl Visitor) -> Result<(), Obstacle> {
        let kept = usize::from(self.line.ends_with(b"\r"));
        let begun = self.line.len() - kept;
        let line = std::mem::take(&mut self.line);
        let some = line.get(..begun).unwrap_or_default();
        let continues = std::mem::replace(&mut self.continues, true);
        match &mut self.place {
            Position::Leaf => visitor.text(some, continues),
            Position::Between => visitor.between(some),
            Position::Header { block, .. } => {
                block.extend_from_slice(some);
                if block.len() > HEADER_MAX {
                    return Err(Obstacle::TooComplex);
                }
            }
        }
        self.line.extend_from_slice(line.get(begun..).unwrap_or_default());
        Ok(())
    }

    /// Which multipart's boundary a line is, from the outermost, and whether it is the last.
    fn boundary_in(&self, line: &[u8]) -> Option<(usize, bool)> {
        let text = line.strip_prefix(b"--").filter(|_| !self.around.is_empty())?;
        let behind = |level: &Multipart| text.strip_prefix(level.boundary.as_slice()).map(<[u8]>::trim_ascii_end);
        self.around.iter().enumerate().rev().find_map(|(level, multipart)| match behind(multipart)? {
            b"" => Some((level, false)),
            b"--" => Some((level, true)),
            _ => None,
        })
    }

    fn at_boundary(
        &mut self,
        line: &[u8],
        level: usize,
        last: bool,
        visitor: &mut impl Visitor,
    ) -> Result<(), Obstacle> {
        match std::mem::replace(&mut self.place, Position::Between) {
            // A part that ends in its header.
            Position::Header { block, digest, top } => self.header_done(&block, digest, top, visitor)?,
            place => self.place = place,
        }
        self.leave_part(true, visitor);
        visitor.between(line);
        self.around.truncate(level + usize::from(!last));
        let digest = self.around.last().is_some_and(|multipart| multipart.digest);
        self.place = if last { Position::Between } else { Position::Header { block: Vec::new(), digest, top: false } };
        Ok(())
    }

    fn leave_part(&mut self, boundary_follows: bool, visitor: &mut impl Visitor) {
        if matches!(std::mem::replace(&mut self.place, Position::Between), Position::Leaf) {
            visitor.part_end(boundary_follows);
        }
    }

    fn header_done(
        &mut self,
        block: &[u8],
        digest: bool,
        top: bool,
        visitor: &mut impl Visitor,
    ) -> Result<(), Obstacle> {
        self.parts += 1;
        if self.parts > PARTS_MAX || self.around.len() > DEPTH_MAX {
            return Err(Obstacle::TooComplex);
        }
        let signed = self.around.iter().any(|multipart| multipart.signed);
        let header = PartHeader::read(block, digest, top, signed);
        visitor.header(&header, block);
        self.place = match header.kind {
            PartKind::Multipart { boundary, digest, signed } => {
                self.around.push(Multipart { boundary, digest, signed });
                Position::Between
            }
            PartKind::Message => Position::Header { block: Vec::new(), digest: false, top: false },
            PartKind::Leaf { .. } => Position::Leaf,
        };
        Ok(())
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
