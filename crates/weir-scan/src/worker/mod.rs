//! The worker: a process that reads hostile bytes behind a fence and does nothing else.
//!
//! It is this same binary, started again with a hidden verb. Its standard input is one end of a socket pair; over it come a setup,
//! then messages as file descriptors, one at a time, and back go reports. Whatever happens in it (a panic, a stack overflow, a kill) costs
//! one attempt of one message: [`pool`] starts another.

pub mod fence;
pub mod pool;
mod process;
pub(crate) mod rules;
pub mod scanner;
mod settings;
mod wire;

pub use process::{WorkerError, WorkerProgram};

use crate::examine::{Examiner, Setup};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use wire::{Answer, Order};

/// A buffer is kept for the next message up to this size.
const BUFFER_KEPT: usize = 1 << 20;

/// Serves as a worker until the other end closes. `memory` bounds the process, in bytes.
pub fn serve(memory: u64) -> Result<(), ServeError> {
    let socket = io::stdin();
    let socket = socket.as_fd();
    if rustix::net::sockopt::socket_type(socket) != Ok(rustix::net::SocketType::SEQPACKET) {
        return Err(ServeError::NotASocket);
    }
    // Panics are answered, not printed.
    std::panic::set_hook(Box::new(|_| {}));
    fence::raise(memory)?;
    let mut examiner: Option<Examiner> = None;
    let mut buffer = Vec::new();
    while let Some((order, content, reply)) = wire::receive_order(socket)? {
        let answer = match (order, &mut examiner) {
            (Order::Setup { length }, none) => match setup(content, length) {
                Ok(made) => {
                    *none = Some(made);
                    Answer::Ready
                }
                Err(problem) => Answer::Failed { problem },
            },
            (Order::Examine { length, is_file }, Some(examiner)) => {
                examine(examiner, &content.into(), length, is_file, &mut buffer)
            }
            (Order::Extract { length, .. } | Order::Attachments { length }, Some(examiner))
                if !examiner.fits(length) =>
            {
                Answer::Failed { problem: "the message is larger than may be opened".into() }
            }
            (Order::Extract { length, sha256, size }, Some(examiner)) => {
                looked(&content.into(), length, &mut buffer, |message| {
                    let Some(reply) = reply else { return Answer::Failed { problem: "no place for the bytes".into() } };
                    match examiner.extract(message, (&sha256, size), &mut File::from(reply)) {
                        Ok(found) => Answer::Extracted { found, processor: processor_time() },
                        Err(error) => Answer::Failed { problem: format!("the file cannot be handed over: {error}") },
                    }
                })
            }
            (Order::Attachments { length }, Some(examiner)) => {
                looked(&content.into(), length, &mut buffer, |message| {
                    let (found, left_out) = examiner.attachments(message);
                    Answer::Attachments { found, left_out, processor: processor_time() }
                })
            }
            (_, None) => Answer::Failed { problem: "a message before the setup".into() },
        };
        let panicked = matches!(&answer, Answer::Panicked { .. });
        wire::send_answer(socket, &answer)?;
        if panicked {
            break;
        }
    }
    Ok(())
}

fn setup(content: OwnedFd, length: u64) -> Result<Examiner, String> {
    let mut bytes = Vec::new();
    read(&content.into(), length, &mut bytes).map_err(|error| error.to_string())?;
    let setup: Setup = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    Examiner::new(setup).map_err(|error| error.to_string())
}

fn examine(examiner: &mut Examiner, file: &File, length: u64, is_file: bool, buffer: &mut Vec<u8>) -> Answer {
    // Before there is memory for it.
    if let Some(report) = examiner.too_large(length) {
        return Answer::Report { report, processor: processor_time() };
    }
    looked(file, length, buffer, |message| {
        let report = if is_file { examiner.examine_file(message) } else { examiner.examine(message) };
        Answer::Report { report, processor: processor_time() }
    })
}

/// Reads a message and looks at it; a panic is an answer.
fn looked(file: &File, length: u64, buffer: &mut Vec<u8>, look: impl FnOnce(&[u8]) -> Answer) -> Answer {
    if let Err(error) = read(file, length, buffer) {
        return Answer::Failed { problem: format!("the message cannot be read: {error}") };
    }
    let looked = catch_unwind(AssertUnwindSafe(|| look(buffer.as_slice())));
    buffer.clear();
    buffer.shrink_to(BUFFER_KEPT);
    match looked {
        Ok(answer) => answer,
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Answer::Panicked { problem: crate::plain::shown(text.unwrap_or("no reason given"), 300) }
        }
    }
}

fn read(file: &File, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    into.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
    file.read_exact_at(into, 0)
}

/// What this process has used since it was started.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// A worker that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody typed the verb.
    #[error("standard input is not a socket: this verb is for Weir itself, which starts it")]
    NotASocket,
    /// The fence did not stand.
    #[error(transparent)]
    Fence(#[from] fence::FenceError),
    /// The other end went away, or sent something odd.
    #[error("the socket: {0}")]
    Socket(#[from] io::Error),
}
