//! A client's connection to a door, over TCP or a Unix socket. Over a Unix socket the client can also pass file descriptors.

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// Descriptors that one read may bring; the kernel closes what is beyond.
const DESCRIPTORS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads what there is; nothing if the client is gone. Descriptors that come with it are added.
    pub(crate) async fn read(&self, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.async_io(Interest::READABLE, || stream.try_read(&mut *into)).await,
            Socket::Unix(stream) => stream.async_io(Interest::READABLE, || receive(stream, into, descriptors)).await,
        }
    }

    pub(crate) async fn write(&self, mut octets: &[u8]) -> io::Result<()> {
        while !octets.is_empty() {
            let written = match self {
                Socket::Tcp(stream) => stream.async_io(Interest::WRITABLE, || stream.try_write(octets)).await?,
                Socket::Unix(stream) => stream.async_io(Interest::WRITABLE, || stream.try_write(octets)).await?,
            };
            octets = &octets[written..];
        }
        Ok(())
    }
}

fn receive(stream: &UnixStream, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = loop {
        match recvmsg(stream.as_fd(), &mut [IoSliceMut::new(into)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    // Only the last ones are kept: a client that sends more than it asks about must not fill our table of files.
    let surplus = descriptors.len().saturating_sub(DESCRIPTORS_MAX);
    descriptors.drain(..surplus);
    Ok(received.bytes)
}
