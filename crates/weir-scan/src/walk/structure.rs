//! Where the parts of a message are: one pass over its lines, without recursion, and a further one for each way in which some
//! reader would find others (`dialect`).
//!
//! The pass keeps a stack of the multiparts and messages that are open, at most `levels`, and a list of the parts that
//! it met, at most `parts` in all. Nothing is decoded before the whole message has been counted. Cost: one look at each line, and one
//! comparison a level for lines that begin with two dashes.

use super::dialect::{Dialect, Noticed, is_header_line};
use super::every_place::candidates;
use super::header::PartHeader;
use super::part::{Part, is_bare_report, is_file};
use crate::budget::{Budget, Exceeded};
use std::collections::HashMap;
use std::ops::Range;

/// Finds the parts of a message that begins at level `outside`: those that any reader would show. The budget holds the weight of their headers.
pub fn parts(message: &[u8], outside: u32, budget: &mut Budget) -> Result<Vec<Part>, Exceeded> {
    let (mut found, noticed) = Pass::new(message, outside, Dialect::default(), budget).run()?;
    for dialect in noticed.dialects() {
        let (more, _) = Pass::new(message, outside, dialect, budget).run()?;
        add(message, &mut found, more, budget);
    }
    if found.iter().any(|part| part.header.ambiguous.is_some()) {
        add_every_place(message, outside, &mut found, budget)?;
    }
    Ok(found)
}

/// Bodies that overlap are looked at up to the end of the message as long as they are not longer together.
const OVERLAP_MAX: usize = 16 << 20;

/// Adds every part that some reader could see in a message about which there is a doubt anyway.
fn add_every_place(message: &[u8], outside: u32, found: &mut Vec<Part>, budget: &mut Budget) -> Result<(), Exceeded> {
    let all = candidates(message, found.iter().map(|part| &part.header), budget)?;
    let overlap: usize = all.found.iter().map(|candidate| message.len() - candidate.body).sum();
    let cut = overlap > OVERLAP_MAX;
    if (cut || !all.whole)
        && let Some(first) = found.first_mut()
    {
        first.header.doubt("more ways to read it than are followed");
    }
    let end = |body: usize| match all.begins.range(body + 1..).next() {
        Some(next) if cut => *next,
        _ => message.len(),
    };
    let parts = all.found.into_iter().map(|candidate| {
        let body = candidate.body..end(candidate.body);
        Part { header: candidate.header, body, level: outside + 1, opened: candidate.opened, is_cut: false }
    });
    add(message, found, parts.collect(), budget);
    Ok(())
}

/// Adds what another reading shows besides.
fn add(message: &[u8], found: &mut Vec<Part>, more: Vec<Part>, budget: &mut Budget) {
    let mut known: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    let mut starts: HashMap<usize, usize> = HashMap::new();
    for (at, part) in found.iter().enumerate() {
        starts.entry(part.body.start).or_insert(at);
        known.entry((part.body.start, part.body.end)).or_default().push(at);
    }
    for mut part in more {
        let same = known.get(&(part.body.start, part.body.end));
        if same.is_some_and(|places| places.iter().any(|at| found[*at].is_same(&part))) {
            budget.release(part.header.weight());
            continue;
        }
        let more_of_same = starts.get(&part.body.start).is_some_and(|at| part.only_ends_later(&found[*at], message));
        part.is_cut = more_of_same;
        if let Some(at) = starts.get(&part.body.start).filter(|_| more_of_same) {
            found[*at].is_cut = true;
        }
        if part.matters() && !more_of_same {
            part.header.doubt("a body that not all programs see");
        }
        found.push(part);
    }
}

/// What is open around the line that is being read.
struct Frame {
    /// Of a multipart; none for a message, which ends with what is around it.
    boundaries: Vec<Vec<u8>>,
    /// What some take for its boundary.
    short_boundaries: Vec<Vec<u8>>,
    /// What parts are that do not say it: messages.
    digest: bool,
    /// Its own place among the parts that were found.
    part: usize,
    /// Whether its boundary has come.
    begun: bool,
    /// Whether the last one has. It stays open to who goes on all the same, until something around it goes on.
    ended: bool,
    /// Whether its body is also looked at as a file.
    leaf: bool,
}

/// A boundary of one of the frames that are open, and where in the line it stands.
#[derive(Clone, Copy)]
struct Boundary {
    frame: usize,
    last: bool,
    from: usize,
    to: usize,
}

