//! Where the parts of a message are: one pass over its lines, without recursion.
//!
//! The pass keeps a stack of the multiparts and messages that are open, at most `levels`, and a list of the parts that
//! it met, at most `parts` in all. Nothing is decoded before the whole message has been counted. Cost: one look at each line, and one
//! comparison a level for lines that begin with two dashes.

use super::header::PartHeader;
use super::kind::Kind;
use crate::budget::{Budget, Exceeded};
use crate::file_name;
use std::ops::Range;

/// A part whose body is no multipart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What its header says.
    pub header: PartHeader,
    /// Its body in the message, still encoded.
    pub body: Range<usize>,
    /// How many multiparts and messages it is in.
    pub level: u32,
}

/// Finds the parts of a message that begins at level `outside`. The budget holds the weight of their headers.
pub fn parts(message: &[u8], outside: u32, budget: &mut Budget) -> Result<Vec<Part>, Exceeded> {
    let pass = Pass { message, outside, budget, open: Vec::new(), found: Vec::new() };
    pass.run()
}

/// What is open around the line that is being read.
struct Frame {
    /// Of a multipart; none for a message, which ends with what is around it.
    boundary: Option<Vec<u8>>,
    /// Its own place among the parts that were found.
    part: usize,
    /// Whether its boundary has come.
    begun: bool,
    /// Whether the last one has. It stays open to who goes on all the same, until something around it goes on.
    ended: bool,
}

/// A boundary of one of the frames that are open.
#[derive(Clone, Copy)]
struct Boundary {
    frame: usize,
    last: bool,
}

/// Header (from here) → Body (of this part, from here) or Between (before the first boundary, or after the last).
enum State {
    Header(usize),
    Body(PartHeader, usize),
    Between,
}

struct Pass<'m, 'b> {
    message: &'m [u8],
    outside: u32,
    budget: &'b mut Budget,
    open: Vec<Frame>,
    found: Vec<Part>,
}

impl Pass<'_, '_> {
    fn run(mut self) -> Result<Vec<Part>, Exceeded> {
        let (mut state, mut at) = (State::Header(0), 0);
        self.budget.part()?;
        while at < self.message.len() {
            let end = memchr::memchr(b'\n', &self.message[at..]).map_or(self.message.len(), |end| at + end + 1);
            let line = &self.message[at..end];
            state = match (self.boundary(line), state) {
                (Some(boundary), state) => {
                    self.begins(&boundary);
                    self.close(state, at)?;
                    self.pass(boundary, end)?
                }
                (None, State::Header(from)) if is_empty(line) => self.body(from..at, end)?,
                (None, State::Header(from)) if (end - from) as u64 > self.budget.limits().header_bytes => {
                    return Err(Exceeded::Header(self.budget.limits().header_bytes));
                }
                (None, state) => state,
            };
            at = end;
        }
        self.close(state, self.message.len())?;
        Ok(self.found)
    }

    /// Whether this line is a boundary of something open. One that only begins like a boundary is none here, but is one to
    /// programs that compare no further: unless it is that of something further out, there is a doubt. So there is about a part
    /// behind the last boundary, which is a part only to some.
    fn boundary(&mut self, line: &[u8]) -> Option<Boundary> {
        let rest = line.strip_prefix(b"--")?;
        let (mut nearly, mut again) = (None, None);
        for (frame, Frame { boundary, part, ended, .. }) in self.open.iter().enumerate().rev() {
            let Some(behind) = boundary.as_deref().and_then(|boundary| rest.strip_prefix(boundary)) else { continue };
            let last = behind.strip_prefix(b"--");
            match last.unwrap_or(behind).trim_ascii().is_empty() {
                true if *ended => _ = again.get_or_insert((*part, Boundary { frame, last: last.is_some() })),
                true => return Some(Boundary { frame, last: last.is_some() }),
                false if *ended => {}
                false => _ = nearly.get_or_insert(*part),
            }
        }
        let (part, what) = match (again, nearly) {
            (Some((part, boundary)), _) if !boundary.last => (part, "a part behind its last boundary"),
            (Some((_, boundary)), _) => return Some(boundary),
            (None, nearly) => (nearly?, "a line that begins like its boundary"),
        };
        self.found.get_mut(part)?.header.doubt(what);
        again.map(|(_, boundary)| boundary)
    }

    /// The multipart of this boundary has one: what stands before it is its preamble.
    fn begins(&mut self, boundary: &Boundary) {
        if let Some(frame) = self.open.get_mut(boundary.frame) {
            (frame.begun, frame.ended) = (true, boundary.last);
        }
    }

    /// Behind a boundary: what was opened inside is closed.
    fn pass(&mut self, boundary: Boundary, at: usize) -> Result<State, Exceeded> {
        let Boundary { frame, last } = boundary;
        self.open.truncate(frame + 1);
        if last {
            return Ok(State::Between);
        }
        self.budget.part()?;
        Ok(State::Header(at))
    }

