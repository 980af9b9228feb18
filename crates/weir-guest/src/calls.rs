//! The system calls that the agent looks at, and what they say.

use crate::filter::if_it_changes;
use crate::peek;
use libc::user_regs_struct;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// When a call stops.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    Always,
    /// If any of these bits of this argument is set.
    IfAny(u32, u32),
}

/// One call: its number in both worlds (0 where it is not), when it stops and what it is.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    pub(crate) number_32: u32,
    pub(crate) stop: Stop,
    call: Call,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    /// The argument with the folder, if any, and that with the path.
    Execute(Option<usize>, usize),
    Write(Option<usize>, usize),
    Delete(Option<usize>, usize),
    /// The same twice.
    Rename((Option<usize>, usize), (Option<usize>, usize)),
    Connect,
    Bind,
    Listen,
    SendTo,
    SendMessage,
    /// All calls of sockets, of old 32-bit programs.
    OldSocket,
}

const fn entry(number: u32, number_32: u32, stop: Stop, call: Call) -> Entry {
    Entry { number, number_32, stop, call }
}

/// All of them.
pub(crate) static CALLS: [Entry; 24] = [
    entry(59, 11, Stop::Always, Call::Execute(None, 0)),
    entry(322, 358, Stop::Always, Call::Execute(Some(0), 1)),
    entry(2, 5, if_it_changes(1), Call::Write(None, 0)),
    entry(257, 295, if_it_changes(2), Call::Write(Some(0), 1)),
    entry(437, 437, Stop::Always, Call::Write(Some(0), 1)),
    entry(85, 8, Stop::Always, Call::Write(None, 0)),
    entry(76, 92, Stop::Always, Call::Write(None, 0)),
    entry(86, 9, Stop::Always, Call::Write(None, 1)),
    entry(265, 303, Stop::Always, Call::Write(Some(2), 3)),
    entry(88, 83, Stop::Always, Call::Write(None, 1)),
    entry(266, 304, Stop::Always, Call::Write(Some(1), 2)),
    entry(87, 10, Stop::Always, Call::Delete(None, 0)),
    entry(263, 301, Stop::Always, Call::Delete(Some(0), 1)),
    entry(82, 38, Stop::Always, Call::Rename((None, 0), (None, 1))),
    entry(264, 302, Stop::Always, Call::Rename((Some(0), 1), (Some(2), 3))),
    entry(316, 353, Stop::Always, Call::Rename((Some(0), 1), (Some(2), 3))),
    entry(42, 362, Stop::Always, Call::Connect),
    entry(49, 361, Stop::Always, Call::Bind),
    entry(50, 363, Stop::Always, Call::Listen),
    entry(44, 369, Stop::IfAny(4, u32::MAX), Call::SendTo),
    entry(46, 370, Stop::Always, Call::SendMessage),
    entry(307, 345, Stop::Always, Call::SendMessage),
    entry(0, 102, Stop::Always, Call::OldSocket),
    // Truncating a file that is open for writing says nothing new; this one is the 64-bit form for 32-bit programs.
    entry(0, 193, Stop::Always, Call::Write(None, 0)),
];

/// What a process is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    Execute(String),
    Write(String),
    Delete(String),
    Rename(String, String),
    Connect(SocketAddr),
    Send(SocketAddr),
    Bind(u64, SocketAddr),
    Listen(u64),
}

/// Reads what a stopped process is about to do; none if that tells nothing.
pub(crate) fn deed(pid: i32, registers: &user_regs_struct) -> Option<Deed> {
    // The code segment tells in which mode the processor is.
    let short = registers.cs == 0x23;
    let number = registers.orig_rax as u32;
    let entry = CALLS.iter().find(|entry| number == if short { entry.number_32 } else { entry.number })?;
    let arguments = if short {
        [registers.rbx, registers.rcx, registers.rdx, registers.rsi, registers.rdi, registers.rbp]
            .map(|r| r & 0xffff_ffff)
    } else {
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9]
    };
    let path = |(folder, path): (Option<usize>, usize)| {
        let folder = folder.map(|at| arguments[at] as i32);
        peek::path(pid, folder, arguments[path])
    };
    match entry.call {
        Call::Execute(folder, at) => path((folder, at)).map(Deed::Execute),
        Call::Write(folder, at) => path((folder, at)).map(Deed::Write),
        Call::Delete(folder, at) => path((folder, at)).map(Deed::Delete),
        Call::Rename(from, to) => Some(Deed::Rename(path(from)?, path(to)?)),
        Call::OldSocket => {
            let more = peek::words_32(pid, arguments[1])?;
            socket(pid, arguments[0], more, true)
        }
        Call::Bind => socket(pid, 2, arguments, short),
        Call::Connect => socket(pid, 3, arguments, short),
        Call::Listen => socket(pid, 4, arguments, short),
        Call::SendTo => socket(pid, 11, arguments, short),
        Call::SendMessage => socket(pid, 16, arguments, short),
    }
}

/// A call of sockets, by the number that `socketcall` has for it.
fn socket(pid: i32, call: u64, arguments: [u64; 6], short: bool) -> Option<Deed> {
    match call {
        2 => address(pid, arguments[1], arguments[2]).map(|to| Deed::Bind(arguments[0], to)),
        3 => address(pid, arguments[1], arguments[2]).map(Deed::Connect),
        4 => Some(Deed::Listen(arguments[0])),
        11 => address(pid, arguments[4], arguments[5]).map(Deed::Send),
        // The first message begins with its address and the address's length.
        16 | 20 => {
            let (name, length) = peek::message_name(pid, arguments[1], short)?;
            address(pid, name, length).map(Deed::Send)
        }
        _ => None,
    }
}

fn address(pid: i32, at: u64, length: u64) -> Option<SocketAddr> {
    if at == 0 {
        return None;
    }
    parse_address(&peek::bytes(pid, at, length.min(28) as usize)?)
}

fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let four = [2, 0, 0, 80, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse_address(&four), Some("10.1.2.3:80".parse().unwrap()));
        let mut six = [0; 28];
        (six[0], six[3], six[23]) = (10, 53, 1);
        assert_eq!(parse_address(&six), Some("[::1]:53".parse().unwrap()));
        assert_eq!(parse_address(&[1, 0, b'/', b'x']), None, "a Unix socket");
        assert_eq!(parse_address(&[2]), None);
    }

    #[test]
    fn numbers_are_there_once() {
        for world in [|entry: &Entry| entry.number, |entry: &Entry| entry.number_32] {
            let mut numbers: Vec<u32> = CALLS.iter().map(world).filter(|number| *number != 0).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count);
        }
    }
}
