//! Which system calls of a sample stop for the agent: a small program for the kernel's seccomp.
//!
//! Only calls that can tell something stop, so that a sample runs at nearly its own speed. 32-bit programs have numbers of
//! their own.

use crate::calls::{CALLS, Stop};
use seccompiler::{BpfProgram, sock_filter};

const ARCH_X86_64: u32 = 0xC000_003E;
const ARCH_I386: u32 = 0x4000_0003;
const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = 0x7ff0_0000;

/// Where the kernel's description of a call has its number, its architecture and its arguments.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The flags of `open` that can change a file: write, read and write, create, truncate.
const OPEN_CHANGES: u32 = 0o1 | 0o2 | 0o100 | 0o1000;

/// The program.
pub(crate) fn program() -> BpfProgram {
    let (long, short) = (table(|call| call.number), table(|call| call.number_32));
    let mut program = vec![load(ARCH), equal(ARCH_X86_64, 0, long.len() as u8)];
    program.extend(long);
    program.push(equal(ARCH_I386, 0, short.len() as u8));
    program.extend(short);
    program.push(end(ALLOW));
    program
}

/// Ends with a verdict for every call of an architecture.
fn table(number: impl Fn(&crate::calls::Entry) -> u32) -> BpfProgram {
    let mut program = vec![load(NUMBER)];
    for entry in CALLS.iter().filter(|entry| number(entry) != 0) {
        match entry.stop {
            Stop::Always => program.extend([equal(number(entry), 0, 1), end(TRACE)]),
            Stop::IfAny(argument, bits) => program.extend([
                equal(number(entry), 0, 4),
                load(ARGUMENTS + 8 * argument),
                any(bits, 0, 1),
                end(TRACE),
                end(ALLOW),
            ]),
        }
    }
    program.push(end(ALLOW));
    program
}

/// A call that opens a file stops if it could change it.
pub(crate) const fn if_it_changes(argument: u32) -> Stop {
    Stop::IfAny(argument, OPEN_CHANGES)
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: 0x20, jt: 0, jf: 0, k: offset }
}

fn equal(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: 0x15, jt, jf, k }
}

fn any(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: 0x45, jt, jf, k }
}

fn end(verdict: u32) -> sock_filter {
    sock_filter { code: 0x06, jt: 0, jf: 0, k: verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's machine, as far as the program uses it.
    fn verdict(program: &[sock_filter], number: u32, arch: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            match step.code {
                0x20 => {
                    value = match step.k {
                        NUMBER => number,
                        ARCH => arch,
                        offset => arguments[((offset - ARGUMENTS) / 8) as usize],
                    };
                }
                0x15 => at += usize::from(if value == step.k { step.jt } else { step.jf }),
                0x45 => at += usize::from(if value & step.k != 0 { step.jt } else { step.jf }),
                0x06 => return step.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_can_tell_something_stops() {
        let program = program();
        let none = [0; 6];
        assert_eq!(verdict(&program, 59, ARCH_X86_64, none), TRACE, "execve");
        assert_eq!(verdict(&program, 0, ARCH_X86_64, none), ALLOW, "read");
        assert_eq!(verdict(&program, 257, ARCH_X86_64, none), ALLOW, "openat for reading");
        assert_eq!(verdict(&program, 257, ARCH_X86_64, [0, 0, 0o101, 0, 0, 0]), TRACE, "openat for writing");
        assert_eq!(verdict(&program, 44, ARCH_X86_64, none), ALLOW, "sendto without an address");
        assert_eq!(verdict(&program, 42, ARCH_X86_64, none), TRACE, "connect");
        assert_eq!(verdict(&program, 11, ARCH_I386, none), TRACE, "execve of a 32-bit program");
        assert_eq!(verdict(&program, 59, ARCH_I386, none), ALLOW, "oldolduname");
        assert_eq!(verdict(&program, 59, 1, none), ALLOW);
    }
}
