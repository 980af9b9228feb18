//! One client connection of the clamd door, from its first command to its last.

use super::ClamdDoor;
use crate::door::{Closing, Incoming, NotTaken, Socket, Taken};
use crate::scan::FileAnswer;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use weir_scan::clamd::server::{ClamdCommand, Question, Questions, ReplyForm};
use weir_scan::content::Content;

/// Files of one session that are looked at at once; a client that asks about more is not read from until one is done.
const AT_ONCE: usize = 8;

/// What is read at once: at first as much as most files have, and more from a client that sends more. Memory for the most that is read at once
/// would be cleared for every file, and most files are small.
const PIECE: (usize, usize) = (8 << 10, 256 << 10);

const COMMANDS: &str = "COMMANDS: PING VERSION VERSIONCOMMANDS STATS INSTREAM FILDES IDSESSION END";

/// Whether more is to be read from a client.
#[derive(PartialEq, Eq)]
enum Next {
    More,
    Enough,
}

/// What is written to a client, one reply after the other.
#[derive(Default)]
struct Writing {
    /// A reply was not written whole, so that nothing can follow it.
    broken: bool,
}

struct Conversation<'d> {
    door: &'d Arc<ClamdDoor>,
    client: &'d str,
    socket: Arc<Socket>,
    /// Replies of files that are looked at side by side must not run into each other.
    writing: Arc<Mutex<Writing>>,
    questions: Questions,
    descriptors: Vec<OwnedFd>,
    incoming: Option<Incoming>,
    /// A descriptor was announced, and has not come.
    announced: Option<ReplyForm>,
    answers: JoinSet<()>,
    places: Arc<Semaphore>,
}

/// Answers a client until it has enough, is gone, or says nothing for too long.
pub(super) async fn converse(door: &Arc<ClamdDoor>, socket: Socket, client: &str, closing: Closing) -> io::Result<()> {
    let mut conversation = Conversation {
        door,
        client,
        socket: Arc::new(socket),
        writing: Arc::default(),
        questions: Questions::default(),
        descriptors: Vec::new(),
        incoming: None,
        announced: None,
        answers: JoinSet::new(),
        places: Arc::new(Semaphore::new(AT_ONCE)),
    };
    let ended = conversation.run(closing).await;
    while conversation.answers.join_next().await.is_some() {}
    ended
}

