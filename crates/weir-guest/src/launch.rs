//! The process that becomes the sample: it lets itself be traced, gives up its privileges, and executes the sample.

use crate::filter;
use crate::program;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::ptrace;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Gid, Uid, execv, setgid, setgroups, setsid, setuid};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};

/// How long the machine seems to have been on before the sample came.
const UPTIME_S: u64 = 9 * 86_400 + 5 * 3_600 + 1_260;

/// Never returns: the process becomes the sample, or fails and ends.
pub(crate) fn run(user: &str, program: &str) {
    let why = match prepare(user.parse().unwrap_or(65_534)) {
        Ok(()) => execute(program),
        Err(errno) => errno,
    };
    let _ = writeln!(std::io::stderr(), "{program} cannot be run: {why}");
    std::process::exit(127);
}

fn prepare(user: u32) -> nix::Result<()> {
    let _ = std::fs::write("/proc/self/oom_score_adj", "800");
    ptrace::traceme()?;
    // While we are stopped, the agent says which events it wants to hear of.
    raise(Signal::SIGSTOP)?;
    let _ = setsid();
    age();
    for (resource, most) in [
        (Resource::RLIMIT_NPROC, 200),
        (Resource::RLIMIT_NOFILE, 1024),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 64 << 20),
    ] {
        setrlimit(resource, most, most)?;
    }
    if user != 0 {
        setgroups(&[])?;
        setgid(Gid::from_raw(user))?;
        setuid(Uid::from_raw(user))?;
    }
    seccompiler::apply_filter(&filter::program()).map_err(|_| nix::errno::Errno::EINVAL)
}

/// Makes the machine look as if it had been on for days. If the kernel cannot do this, the sample sees the true uptime.
fn age() {
    let new_time = CloneFlags::from_bits_retain(0x80);
    let offsets = format!("monotonic {UPTIME_S} 0\nboottime {UPTIME_S} 0\n");
    if unshare(new_time).is_ok() && std::fs::write("/proc/self/timens_offsets", offsets).is_ok() {
        // Otherwise only our children would be in the new namespace, and `vfork`, which shares memory with the child, would fail.
        let _ = File::open("/proc/self/ns/time_for_children").map(|space| setns(space, new_time));
    }
}

/// Scripts that name no interpreter are given to the shell, and compiled Python to Python, if it is of the same version.
fn execute(program: &str) -> nix::errno::Errno {
    let Ok(path) = CString::new(program) else { return nix::errno::Errno::EINVAL };
    let Err(errno) = execv(&path, &[&path]);
    if errno != nix::errno::Errno::ENOEXEC {
        // Its interpreter is missing, and no other one would run it in the same way.
        return errno;
    }
    let mut head = [0; 16];
    let length = File::open(program).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = &head[..length];
    if program::is_python(head) {
        let python = c"/usr/bin/python3";
        return match program::is_of_our_python(head) {
            true => {
                let Err(errno) = execv(python, &[c"python3", path.as_c_str()]);
                errno
            }
            false => errno,
        };
    }
    if !program::is_elf(head) {
        let shell = c"/bin/sh";
        let Err(errno) = execv(shell, &[c"sh", path.as_c_str()]);
        return errno;
    }
    errno
}
