//! Which system calls of a sample stop for the agent: a small program for the kernel's seccomp.
//!
//! Only calls that can tell something stop, so that a sample runs at nearly its own speed. 32-bit programs have numbers of
//! their own, and 64-bit programs may use them: the agent is told which of the two a call belongs to. Calls that would be a way around the
//! agent are refused.

use crate::calls::{CALLS, Stop};
use seccompiler::{BpfProgram, sock_filter};

const ARCH_X86_64: u32 = 0xC000_003E;
const ARCH_I386: u32 = 0x4000_0003;
const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = 0x7ff0_0000;
const ERROR: u32 = 0x0005_0000;
const X32: u32 = 0x4000_0000;
/// What the agent hears with a stop of a 32-bit call.
pub(crate) const SHORT: u32 = 1;

/// Where the kernel's description of a call has its number, its architecture and its arguments.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

pub(crate) fn program() -> BpfProgram {
    let (long, short) = (table(|call| call.number, TRACE), table(|call| call.number_32, TRACE | SHORT));
    let mut program = vec![load(ARCH), equal(ARCH_X86_64, 0, long.len() as u8)];
    program.extend(long);
    program.push(equal(ARCH_I386, 0, short.len() as u8));
    program.extend(short);
    program.push(end(ALLOW));
    program
}

/// Ends with a verdict for every call of an architecture.
fn table(number: impl Fn(&crate::calls::KnownCall) -> u32, trace: u32) -> BpfProgram {
    // Calls of x32 are of the same architecture and have numbers of their own: this guest does not know them.
    let mut program = vec![load(NUMBER), at_least(X32, 0, 1), end(ERROR | libc::ENOSYS.cast_unsigned())];
    let if_any = |program: &mut BpfProgram, number: u32, (argument, bits): (u32, u32), (yes, no): (u32, u32)| {
        program.extend([equal(number, 0, 4), load(ARGUMENTS + 8 * argument), any(bits, 0, 1), end(yes), end(no)]);
    };
    let error = |errno: i32| ERROR | errno.cast_unsigned();
    for entry in CALLS.iter().filter(|entry| number(entry) != 0) {
        let number = number(entry);
        match entry.stop {
            Stop::Always => {}
            Stop::IfAny(argument, bits) => if_any(&mut program, number, (argument, bits), (trace, ALLOW)),
            Stop::UnlessAny(argument, bits) => if_any(&mut program, number, (argument, bits), (ALLOW, trace)),
            Stop::Never(errno) => program.extend([equal(number, 0, 1), end(error(errno))]),
            Stop::NeverIfAny(argument, bits, errno) => {
                if_any(&mut program, number, (argument, bits), (error(errno), ALLOW));
            }
            Stop::NeverOrIfAny(argument, bits, errno, more) => {
                program.extend([equal(number, 0, 6), load(ARGUMENTS + 8 * argument), any(bits, 0, 1)]);
                program.extend([end(error(errno)), any(more, 0, 1), end(trace), end(ALLOW)]);
            }
        }
    }
    // Those that always stop share one end: there are many of them, and no jump goes further than 255 steps.
    let always: Vec<u32> = CALLS
        .iter()
        .filter(|entry| matches!(entry.stop, Stop::Always))
        .map(number)
        .filter(|number| *number != 0)
        .collect();
    let steps = (1..=always.len() as u8).rev();
    program.extend(always.iter().zip(steps).map(|(number, ahead)| equal(*number, ahead, 0)));
    program.extend([end(ALLOW), end(trace)]);
    program
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: 0x20, jt: 0, jf: 0, k: offset }
}

fn equal(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: 0x15, jt, jf, k }
}

