//! Clamd's protocol as its server speaks it, without I/O: octets go in, questions come out.
//!
//! A command is one line that ends with a NUL (`zPING`) or a newline (`nPING`, and plain `PING`); the reply ends in the same way. A stream
//! is chunks, each behind its length in four octets, up to one of length zero. Within a session (`IDSESSION` … `END`) commands have numbers, and
//! so have their replies. What waits here is at most one command and what the last read brought.

/// The longest command. Only paths are long, and we open none.
const COMMAND_MAX: usize = 4096 + 32;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClamdCommand {
    /// Whether somebody is there.
    Ping,
    /// Which program this is.
    Version,
    /// The same, and which commands it knows.
    VersionCommands,
    /// How busy it is.
    Stats,
    /// A session begins.
    Session,
    /// The session ends.
    End,
    /// A stream begins.
    Stream,
    /// A piece of it.
    Piece(Vec<u8>),
    /// It is complete.
    StreamEnd,
    /// A file, whose descriptor comes with the next octet.
    Descriptor,
    /// A file by its path.
    Path(String),
    /// Something that we do not do.
    Unknown,
}

/// A question, and how its reply is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub asked: ClamdCommand,
    /// How it is answered.
    pub form: ReplyForm,
}

/// How a reply is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyForm {
    end: u8,
    number: Option<u32>,
}

impl ReplyForm {
    /// The octets of a reply.
    pub fn write(self, text: &str) -> Vec<u8> {
        let mut reply = self.number.map(|number| format!("{number}: ")).unwrap_or_default().into_bytes();
        // A text with an end of its own would be two replies.
        reply.extend(text.bytes().filter(|byte| !byte.is_ascii_control()));
        reply.push(self.end);
        reply
    }
}

/// Why a client is not listened to any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// A command without an end.
    #[error("a command of more than {COMMAND_MAX} octets")]
    Long,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    Command,
    /// The length of the next chunk of a stream.
    Length(ReplyForm),
    /// The octets of a chunk, of which this many are still to come.
    Chunk(ReplyForm, usize),
}

/// The questions of one connection.
#[derive(Debug)]
pub struct Questions {
    octets: Vec<u8>,
    expects: Expects,
    /// The number of the last command of a session; none outside of one.
    session: Option<u32>,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions { octets: Vec::new(), expects: Expects::Command, session: None }
    }
}

