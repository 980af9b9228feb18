//! The protocol between the gate and a worker: one packet per order, one packet per answer, JSON of bounded length. Content goes as a file
//! descriptor beside its order.

use crate::examine::Report;
use crate::samples::Candidate;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, send, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// From the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Rules, policy and limits, as JSON in the file.
    Setup { length: u64 },
    /// A message, in the file; or something else, which then is looked at as a file, too.
    Examine { length: u64, is_file: bool },
    /// One file of a message, to be written into the pipe that comes beside it.
    Extract { length: u64, sha256: String, size: u64 },
    /// The attachments of a message.
    Attachments { length: u64 },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The setup is in force.
    Ready,
    /// What was found, and the processor time of this process so far.
    Report { report: Report, processor: Duration },
    /// Whether the file was there, and is in the pipe.
    Extracted { found: bool, processor: Duration },
    /// The attachments, and how many more there are.
    Attachments { found: Vec<Candidate>, left_out: usize, processor: Duration },
    /// It could not.
    Failed { problem: String },
    /// It broke; this worker ends.
    Panicked { problem: String },
}

const ORDER_MAX: usize = 4 << 10;
/// Findings and reasons are bounded one by one; together they are far below this.
pub(super) const ANSWER_MAX: usize = 160 << 10;

/// Sends an order with its files, two at most. `WouldBlock` if the socket is full.
pub(super) fn send_order(socket: BorrowedFd<'_>, order: &Order, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// An order, its content, and where an answer in bytes goes if it wants one.
pub(super) type Received = (Order, OwnedFd, Option<OwnedFd>);

/// Waits for an order; none if the other end is gone.
pub(super) fn receive_order(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    let mut text = [0; ORDER_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let mut files = files.into_iter();
    let order = serde_json::from_slice(&text[..received.bytes])?;
    let content = files.next().ok_or_else(|| io::Error::other("an order without its file"))?;
    Ok(Some((order, content, files.next())))
}

pub(super) fn send_answer(socket: BorrowedFd<'_>, answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    if text.len() > ANSWER_MAX {
        text = serde_json::to_vec(&Answer::Failed { problem: "more findings than fit".into() })?;
    }
    send(socket, &text, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes an answer; `WouldBlock` if there is none yet, none if the other end is gone.
pub(super) fn receive_answer(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Answer>> {
    let (length, whole) = recv(socket, &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
    if whole == 0 && length == 0 {
        return Ok(None);
    }
    if whole > buffer.len() {
        return Err(io::Error::other("an answer that is too long"));
    }
    Ok(Some(serde_json::from_slice(&buffer[..length])?))
}