fn at_least(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: 0x35, jt, jf, k }
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
                0x35 => at += usize::from(if value >= step.k { step.jt } else { step.jf }),
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
        assert_eq!(verdict(&program, 257, ARCH_X86_64, none), TRACE, "openat, also for reading: it may be a secret");
        assert_eq!(verdict(&program, 90, ARCH_X86_64, [0, 0o755, 0, 0, 0, 0]), ALLOW, "chmod");
        assert_eq!(verdict(&program, 90, ARCH_X86_64, [0, 0o4755, 0, 0, 0, 0]), TRACE, "chmod u+s");
        assert_eq!(verdict(&program, 262, ARCH_X86_64, none), TRACE, "newfstatat of a path");
        assert_eq!(verdict(&program, 262, ARCH_X86_64, [3, 0, 0, 0x1000, 0, 0]), ALLOW, "newfstatat of an open file");
        assert_eq!(verdict(&program, 230, ARCH_X86_64, none), TRACE, "clock_nanosleep");
        assert_eq!(verdict(&program, 162, ARCH_I386, none), TRACE | SHORT, "nanosleep of the 32-bit world");
        assert_eq!(verdict(&program, 407, ARCH_I386, none), TRACE | SHORT, "clock_nanosleep with long times");
        assert_eq!(verdict(&program, 44, ARCH_X86_64, none), ALLOW, "sendto without an address");
        // An address at 0x1_0000_0000: the lower half of the pointer is zero.
        assert_eq!(verdict(&program, 44, ARCH_X86_64, [3, 0, 1, 0, 0, 16]), TRACE, "sendto with an address");
        assert_eq!(verdict(&program, 42, ARCH_X86_64, none), TRACE, "connect");
        assert_eq!(verdict(&program, 11, ARCH_I386, none), TRACE | SHORT, "execve of the 32-bit world");
        assert_eq!(verdict(&program, 59, ARCH_I386, none), ALLOW, "oldolduname");
        assert_eq!(verdict(&program, 59, 1, none), ALLOW);
        assert_eq!(verdict(&program, 313, ARCH_X86_64, none), TRACE, "finit_module");
        assert_eq!(verdict(&program, 161, ARCH_X86_64, none), TRACE, "chroot");
        assert_eq!(
            verdict(&program, 272, ARCH_X86_64, [0x1002_0000, 0, 0, 0, 0, 0]),
            TRACE,
            "unshare of files and users"
        );
        assert_eq!(verdict(&program, 272, ARCH_X86_64, [0x400, 0, 0, 0, 0, 0]), ALLOW, "unshare of open files");
        assert_eq!(
            verdict(&program, 56, ARCH_X86_64, [0x1000_0011, 0, 0, 0, 0, 0]),
            TRACE,
            "fork with users of its own"
        );
        assert_eq!(verdict(&program, 120, ARCH_I386, [0x0002_0011, 0, 0, 0, 0, 0]), TRACE | SHORT);
    }

    #[test]
    fn ways_around_the_agent_are_closed() {
        let program = program();
        let none = [0; 6];
        for arch in [ARCH_X86_64, ARCH_I386] {
            assert_eq!(verdict(&program, 425, arch, none), ERROR | 38, "io_uring_setup");
            assert_eq!(verdict(&program, 435, arch, none), ERROR | 38, "clone3");
        }
        assert_eq!(verdict(&program, 56, ARCH_X86_64, [0x0080_0011, 0, 0, 0, 0, 0]), ERROR | 22, "an untraced child");
        assert_eq!(verdict(&program, 56, ARCH_X86_64, [0x11, 0, 0, 0, 0, 0]), ALLOW, "fork");
        assert_eq!(verdict(&program, 120, ARCH_I386, [0x0080_0011, 0, 0, 0, 0, 0]), ERROR | 22);
        assert_eq!(verdict(&program, X32 | 59, ARCH_X86_64, none), ERROR | 38, "execve of x32");
        assert_eq!(verdict(&program, 317, ARCH_X86_64, [1, 8, 0, 0, 0, 0]), ERROR | 22, "a filter with a listener");
        assert_eq!(verdict(&program, 317, ARCH_X86_64, [1, 0, 0, 0, 0, 0]), ALLOW, "any other filter");
    }

    #[test]
    fn jumps_reach_as_far_as_they_must() {
        for table in [table(|call| call.number, TRACE), table(|call| call.number_32, TRACE)] {
            assert!(table.len() <= usize::from(u8::MAX), "{}", table.len());
        }
    }
}