impl Conversation<'_> {
    async fn run(&mut self, mut closing: Closing) -> io::Result<()> {
        let mut buffer = vec![0; PIECE.0];
        loop {
            if self.answer_all().await? == Next::Enough {
                return Ok(());
            }
            let read = timeout(self.door.idle, self.socket.read(&mut buffer, &mut self.descriptors));
            let length = tokio::select! {
                read = read => read.map_err(|_| io::ErrorKind::TimedOut)??,
                () = closing.begins() => return Ok(()),
            };
            if length == 0 {
                return Ok(());
            }
            self.questions.feed(&buffer[..length]);
            if length == buffer.len() {
                buffer.resize((2 * length).min(PIECE.1), 0);
            }
        }
    }

    /// Answers everything that is there.
    async fn answer_all(&mut self) -> io::Result<Next> {
        loop {
            if let Some(form) = self.announced {
                if !self.questions.skip() {
                    return Ok(Next::More);
                }
                self.announced = None;
                if self.descriptor(form).await? == Next::Enough {
                    return Ok(Next::Enough);
                }
                continue;
            }
            let question = match self.questions.next_question() {
                Ok(Some(question)) => question,
                Ok(None) => return Ok(Next::More),
                Err(garbled) => return Err(io::Error::new(io::ErrorKind::InvalidData, garbled)),
            };
            if self.answer(question).await? == Next::Enough {
                return Ok(Next::Enough);
            }
        }
    }

    async fn answer(&mut self, question: Question) -> io::Result<Next> {
        let Question { asked, form } = question;
        match asked {
            ClamdCommand::Ping => self.say(form, "PONG").await,
            ClamdCommand::Version => self.say(form, &version()).await,
            ClamdCommand::VersionCommands => self.say(form, &format!("{}| {COMMANDS}", version())).await,
            ClamdCommand::Stats => self.say(form, "POOLS: 1 STATE: VALID PRIMARY END").await,
            ClamdCommand::Session => Ok(Next::More),
            ClamdCommand::End => Ok(Next::Enough),
            ClamdCommand::Stream => {
                self.incoming = Some(Incoming::new(&self.door.room));
                Ok(Next::More)
            }
            ClamdCommand::Piece(octets) => match self.incoming.as_mut().map(|incoming| incoming.write(&octets)) {
                Some(Err(refused)) => {
                    self.say(form, &refused.to_string()).await?;
                    // The rest of the stream would be read for nothing.
                    Ok(Next::Enough)
                }
                _ => Ok(Next::More),
            },
            ClamdCommand::StreamEnd => match self.incoming.take().map(Incoming::seal) {
                Some(sealed) => self.look(form, "stream", sealed).await,
                None => Ok(Next::More),
            },
            ClamdCommand::Descriptor => {
                self.announced = Some(form);
                Ok(Next::More)
            }
            ClamdCommand::Path(path) => {
                let told = "Weir opens no paths of other programs; send the file (clamdscan --stream or --fdpass)";
                self.say(form, &format!("{path}: {told}. ERROR")).await
            }
            ClamdCommand::Unknown => self.say(form, "UNKNOWN COMMAND").await,
        }
    }

    /// The octet behind `FILDES` is here: so must be what it brought.
    async fn descriptor(&mut self, form: ReplyForm) -> io::Result<Next> {
        if self.descriptors.is_empty() {
            return self.say(form, "No file descriptor received. ERROR").await;
        }
        let (file, room) = (self.descriptors.remove(0), Arc::clone(&self.door.room));
        let copied = tokio::task::spawn_blocking(move || Incoming::copy(&room, file)).await;
        self.look(form, "fd[0]", copied.map_err(io::Error::other)?).await
    }

    /// Has a file looked at. In a session the next question is read meanwhile.
    async fn look(
        &mut self,
        form: ReplyForm,
        name: &'static str,
        sealed: Result<(Content, Taken), NotTaken>,
    ) -> io::Result<Next> {
        let (content, taken) = match sealed {
            Ok(sealed) => sealed,
            Err(refused) => return self.say(form, &format!("{name}: {refused}")).await,
        };
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let (scanning, client) = (self.door.scanning.clone(), self.client.to_owned());
        let (socket, writing, idle) = (Arc::clone(&self.socket), Arc::clone(&self.writing), self.door.idle);
        self.answers.spawn(async move {
            let answer = scanning.look_at(content, &client).await;
            // Room for others before anything is written: the client may be slow to read.
            drop((taken, place));
            let _ = write(&socket, &writing, idle, &form.write(&told(name, &answer))).await;
        });
        while self.answers.try_join_next().is_some() {}
        Ok(self.after_one())
    }

    async fn say(&self, form: ReplyForm, text: &str) -> io::Result<Next> {
        write(&self.socket, &self.writing, self.door.idle, &form.write(text)).await?;
        Ok(self.after_one())
    }

    /// Outside of a session a client asks once.
    fn after_one(&self) -> Next {
        if self.questions.in_session() { Next::More } else { Next::Enough }
    }
}

/// A client that reads nothing keeps its place no longer than one that says nothing.
async fn write(socket: &Socket, writing: &Mutex<Writing>, idle: Duration, reply: &[u8]) -> io::Result<()> {
    let mut writing = writing.lock().await;
    if writing.broken {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let written = timeout(idle, socket.write(reply)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    writing.broken = written.is_err();
    written
}

fn told(name: &str, answer: &FileAnswer) -> String {
    match answer {
        FileAnswer::Clean => format!("{name}: OK"),
        FileAnswer::Found(what) => format!("{name}: {what} FOUND"),
        FileAnswer::Failed(problem) => format!("{name}: {problem}. ERROR"),
    }
}

/// Some clients look for the name that they know at the start.
fn version() -> String {
    format!("ClamAV protocol by Weir {}", env!("CARGO_PKG_VERSION"))
}