/// Header (from here) → Body (of this part, from here) or Between (before the first boundary, or after the last).
enum State {
    Header(usize),
    Body(PartHeader, usize),
    Between,
}

/// How often a boundary may be searched for in the whole rest of a message.
const SEARCHES_MAX: u32 = 64;

struct Pass<'m, 'b> {
    message: &'m [u8],
    outside: u32,
    dialect: Dialect,
    noticed: Noticed,
    searches: u32,
    budget: &'b mut Budget,
    open: Vec<Frame>,
    found: Vec<Part>,
}

impl<'m, 'b> Pass<'m, 'b> {
    fn new(message: &'m [u8], outside: u32, dialect: Dialect, budget: &'b mut Budget) -> Pass<'m, 'b> {
        let (open, found) = (Vec::new(), Vec::new());
        Pass { message, outside, dialect, noticed: Noticed::default(), searches: 0, budget, open, found }
    }
}

impl Pass<'_, '_> {
    fn run(mut self) -> Result<(Vec<Part>, Noticed), Exceeded> {
        let (mut state, mut at) = (State::Header(0), 0);
        self.budget.part()?;
        while at < self.message.len() {
            let mut end = at + self.dialect.line_length(&self.message[at..]);
            let line = &self.message[at..end];
            self.notice(line);
            // To this reader a header goes on until an empty line comes.
            let in_header = self.dialect.innermost && matches!(state, State::Header(_));
            let boundary = if in_header { None } else { self.boundary(line) };
            state = match (boundary, state) {
                (Some(boundary), state) => {
                    self.begins(&boundary, at + boundary.from);
                    self.close(state, at + boundary.from)?;
                    end = at + boundary.to;
                    self.pass(boundary, at + boundary.from, end)?
                }
                (None, State::Header(from)) if self.dialect.is_empty(line) => self.body(from..at, end)?,
                (None, State::Header(from)) if !is_header_line(line) => {
                    self.noticed.odd_header_line = true;
                    if self.dialect.short_headers {
                        // The line is read once more, as what follows the header: it may be a boundary.
                        end = at;
                        self.body(from..at, at)?
                    } else {
                        self.longer(from, end)?
                    }
                }
                (None, State::Header(from)) => self.longer(from, end)?,
                (None, state) => state,
            };
            at = end;
        }
        if let State::Body(header, _) = &mut state
            && self.open.iter().any(|open| !open.boundaries.is_empty() && !open.ended)
        {
            // Its boundary never comes: some readers then show the body as it stands.
            header.also_plain();
        }
        self.close(state, self.message.len())?;
        self.close_frames(0, self.message.len());
        Ok((self.found, self.noticed))
    }

    /// A header goes on, up to a bound.
    fn longer(&self, from: usize, end: usize) -> Result<State, Exceeded> {
        let most = self.budget.limits().header_bytes;
        if (end - from) as u64 > most { Err(Exceeded::Header(most)) } else { Ok(State::Header(from)) }
    }