impl Questions {
    /// More octets of the client. Ask for [`Questions::next_question`] until there is none before more are given.
    pub fn feed(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Whether the client may ask more than once.
    pub fn in_session(&self) -> bool {
        self.session.is_some()
    }

    /// Leaves out one octet: the one that a descriptor comes with.
    pub fn skip(&mut self) -> bool {
        let there = !self.octets.is_empty();
        self.octets.drain(..usize::from(there));
        there
    }

    /// The next question; none until more octets come.
    pub fn next_question(&mut self) -> Result<Option<Question>, Garbled> {
        match self.expects {
            Expects::Command => self.command(),
            Expects::Length(form) => {
                let Some((length, _)) = self.octets.split_first_chunk::<4>() else { return Ok(None) };
                let length = u32::from_be_bytes(*length) as usize;
                self.octets.drain(..4);
                if length > 0 {
                    self.expects = Expects::Chunk(form, length);
                    return self.next_question();
                }
                self.expects = Expects::Command;
                Ok(Some(Question { asked: ClamdCommand::StreamEnd, form }))
            }
            Expects::Chunk(form, left) => {
                let piece: Vec<u8> = self.octets.drain(..left.min(self.octets.len())).collect();
                if piece.is_empty() {
                    return Ok(None);
                }
                self.expects = match left - piece.len() {
                    0 => Expects::Length(form),
                    left => Expects::Chunk(form, left),
                };
                Ok(Some(Question { asked: ClamdCommand::Piece(piece), form }))
            }
        }
    }

    fn command(&mut self) -> Result<Option<Question>, Garbled> {
        let (end, prefix) = match self.octets.first() {
            None => return Ok(None),
            Some(b'z') => (0, 1),
            Some(b'n') => (b'\n', 1),
            Some(_) => (b'\n', 0),
        };
        let Some(length) = memchr::memchr(end, &self.octets) else {
            return if self.octets.len() > COMMAND_MAX { Err(Garbled::Long) } else { Ok(None) };
        };
        if length > COMMAND_MAX {
            return Err(Garbled::Long);
        }
        let line: Vec<u8> = self.octets.drain(..=length).collect();
        let asked = asked(String::from_utf8_lossy(&line[prefix..length]).trim_end_matches('\r'));
        match asked {
            ClamdCommand::Session => self.session = Some(0),
            ClamdCommand::End => self.session = None,
            _ => {}
        }
        if let Some(number) = self.session.as_mut().filter(|_| asked != ClamdCommand::Session) {
            *number = number.wrapping_add(1);
        }
        let number = self.session.filter(|_| asked != ClamdCommand::Session);
        let form = ReplyForm { end, number };
        if asked == ClamdCommand::Stream {
            self.expects = Expects::Length(form);
        }
        Ok(Some(Question { asked, form }))
    }
}

fn asked(command: &str) -> ClamdCommand {
    let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
    match word {
        "PING" => ClamdCommand::Ping,
        "VERSION" => ClamdCommand::Version,
        "VERSIONCOMMANDS" => ClamdCommand::VersionCommands,
        "STATS" => ClamdCommand::Stats,
        "IDSESSION" => ClamdCommand::Session,
        "END" => ClamdCommand::End,
        "INSTREAM" => ClamdCommand::Stream,
        "FILDES" => ClamdCommand::Descriptor,
        "SCAN" | "CONTSCAN" | "MULTISCAN" | "ALLMATCHSCAN" | "RAWSCAN" => ClamdCommand::Path(rest.to_owned()),
        _ => ClamdCommand::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that is asked, with what a reply of "OK" would be, if the octets come in pieces of this length.
    fn all(octets: &[u8], piece: usize) -> Vec<(ClamdCommand, String)> {
        let (mut questions, mut found) = (Questions::default(), Vec::new());
        for octets in octets.chunks(piece) {
            questions.feed(octets);
            while let Some(Question { asked, form }) = questions.next_question().unwrap() {
                let reply = String::from_utf8(form.write("OK")).unwrap();
                match (found.last_mut(), asked) {
                    (Some((ClamdCommand::Piece(before), _)), ClamdCommand::Piece(more)) => before.extend(more),
                    (_, asked) => found.push((asked, reply)),
                }
            }
        }
        found
    }

    #[test]
    fn commands_have_three_forms() {
        for piece in [1, 3, 100] {
            let found = all(b"zPING\0nVERSION\nSTATS\r\nzSCAN /a b\0nSHUTDOWN\n", piece);
            let reply = |text: &str| text.to_owned();
            assert_eq!(
                found,
                [
                    (ClamdCommand::Ping, reply("OK\0")),
                    (ClamdCommand::Version, reply("OK\n")),
                    (ClamdCommand::Stats, reply("OK\n")),
                    (ClamdCommand::Path("/a b".into()), reply("OK\0")),
                    (ClamdCommand::Unknown, reply("OK\n")),
                ]
            );
        }
    }

    #[test]
    fn streams_in_a_session_have_numbers() {
        let octets = b"zIDSESSION\0zPING\0zINSTREAM\0\0\0\0\x03abc\0\0\0\x02de\0\0\0\0nINSTREAM\n\0\0\0\0zEND\0";
        for piece in [1, 2, 7, 1000] {
            let found = all(octets, piece);
            let text: Vec<String> = found.iter().map(|(asked, reply)| format!("{asked:?} {reply:?}")).collect();
            assert_eq!(
                text,
                [
                    "Session \"OK\\0\"",
                    "Ping \"1: OK\\0\"",
                    "Stream \"2: OK\\0\"",
                    "Piece([97, 98, 99, 100, 101]) \"2: OK\\0\"",
                    "StreamEnd \"2: OK\\0\"",
                    "Stream \"3: OK\\n\"",
                    "StreamEnd \"3: OK\\n\"",
                    "End \"OK\\0\"",
                ]
            );
        }
    }

    #[test]
    fn a_command_without_an_end_is_refused() {
        let mut questions = Questions::default();
        questions.feed(&[b'x'; COMMAND_MAX]);
        assert_eq!(questions.next_question(), Ok(None));
        questions.feed(b"yy");
        assert_eq!(questions.next_question(), Err(Garbled::Long));
    }

    #[test]
    fn a_reply_is_one_line_whatever_is_in_it() {
        let form = ReplyForm { end: b'\n', number: Some(7) };
        assert_eq!(form.write("a\nb\0c FOUND"), b"7: abc FOUND\n");
    }
}
