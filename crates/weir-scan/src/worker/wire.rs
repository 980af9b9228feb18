//! What goes between the gate and a worker: one packet an order, one packet an answer, JSON of bounded length. Content goes
//! as a file descriptor beside its order.

use crate::examine::Report;
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
    /// A message, in the file.
    Examine { length: u64 },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The setup is in force.
    Ready,
    /// What was found, and the processor time of this process so far.
    Report { report: Report, processor: Duration },
    /// It could not.
    Failed { problem: String },
    /// It broke; this worker ends.
    Panicked { problem: String },
}

const ORDER_MAX: usize = 4 << 10;
/// Findings and reasons are bounded one by one; together they are far below this.
pub(super) const ANSWER_MAX: usize = 160 << 10;

/// Sends an order with its file. `WouldBlock` if the socket is full.
pub(super) fn send_order(socket: BorrowedFd<'_>, order: &Order, content: BorrowedFd<'_>) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [content];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for an order; none if the other end is gone.
pub(super) fn receive_order(socket: BorrowedFd<'_>) -> io::Result<Option<(Order, OwnedFd)>> {
    let mut text = [0; ORDER_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let order = serde_json::from_slice(&text[..received.bytes])?;
    Ok(Some((order, file.ok_or_else(|| io::Error::other("an order without its file"))?)))
}

/// Sends an answer.
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