    /// What would be another line, or another boundary, to some reader.
    fn notice(&mut self, line: &[u8]) {
        if self.dialect != Dialect::default() {
            return;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        self.noticed.bare_return |= memchr::memchr(b'\r', text).is_some();
        if !self.open.is_empty() && !self.noticed.unusual_end {
            let inside = |at: usize| at > 0 && self.open.iter().any(|frame| frame.begins(&text[at + 2..]).is_some());
            self.noticed.unusual_end = dashes(text).any(inside);
        }
    }

    fn boundary(&mut self, line: &[u8]) -> Option<Boundary> {
        if self.dialect.innermost { self.innermost_boundary(line) } else { self.boundary_of_line(line) }
    }

    /// Whether this line is a boundary of something open. One that only begins like a boundary is none here, but is one to
    /// programs that compare no further: unless it is that of something further out, there is a doubt. So there is about a part
    /// behind the last boundary, which is a part only to some.
    fn boundary_of_line(&mut self, line: &[u8]) -> Option<Boundary> {
        let rest = line.strip_prefix(b"--")?;
        let (mut nearly, mut again) = (None, None);
        for (frame, open) in self.open.iter().enumerate().rev() {
            let Some(behind) = open.begins(rest) else {
                if let Some(behind) = open.begins_short(rest)
                    && !open.ended
                {
                    let found = Boundary { frame, last: behind.starts_with(b"--"), from: 0, to: line.len() };
                    nearly.get_or_insert((open.part, found));
                }
                continue;
            };
            let last = behind.strip_prefix(b"--");
            let found = Boundary { frame, last: last.is_some(), from: 0, to: line.len() };
            match last.unwrap_or(behind).trim_ascii().is_empty() {
                true if open.ended => _ = again.get_or_insert((open.part, found)),
                true => return Some(found),
                false if open.ended => {}
                false => _ = nearly.get_or_insert((open.part, found)),
            }
        }
        if nearly.is_some() {
            self.noticed.nearly = true;
        }
        if self.dialect.prefixes && again.is_none() {
            return nearly.map(|(_, boundary)| boundary);
        }
        let (part, what) = match (again, nearly) {
            (Some((part, boundary)), _) if !boundary.last => (part, "a part behind its last boundary"),
            (Some((_, boundary)), _) => return Some(boundary),
            (None, nearly) => (nearly?.0, "a line that begins like its boundary"),
        };
        self.found.get_mut(part)?.header.doubt(what);
        again.map(|(_, boundary)| boundary)
    }

    /// The boundary of the innermost multipart, wherever it stands in the line.
    fn innermost_boundary(&self, line: &[u8]) -> Option<Boundary> {
        let (frame, open) = self.open.iter().enumerate().rev().find(|(_, open)| !open.boundaries.is_empty())?;
        let (from, behind) = dashes(line).find_map(|at| Some((at, open.begins(&line[at + 2..])?)))?;
        // This reader does not ask whether the first boundary is the last one.
        let last = behind.strip_prefix(b"--").filter(|_| open.begun);
        let rest = last.unwrap_or(behind);
        let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        let blank = if rest.get(blank) == Some(&b'\n') { blank + 1 } else { blank };
        let to = line.len() - rest.len() + if last.is_some() { 0 } else { blank };
        Some(Boundary { frame, last: last.is_some(), from, to })
    }

    /// The multipart of this boundary has one: what stands before it is its preamble. Where something around it has the same boundary,
    /// that is all that some see of it.
    fn begins(&mut self, boundary: &Boundary, at: usize) {
        // A last boundary that is the first, and one that comes behind the last.
        let odd = self.open.get(boundary.frame).is_some_and(|frame| frame.ended || (boundary.last && !frame.begun));
        self.noticed.unusual_end |= odd;
        let Some((Frame { boundaries, part, begun: false, .. }, outer)) =
            self.open.get(..=boundary.frame).and_then(<[Frame]>::split_last)
        else {
            if let Some(frame) = self.open.get_mut(boundary.frame) {
                frame.ended = boundary.last;
            }
            return;
        };
        let shared = outer.iter().any(|frame| frame.boundaries.iter().any(|known| boundaries.contains(known)));
        // Python shows what stands before a last boundary that is the first.
        if (shared || boundary.last)
            && let Some(part) = self.found.get_mut(*part)
        {
            part.body.end = at.max(part.body.start);
        }
        if let Some(frame) = self.open.get_mut(boundary.frame) {
            (frame.begun, frame.ended) = (true, boundary.last);
        }
    }

    /// Behind a boundary: what was opened inside is closed.
    fn pass(&mut self, boundary: Boundary, from: usize, at: usize) -> Result<State, Exceeded> {
        let Boundary { frame, last, .. } = boundary;
        let inner = self.open.get(frame + 1..).unwrap_or_default();
        self.noticed.unusual_end |= inner.iter().any(|open| !open.boundaries.is_empty() && !open.ended);
        self.close_frames(if last && self.dialect.innermost { frame } else { frame + 1 }, from);
        if last {
            return Ok(State::Between);
        }
        self.budget.part()?;
        Ok(State::Header(at))
    }

    /// Closes all frames from this one on. What some reader takes for one body ends here.
    fn close_frames(&mut self, from: usize, at: usize) {
        let found = self.found.len();
        for frame in self.open.drain(from.min(self.open.len())..) {
            // A message in which nothing was found is shown as it stands.
            let empty = frame.boundaries.is_empty() && found == frame.part + 1;
            if let Some(part) = self.found.get_mut(frame.part).filter(|_| frame.leaf || empty) {
                part.body.end = at.max(part.body.start);
            }
        }
    }

    /// A header is complete: what follows it?
    fn body(&mut self, header: Range<usize>, at: usize) -> Result<State, Exceeded> {
        let mut header = self.header(header)?;
        let in_digest = header.media_type.is_empty() && self.open.last().is_some_and(|frame| frame.digest);
        if in_digest {
            header.is_in_digest();
        }
        // Not every program knows what parts of a digest are.
        let (part, leaf, is_message) = (self.found.len(), in_digest || header.is_also_file(), header.is_message());
        let digest = header.is_digest();
        let frame = if header.is_multipart() && self.comes(&header, at) {
            let (boundaries, short_boundaries) = (header.boundaries.clone(), header.short_boundaries.clone());
            Frame { boundaries, short_boundaries, digest, part, begun: false, ended: false, leaf }
        } else if is_message && !is_file(&header, &self.message[at..]) && !is_bare_report(&header, &self.message[at..])
        {
            let (boundaries, short_boundaries) = (Vec::new(), Vec::new());
            Frame { boundaries, short_boundaries, digest: false, part, begun: true, ended: false, leaf }
        } else {
            return Ok(State::Body(header, at));
        };
        // An empty body, so that what its header says is seen.
        let opened = frame.boundaries.is_empty();
        self.found.push(Part { header, body: at..at, level: self.level(), opened, is_cut: false });
        let next = if opened { State::Header(at) } else { State::Between };
        self.open.push(frame);
        if self.level() > self.budget.limits().levels {
            return Err(Exceeded::Levels(self.budget.limits().levels));
        }
        if matches!(next, State::Header(_)) {
            self.budget.part()?;
        }
        Ok(next)
    }

    /// Whether a boundary of this multipart comes at all. Most readers find out at the end; one looks ahead, and takes the body for text.
    fn comes(&mut self, header: &PartHeader, at: usize) -> bool {
        if !self.dialect.innermost || self.searches >= SEARCHES_MAX {
            return true;
        }
        self.searches += 1;
        header
            .boundaries
            .iter()
            .any(|boundary| memchr::memmem::find(&self.message[at..], &[b"--", boundary.as_slice()].concat()).is_some())
    }

    fn close(&mut self, state: State, at: usize) -> Result<(), Exceeded> {
        let level = self.level();
        match state {
            State::Between => self.close_unbegun(at),
            State::Header(from) if from >= at => {}
            // A header without a body, or text that never was a header: it is looked at as it stands.
            State::Header(from) => {
                self.noticed.unusual_end = true;
                let header = self.header(from..at)?;
                self.found.push(Part { header, body: from..at, level, opened: false, is_cut: false });
            }
            State::Body(header, from) => {
                self.found.push(Part { header, body: from..at.max(from), level, opened: false, is_cut: false });
            }
        }
        Ok(())
    }

    /// A multipart whose boundary never came: some program may see what we do not, and its body is looked at as it stands.
    fn close_unbegun(&mut self, at: usize) {
        let Some(Frame { part, begun: false, .. }) = self.open.last() else { return };
        let Some(part) = self.found.get_mut(*part) else { return };
        let body = part.body.start..at.max(part.body.start);
        // A report that returns nothing but a header ends here.
        if !self.message[body.clone()].trim_ascii().is_empty() {
            part.body = body;
            part.header.doubt("a boundary that never comes");
        }
    }

    /// Reads a header, which stays in memory until its message has been looked at.
    fn header(&mut self, lines: Range<usize>) -> Result<PartHeader, Exceeded> {
        self.budget.time()?;
        let mut header = PartHeader::read_with(&self.message[lines], self.dialect.returns);
        if self.open.last().is_none_or(|frame| frame.boundaries.is_empty()) {
            header.is_of_message();
        }
        self.budget.hold(header.weight())?;
        Ok(header)
    }

    fn level(&self) -> u32 {
        self.outside + self.open.len() as u32
    }
}

impl Frame {
    /// What follows one of its boundaries at the start of a text.
    fn begins<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        // The longest first: one may be the beginning of another.
        shortest_rest(&self.boundaries, text)
    }

