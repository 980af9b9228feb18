//! Every place at which some reader could begin a part.
//!
//! Readers differ about where a header ends and which lines are boundaries. Once a message is ambiguous ([`super::structure`] has a doubt
//! about it), we do not guess which reader is right: a part can begin at the start of the message and behind every boundary that any of its
//! headers names, wherever in a line it stands; its header can end at each place at which some reader ends one. All of these are followed,
//! up to a bound. Cost: one search through the message for each boundary, and one look at each header for each way to end it.

use super::dialect::{Dialect, is_header_line};
use super::header::PartHeader;
use crate::budget::{Budget, Exceeded};
use std::collections::BTreeSet;

/// More boundaries than any message names that one program wrote.
const BOUNDARIES_MAX: usize = 64;
/// Places that are followed.
const PLACES_MAX: usize = 1024;

/// A part that some reader may see.
pub(super) struct Candidate {
    pub(super) header: PartHeader,
    /// Where its body begins.
    pub(super) body: usize,
    /// Its body is a message, which is among the candidates.
    pub(super) opened: bool,
}

/// All candidates, where they begin, and whether none was left out.
pub(super) struct Candidates {
    pub(super) found: Vec<Candidate>,
    pub(super) begins: BTreeSet<usize>,
    pub(super) whole: bool,
}

/// Follows every place of a message of which these headers were read.
pub(super) fn candidates<'h>(
    message: &[u8],
    headers: impl Iterator<Item = &'h PartHeader>,
    budget: &mut Budget,
) -> Result<Candidates, Exceeded> {
    let all = Candidates { found: Vec::new(), begins: BTreeSet::new(), whole: true };
    let mut search = Search { message, boundaries: Vec::new(), todo: Vec::new(), digest: false, all };
    search.begin(0);
    for header in headers {
        search.boundaries_of(header);
    }
    while let Some(from) = search.todo.pop() {
        budget.time()?;
        for (header, body, returns) in header_ends(message, from, budget.limits().header_bytes as usize) {
            let header = PartHeader::read_with(&message[from..header], returns);
            search.candidate(header, body, budget)?;
        }
    }
    Ok(search.all)
}

struct Search<'m> {
    message: &'m [u8],
    boundaries: Vec<Vec<u8>>,
    todo: Vec<usize>,
    /// Whether parts that do not say what they are may be messages.
    digest: bool,
    all: Candidates,
}

impl Search<'_> {
    /// A part may begin here.
    fn begin(&mut self, at: usize) {
        if at >= self.message.len() || self.all.begins.contains(&at) {
            return;
        }
        if self.all.begins.len() >= PLACES_MAX {
            self.all.whole = false;
            return;
        }
        self.all.begins.insert(at);
        self.todo.push(at);
    }

    fn boundaries_of(&mut self, header: &PartHeader) {
        self.digest |= header.is_digest();
        header.boundaries.iter().chain(&header.short_boundaries).for_each(|boundary| self.boundary(boundary));
    }

    /// Parts may begin behind this boundary: in the next line, or in the same one.
    fn boundary(&mut self, boundary: &[u8]) {
        if boundary.is_empty() || self.boundaries.iter().any(|known| known == boundary) {
            return;
        }
        if self.boundaries.len() >= BOUNDARIES_MAX {
            self.all.whole = false;
            return;
        }
        self.boundaries.push(boundary.to_vec());
        let message = self.message;
        let line = [b"--", boundary].concat();
        for at in memchr::memmem::find_iter(message, &line) {
            let behind = at + line.len();
            let last = behind + if message[behind..].starts_with(b"--") { 2 } else { 0 };
            for place in [behind, last] {
                self.begin(behind_blanks(message, place));
            }
            for returns in [false, true] {
                let dialect = Dialect { returns, ..Dialect::default() };
                self.begin(behind + dialect.line_length(&message[behind..]));
            }
        }
    }

    fn candidate(&mut self, mut header: PartHeader, body: usize, budget: &mut Budget) -> Result<(), Exceeded> {
        self.boundaries_of(&header);
        // Not every reader finds the field with the type.
        if self.digest {
            let mut in_digest = header.clone();
            in_digest.is_in_digest();
            self.add(in_digest, body, budget)?;
        }
        // Who does not find the end of a body does not decode it either.
        header.also_plain();
        self.add(header, body, budget)
    }

    fn add(&mut self, header: PartHeader, body: usize, budget: &mut Budget) -> Result<(), Exceeded> {
        let opened = header.is_message();
        if opened {
            self.begin(body);
        }
        budget.part()?;
        budget.hold(header.weight())?;
        self.all.found.push(Candidate { header, body, opened });
        Ok(())
    }
}