    /// A header is complete: what follows it?
    fn body(&mut self, header: Range<usize>, at: usize) -> Result<State, Exceeded> {
        let header = self.header(header)?;
        let part = self.found.len();
        let frame = if header.is_multipart() {
            Frame { boundary: Some(header.boundary.clone()), part, begun: false, ended: false }
        } else if header.is_message() && header.is_plain() && !is_file(&header, &self.message[at..]) {
            Frame { boundary: None, part, begun: true, ended: false }
        } else {
            return Ok(State::Body(header, at));
        };
        // An empty body, so that what its header says is seen.
        self.found.push(Part { header, body: at..at, level: self.level() });
        let next = if frame.boundary.is_some() { State::Between } else { State::Header(at) };
        self.open.push(frame);
        if self.level() > self.budget.limits().levels {
            return Err(Exceeded::Levels(self.budget.limits().levels));
        }
        if matches!(next, State::Header(_)) {
            self.budget.part()?;
        }
        Ok(next)
    }

    fn close(&mut self, state: State, at: usize) -> Result<(), Exceeded> {
        let level = self.level();
        match state {
            State::Between => self.close_unbegun(at),
            State::Header(from) if from >= at => {}
            // A header without a body, or text that never was a header: it is looked at as it stands.
            State::Header(from) => {
                let header = self.header(from..at)?;
                self.found.push(Part { header, body: from..at, level });
            }
            State::Body(header, from) => self.found.push(Part { header, body: from..at.max(from), level }),
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
        let header = PartHeader::read(&self.message[lines]);
        self.budget.hold(header.weight())?;
        Ok(header)
    }

    fn level(&self) -> u32 {
        self.outside + self.open.len() as u32
    }
}

/// Whether what is called a message is something else to whoever saves it: then it is a file, and a message in that.
fn is_file(header: &PartHeader, body: &[u8]) -> bool {
    let kind = Kind::of(body);
    let mut promised = header.names.iter().flat_map(|name| file_name::extensions(name));
    kind.is_archive()
        || kind.is_program()
        || kind == Kind::Ole
        || promised.any(|extension| file_name::is_archive(&extension))
}

fn is_empty(line: &[u8]) -> bool {
    matches!(line, b"\r\n" | b"\n")
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

    fn texts(message: &str) -> Vec<String> {
        bodies(message).into_iter().map(|(text, _)| text).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn parts_in_parts_and_messages_in_parts() {
        let message = "Content-Type: multipart/mixed; boundary=a\r\n\r\npreamble\r\n--a\r\n\r\none\r\n--a\r\n\
            Content-Type: multipart/x; boundary=\"a b\"\r\n\r\n--a b\r\n\r\ntwo\r\n--a b--\r\nepilogue\r\n--a\r\n\
            Content-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\nthree\r\n--a\r\nheader: only\r\n--a--\r\n";
        assert_eq!(texts(message), ["one", "two", "three", "header: only"]);
    }

    #[test]
    fn an_outer_boundary_ends_what_is_open_inside() {
        let message = "Content-Type: multipart/x; boundary=out\n\n--out\nContent-Type: multipart/x; boundary=in\n\n--in\n\none\n--out\n\ntwo\n";
        assert_eq!(texts(message), ["one", "two"]);
    }

    /// What is doubted of the first part.
    fn doubt(message: &str) -> Option<&'static str> {
        let mut budget = Budget::new(&Limits::default());
        parts(message.as_bytes(), 0, &mut budget).unwrap()[0].header.ambiguous
    }

    #[test]
    fn a_line_that_only_begins_like_a_boundary_ends_nothing() {
        let message =
            |line: &str| format!("Content-Type: multipart/x; boundary=b\n\n--b\n\none\n{line}\n--b\n\ntwo\n--b--\n");
        for line in ["--b--x", "--bx", "--b x", "--b-", "--b--x--"] {
            assert_eq!(texts(&message(line)), [format!("one\n{line}"), "two".into()]);
            assert_eq!(doubt(&message(line)), Some("a line that begins like its boundary"), "{line}");
        }
        for line in ["--c", "-b", "b--", " --b"] {
            assert_eq!(doubt(&message(line)), None, "{line}");
        }
        // Blanks behind a boundary are nothing.
        assert_eq!(texts(&message("--b \t")), ["one", "two"]);
        assert_eq!(texts(&message("--b-- ")), ["one", "two"]);
    }

    #[test]
    fn parts_behind_the_last_boundary_are_found_and_doubted() {
        let behind = Some("a part behind its last boundary");
        let message = "Content-Type: multipart/x; boundary=b\n\n--b\n\none\n--b--\nepilogue\n--b\n\ntwo\n--b--\n";
        assert_eq!((texts(message), doubt(message)), (vec!["one".into(), "two".into()], behind));
        // Inside another one, until that goes on.
        let inner = format!("Content-Type: multipart/x; boundary=o\n\n--o\n{message}\n--o\n\nthree\n--b\n--o--\n");
        assert_eq!(texts(&inner), ["one", "two", "three\n--b"]);
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
        let message = "Content-Type: multipart/x; boundary=ab\n\n--ab\nContent-Type: multipart/x; boundary=a\n\n--a\n\none\n\
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
        assert_eq!(texts(&inner), ["--c\n\none\n--c--", "two"]);
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
