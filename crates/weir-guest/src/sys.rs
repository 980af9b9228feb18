//! The two system calls that have no safe wrapper.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Asks the kernel to use what was written to its pool of randomness at once.
pub(crate) fn reseed(urandom: &File) {
    // From linux/random.h: _IO('R', 0x07).
    const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
    // SAFETY: the call takes no argument and touches no memory of ours; the file is open.
    unsafe { libc::ioctl(urandom.as_raw_fd(), RNDRESEEDCRNG) };
}

/// Lets a stopped process go on, with this signal, which may be a real-time one; `to_exit` stops it at the end of its
/// system call again.
pub(crate) fn go_on(pid: i32, signal: i32, to_exit: bool) {
    let request = if to_exit { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
    // SAFETY: with these requests nothing of our memory is touched; a process that is gone is an error that does not matter.
    unsafe { libc::ptrace(request, pid, 0_usize, signal as usize) };
}