    fn begins_short<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        shortest_rest(&self.short_boundaries, text)
    }
}

fn shortest_rest<'t>(boundaries: &[Vec<u8>], text: &'t [u8]) -> Option<&'t [u8]> {
    boundaries.iter().filter_map(|boundary| text.strip_prefix(boundary.as_slice())).min_by_key(|rest| rest.len())
}

/// Where two dashes stand beside each other.
fn dashes(line: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memchr_iter(b'-', line).filter(|at| line.get(at + 1) == Some(&b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;

    fn bodies(message: &str) -> Vec<(String, u32)> {
        let mut budget = Budget::new(&Limits::default());
        let parts = parts(message.as_bytes(), 0, &mut budget).unwrap();
        parts.into_iter().map(|part| (message[part.body].trim_end().to_owned(), part.level)).collect()
    }

    /// What is shown of a message with this header and body, and a version before them.
    fn texts(message: &str) -> Vec<String> {
        texts_of(&format!("MIME-Version: 1.0\n{message}"))
    }

    fn texts_of(message: &str) -> Vec<String> {
        bodies(message).into_iter().map(|(text, _)| text).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn parts_in_parts_and_messages_in_parts() {
        let message = "Content-Type: multipart/mixed; boundary=a\r\n\r\npreamble\r\n--a\r\n\r\none\r\n--a\r\n\
            Content-Type: multipart/x; boundary=\"a b\"\r\n\r\n--a b\r\n\r\ntwo\r\n--a b--\r\nepilogue\r\n--a\r\n\
            Content-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\nthree\r\n--a\r\nheader: only\r\n--a--\r\n";
        // To one reader the last header goes on behind the boundary.
        assert_eq!(texts(message)[..4], ["one", "two", "three", "header: only"]);
    }

    #[test]
    fn an_outer_boundary_ends_what_is_open_inside() {
        let message = "Content-Type: multipart/x; boundary=out\n\n--out\nContent-Type: multipart/x; boundary=in\n\n--in\n\none\n--out\n\ntwo\n";
        // One reader goes on until the inner boundary comes.
        assert_eq!(texts(message), ["one", "two", "one\n--out\n\ntwo"]);
    }

    /// What is doubted of the first part.
    fn doubt(message: &str) -> Option<&'static str> {
        let mut budget = Budget::new(&Limits::default());
        parts(message.as_bytes(), 0, &mut budget).unwrap()[0].header.ambiguous
    }

    #[test]
    fn a_boundary_without_its_quotes_may_be_shorter() {
        let message = |line: &str| {
            format!(
                "MIME-Version: 1.0\nContent-Type: multipart/x; boundary=a=b\n\n--a=b\n\none\n{line}\n\ntwo\n--a=b--\n"
            )
        };
        for line in ["--a", "--ax", "--a=c"] {
            assert_eq!(doubt(&message(line)), Some("a line that begins like its boundary"), "{line}");
            assert!(texts(&message(line)).iter().any(|text| text.starts_with("two")), "{line}");
        }
        assert_eq!(doubt(&message("--a=b")), None, "most programs that write it so leave the quotes out everywhere");
        let quoted = message("--a").replace("a=b\n\n--", "\"a=b\"\n\n--");
        assert_eq!(doubt(&quoted), None, "{quoted}");
    }

    #[test]
    fn a_message_without_its_version_is_also_read_as_it_stands() {
        let message = "Content-Type: multipart/x; boundary=b\n\n--b\n\none\n--b--\n";
        assert_eq!(texts_of(message), ["--b\n\none\n--b--", "one"]);
        assert_eq!(texts(message), ["one"]);
        assert_eq!(doubt(message), None);
    }

    #[test]
    fn a_line_that_only_begins_like_a_boundary_ends_nothing() {
        let message =
            |line: &str| format!("Content-Type: multipart/x; boundary=b\n\n--b\n\none\n{line}\n--b\n\ntwo\n--b--\n");
        for line in ["--b--x", "--bx", "--b x", "--b-", "--b--x--"] {
            let texts = texts(&message(line));
            assert_eq!(texts[..2], [format!("one\n{line}"), "two".into()]);
            assert!(texts.contains(&"one".to_owned()), "to some it ends there: {texts:?}");
            assert_eq!(doubt(&message(line)), Some("a line that begins like its boundary"), "{line}");
        }
        for line in ["--c", "-b", "b--", " --b"] {
            assert_eq!(doubt(&message(line)), None, "{line}");
        }
        // Blanks behind a boundary are nothing.
        assert_eq!(texts(&message("--b \t")), ["one", "two"]);
        assert_eq!(texts(&message("--b-- "))[..2], ["one", "two"]);
    }

    #[test]
    fn parts_behind_the_last_boundary_are_found_and_doubted() {
        let behind = Some("a part behind its last boundary");
        let message = "Content-Type: multipart/x; boundary=b\n\n--b\n\none\n--b--\nepilogue\n--b\n\ntwo\n--b--\n";
        assert_eq!((texts(message)[..2].concat(), doubt(message)), ("onetwo".into(), behind));
        // Inside another one, until that goes on.
        let inner = format!("Content-Type: multipart/x; boundary=o\n\n--o\n{message}\n--o\n\nthree\n--b\n--o--\n");
        assert_eq!(texts(&inner)[..3], ["one", "two", "three\n--b"]);
        // An end that comes twice, a footer, and a part inside that has the boundary of what is around it.
        let usual = "Content-Type: multipart/x; boundary=b\n\n--b\n\none\n--b--\n--b--\n--bc\nfooter\n";
        assert_eq!((texts(usual), doubt(usual)), (vec!["one".into()], None));
        let same = "Content-Type: multipart/x; boundary=b\n\n--b\nContent-Type: multipart/x; boundary=b\n\n--b\n\none\n--b--\n--b\n\ntwo\n--b--\n";
        let mut budget = Budget::new(&Limits::default());
        let found = parts(same.as_bytes(), 0, &mut budget).unwrap();
        assert!(found.iter().all(|part| part.header.ambiguous.is_none()), "{found:?}");
        assert_eq!(texts(same), ["one", "two"]);
    }

    #[test]
    fn a_longer_boundary_further_in_or_out_is_no_doubt() {
        let message = "Content-Type: multipart/x; boundary=ab\n\n--ab\nContent-Type: multipart/x; boundary=a\n\n--a\n\none\n--a--\n\
            --ab\nContent-Type: multipart/x; boundary=abc\n\n--abc\n\ntwo\n--abc--\n--ab--\n";
        assert_eq!(texts(message), ["one", "two"]);
        let mut budget = Budget::new(&Limits::default());
        let parts = parts(message.as_bytes(), 0, &mut budget).unwrap();
        assert!(parts.iter().all(|part| part.header.ambiguous.is_none()), "{parts:?}");
    }

    #[test]
    fn a_multipart_whose_boundary_never_comes_is_looked_at() {
        let never = Some("a boundary that never comes");
        let message = "Content-Type: multipart/x; boundary=b\n\n--c\n\none\n--c--";
        assert_eq!((texts(message), doubt(message)), (vec!["--c\n\none\n--c--".into()], never));
        let inner = format!("Content-Type: multipart/x; boundary=o\n\n--o\n{message}\n--o\n\ntwo\n--o--");
        assert_eq!(texts(&inner)[..2], ["--c\n\none\n--c--", "two"]);
        // Only a header goes back with some reports.
        let returned = "Content-Type: message/rfc822\n\nContent-Type: multipart/x; boundary=b\n\n\n";
        assert!(texts(returned).is_empty() && doubt(&returned[30..]).is_none());
    }

    #[test]
    fn a_message_without_structure_is_one_part() {
        assert_eq!(bodies("Subject: x\r\n\r\nhello"), [("hello".to_owned(), 0)]);
        assert_eq!(bodies(""), []);
        assert_eq!(bodies("no header at all"), [("no header at all".to_owned(), 0)]);
        assert_eq!(texts("\r\nbody"), ["body"]);
    }

    #[test]
    fn nesting_and_parts_end_at_their_bounds() {
        let limits = Limits { levels: 64, parts: 100, ..Limits::default() };
        let run = |message: &str| parts(message.as_bytes(), 0, &mut Budget::new(&limits));
        let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(65);
        assert_eq!(run(&nested), Err(Exceeded::Levels(64)));
        let many = format!("Content-Type: multipart/x; boundary=a\r\n\r\n{}", "--a\r\n\r\n".repeat(100));
        assert_eq!(run(&many), Err(Exceeded::Parts(100)));
    }

    #[test]
    fn headers_count_as_memory() {
        let limits = Limits { held_bytes: 100 << 10, ..Limits::default() };
        let part = format!("--a\r\nContent-Type: x/y; name={}\r\n\r\n", "n".repeat(1000));
        let many = format!("Content-Type: multipart/x; boundary=a\r\n\r\n{}", part.repeat(100));
        assert_eq!(parts(many.as_bytes(), 0, &mut Budget::new(&limits)), Err(Exceeded::Held(100 << 10)));
    }

    #[test]
    fn a_header_without_end_is_refused() {
        let message = "X: y\r\n".repeat(200_000);
        let mut budget = Budget::new(&Limits::default());
        assert_eq!(parts(message.as_bytes(), 0, &mut budget), Err(Exceeded::Header(1 << 20)));
        let message = "x".repeat(2 << 20);
        assert_eq!(parts(message.as_bytes(), 0, &mut budget), Err(Exceeded::Header(1 << 20)));
    }
}