/// Behind the blanks at this place, and one end of a line.
fn behind_blanks(message: &[u8], at: usize) -> usize {
    let rest = &message[at..];
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    at + blank + usize::from(rest.get(blank) == Some(&b'\n'))
}

/// Where a header that begins here ends, where its body begins then, and whether returns end lines in it: for each reader.
fn header_ends(message: &[u8], from: usize, longest: usize) -> Vec<(usize, usize, bool)> {
    let mut ends = Vec::new();
    for returns in [false, true] {
        let dialect = Dialect { returns, ..Dialect::default() };
        let (mut at, mut odd, mut blank) = (from, false, false);
        while at < message.len() && at - from <= longest {
            let line = &message[at..at + dialect.line_length(&message[at..])];
            if dialect.is_empty(line) {
                ends.push((at, at + line.len(), returns));
                break;
            }
            if !blank && line.trim_ascii().is_empty() {
                // A line with nothing but blanks is empty to some.
                blank = true;
                ends.push((at, at + line.len(), returns));
            }
            if !odd && !is_header_line(line) {
                odd = true;
                ends.push((at, at, returns));
            }
            at += line.len();
        }
    }
    let bare_return = |(end, _, _): &(usize, usize, bool)| message[from..*end].contains(&b'\r');
    // Without a return the second reading is the first.
    ends.dedup_by(|later, first| (later.0, later.1) == (first.0, first.1) && !bare_return(first));
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;

    fn bodies(message: &str) -> Vec<&str> {
        let mut budget = Budget::new(&Limits::default());
        let all = candidates(message.as_bytes(), [].into_iter(), &mut budget).unwrap();
        all.found.iter().map(|candidate| &message[candidate.body..]).collect()
    }

    #[test]
    fn a_part_begins_behind_every_boundary_wherever_it_stands() {
        let message = "Content-Type: multipart/x; boundary=b\n\nhi --b X: y\n\none\n--b--\n--bb\n\ntwo";
        let bodies = bodies(message);
        for body in ["one\n--b--\n--bb\n\ntwo", "two", "--bb\n\ntwo"] {
            assert!(bodies.contains(&body), "{body:?} in {bodies:?}");
        }
    }

    #[test]
    fn a_header_ends_where_any_reader_ends_it() {
        let all = bodies("X: y\rno field\r\nZ: z\n  \nW: w\n\nbody");
        for body in ["body", "W: w\n\nbody", "no field\r\nZ: z\n  \nW: w\n\nbody"] {
            assert!(all.contains(&body), "{body:?} in {all:?}");
        }
    }

    #[test]
    fn messages_in_messages_are_followed() {
        let all = bodies("Content-Type: message/rfc822\n\nContent-Type: message/x\n\nX: y\n\nbody");
        assert!(all.contains(&"body"), "{all:?}");
    }

    #[test]
    fn places_are_bounded() {
        let message = format!("Content-Type: multipart/x; boundary=b\n\n{}", "--b\nX: y\n\n".repeat(20_000));
        let mut budget = Budget::new(&Limits::default());
        let all = candidates(message.as_bytes(), [].into_iter(), &mut budget).unwrap();
        assert!(!all.whole && all.begins.len() == PLACES_MAX);
    }
}
