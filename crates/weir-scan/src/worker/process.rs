//! One worker process, as its parent sees it.

use super::wire::{self, ANSWER_MAX, Answer, Order};
use crate::content::Content;
use crate::examine::Report;
use crate::samples::{Candidate, sha256};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What is started as a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl WorkerProgram {
    /// This same binary, also if its file was replaced meanwhile, with the hidden verb.
    pub fn itself(memory: u64) -> WorkerProgram {
        let arguments = vec!["scan-worker".into(), "--memory".into(), memory.to_string().into()];
        WorkerProgram { path: "/proc/self/exe".into(), arguments }
    }
}

/// A running worker. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Process {
    /// Packets, not a stream: it is only waited for here, and read and written by [`wire`].
    socket: UnixStream,
    buffer: Vec<u8>,
    child: Option<Child>,
    /// Which setup it has.
    pub(super) generation: u64,
    /// Messages that it has looked at.
    pub(super) served: u32,
    /// Processor time that it has used.
    pub(super) processor: Duration,
}

impl Process {
    /// Starts one and gives it its setup.
    pub(super) async fn start(
        program: &WorkerProgram,
        setup: &Content,
        generation: u64,
    ) -> Result<Process, WorkerError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear().current_dir("/");
        // The allocator reserves address space in advance; here it is bounded.
        command.env("MIMALLOC_ARENA_RESERVE", "65536");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        // The command keeps the worker's end of the socket, and then its death would not be seen.
        drop(command);
        let socket = UnixStream::from_std(ours.into())?;
        let buffer = vec![0; ANSWER_MAX];
        let mut process =
            Process { socket, buffer, child: Some(child), generation, served: 0, processor: Duration::ZERO };
        match process.exchange(&Order::Setup { length: setup.length() }, setup).await? {
            Answer::Ready => Ok(process),
            Answer::Failed { problem } | Answer::Panicked { problem } => Err(WorkerError::Setup(problem)),
            _ => Err(WorkerError::Confused),
        }
    }

    /// Gives it a lower priority than this process has, for good. Where the system refuses that, it works as before.
    pub(super) fn give_way(&self, steps: i32) {
        // Without a process the system would take it for our own priority.
        let Some(pid) = self.child.as_ref().map(Pid::from_child) else { return };
        let lowered = getpriority_process(None).and_then(|own| setpriority_process(Some(pid), own + steps));
        if let Err(error) = lowered {
            tracing::debug!(%error, "a worker for large messages keeps its priority");
        }
    }

    /// Has a message looked at.
    pub(super) async fn examine(&mut self, content: &Content, is_file: bool) -> Result<Report, WorkerError> {
        match self.exchange(&Order::Examine { length: content.length(), is_file }, content).await? {
            Answer::Report { report, processor } => {
                self.served += 1;
                self.processor = processor;
                Ok(report)
            }
            Answer::Failed { problem } => Err(WorkerError::Failed(problem)),
            Answer::Panicked { problem } => Err(WorkerError::Panicked(problem)),
            _ => Err(WorkerError::Confused),
        }
    }

    /// One file of a message; none if it is not there. What a worker brings is believed only if it has the hash.
    pub(super) async fn extract(
        &mut self,
        content: &Content,
        wanted: &Candidate,
    ) -> Result<Option<Vec<u8>>, WorkerError> {
        let (ours, theirs) = io::pipe()?;
        let ours = pipe::Receiver::from_owned_fd(ours.into())?;
        let order = Order::Extract { length: content.length(), sha256: wanted.sha256.clone(), size: wanted.size };
        if self.send(&order, &[content.file().as_fd(), theirs.as_fd()]).await.is_err() {
            return Err(WorkerError::GoneBefore);
        }
        // With our copy of its end open, the pipe would never be at its end.
        drop(theirs);
        let mut bytes = Vec::new();
        ours.take(wanted.size + 1).read_to_end(&mut bytes).await?;
        match self.answer().await? {
            Answer::Extracted { found, processor } => {
                self.served += 1;
                self.processor = processor;
                match found {
                    true if sha256(&bytes) == wanted.sha256 => Ok(Some(bytes)),
                    true => Err(WorkerError::Confused),
                    false => Ok(None),
                }
            }
            Answer::Failed { problem } => Err(WorkerError::Failed(problem)),
            Answer::Panicked { problem } => Err(WorkerError::Panicked(problem)),
            _ => Err(WorkerError::Confused),
        }
    }

    /// The attachments of a message, and how many more there are.
    pub(super) async fn attachments(&mut self, content: &Content) -> Result<(Vec<Candidate>, usize), WorkerError> {
        match self.exchange(&Order::Attachments { length: content.length() }, content).await? {
            Answer::Attachments { found, left_out, processor } => {
                self.served += 1;
                self.processor = processor;
                Ok((found, left_out))
            }
            Answer::Failed { problem } => Err(WorkerError::Failed(problem)),
            Answer::Panicked { problem } => Err(WorkerError::Panicked(problem)),
            _ => Err(WorkerError::Confused),
        }
    }

    async fn exchange(&mut self, order: &Order, content: &Content) -> Result<Answer, WorkerError> {
        if self.send(order, &[content.file().as_fd()]).await.is_err() {
            return Err(WorkerError::GoneBefore);
        }
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, WorkerError> {
        let (socket, buffer) = (&self.socket, &mut self.buffer);
        let received = socket.async_io(Interest::READABLE, || wire::receive_answer(socket.as_fd(), buffer)).await;
        match received {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(self.autopsy().await),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(self.autopsy().await),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(&self, order: &Order, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let send = || wire::send_order(self.socket.as_fd(), order, files);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// It closed its end: of what did it die? A kill now changes nothing for one that is dying already.
    async fn autopsy(&mut self) -> WorkerError {
        let Some(mut child) = self.child.take() else { return WorkerError::Confused };
        let waited = tokio::task::spawn_blocking(move || {
            let _ = child.kill();
            child.wait()
        });
        match waited.await {
            Ok(Ok(status)) => WorkerError::Died(cause(status)),
            _ => WorkerError::Confused,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let mut end = move || {
            let _ = child.kill();
            let _ = child.wait();
        };
        // Waiting for a killed process is short, but a thread of the runtime is not the place for it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}

fn cause(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGSYS) => "it tried what is forbidden to it and was ended".into(),
        Some(libc::SIGSEGV | libc::SIGBUS) => "it crashed".into(),
        Some(libc::SIGABRT) => "it aborted: out of memory, or out of stack".into(),
        Some(libc::SIGKILL) => "it was killed".into(),
        Some(libc::SIGXCPU) => "it used up its processor time".into(),
        Some(signal) => format!("it was ended by signal {signal}"),
        None => format!("it ended with code {}", status.code().unwrap_or(-1)),
    }
}

/// What can go wrong with a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It was dead before it got the message.
    #[error("the worker was gone")]
    GoneBefore,
    /// It died while it had the message.
    #[error("the worker died: {0}")]
    Died(String),
    /// It did not come to an end.
    #[error("the worker was stopped after {} s", .0.as_secs())]
    TooLong(Duration),
    /// No worker was free.
    #[error("no worker was free for {} s", .0.as_secs())]
    NoneFree(Duration),
    /// It panicked, and said so.
    #[error("the worker failed: {0}")]
    Panicked(String),
    /// It could not.
    #[error("the worker could not: {0}")]
    Failed(String),
    /// It did not take its setup.
    #[error("a worker does not start: {0}")]
    Setup(String),
    /// It said something that makes no sense.
    #[error("the worker answered nonsense")]
    Confused,
    /// The system refused something.
    #[error("a worker: {0}")]
    System(#[from] io::Error),
}
