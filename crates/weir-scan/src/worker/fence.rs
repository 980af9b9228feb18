//! The fence around a worker: what it may use, and what it may ask of the kernel.
//!
//! Memory, processor time, files and core dumps are bounded by rlimits. Two seccomp filters follow: one kills the process for calls that no
//! harmless reader of mail makes (starting a program, opening a socket, tracing); the other allows what is needed to read a file that was
//! handed over, to allocate memory and to answer, and refuses everything else with EPERM. Neither can be removed again. Linux on x86-64 and
//! aarch64.

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Processor time of one worker in its whole life. The pool retires it long before.
pub const PROCESSOR_MAX: Duration = Duration::from_secs(3600);
/// Three standard files, the message, and one more.
const FILES_MAX: u64 = 8;

/// Raises the fence around this process. `memory` is its address space in bytes.
pub fn raise(memory: u64) -> Result<(), FenceError> {
    let limits = [
        (Resource::As, memory),
        (Resource::Cpu, PROCESSOR_MAX.as_secs()),
        (Resource::Nofile, FILES_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    limit(&limits)?;
    // In this order: the filter that refuses would refuse another filter. Both give up new privileges for good.
    for filter in [deadly()?, allowed(std::process::id())?] {
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| FenceError::Seccomp(error.to_string()))?;
    }
    Ok(())
}

/// Sets limits of this process that it cannot raise again.
pub fn limit(limits: &[(Resource, u64)]) -> Result<(), FenceError> {
    for (resource, most) in limits {
        let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
        setrlimit(*resource, limit).map_err(|error| FenceError::Rlimit(format!("{resource:?}: {error}")))?;
    }
    Ok(())
}

/// Reading, memory, time, randomness, the socket, and the ways to end.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
];

/// To start something, to reach somebody, to look into another process, to load code.
const DEADLY: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_bpf,
    libc::SYS_mount,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_unshare,
    libc::SYS_setns,
];

/// For the process of this number.
fn allowed(pid: u32) -> Result<BpfProgram, FenceError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Memory, but none that holds code.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        let data = SeccompCondition::new(2, SeccompCmpArgLen::Dword, executable, 0).map_err(backend)?;
        rules.insert(call, vec![SeccompRule::new(vec![data]).map_err(backend)?]);
    }
    // Signals, but only to itself: that is how a process aborts.
    let itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, pid.into()).map_err(backend)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![itself]).map_err(backend)?]);
    compiled(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

fn deadly() -> Result<BpfProgram, FenceError> {
    let rules = DEADLY.iter().map(|call| (*call, Vec::new())).collect();
    compiled(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// A filter of system calls for this machine.
pub fn compiled(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, FenceError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(backend)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, machine).map_err(backend)?;
    filter.try_into().map_err(backend)
}

/// What the maker of filters says.
pub fn backend(error: impl std::fmt::Display) -> FenceError {
    FenceError::Seccomp(error.to_string())
}

/// A fence that does not stand; then nothing is read or started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// A limit was refused.
    #[error("a limit of the process cannot be set: {0}")]
    Rlimit(String),
    /// A filter was refused.
    #[error("the system call filter of the process cannot be set: {0}")]
    Seccomp(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do: as much of its filter machine as these filters use.
    fn runs(program: &BpfProgram, call: i64, first: u64) -> u32 {
        let words = {
            let mut data = Vec::new();
            let arch: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
            data.extend((call as u32).to_le_bytes());
            data.extend(arch.to_le_bytes());
            data.extend(0u64.to_le_bytes());
            data.extend(first.to_le_bytes());
            data.resize(64, 0);
            data
        };
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    let from = step.k as usize;
                    value = u32::from_le_bytes(words[from..from + 4].try_into().unwrap());
                }
                0x54 => value &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += jump(value == step.k),
                0x25 => at += jump(value > step.k),
                0x35 => at += jump(value >= step.k),
                0x06 => return step.k,
                code => panic!("an instruction of its own: {code:#x}"),
            }
        }
    }

    #[test]
    fn signals_go_to_itself_alone() {
        const ALLOW: u32 = 0x7fff_0000;
        const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;
        let filter = allowed(4711).unwrap();
        assert_eq!(runs(&filter, libc::SYS_tgkill, 4711), ALLOW);
        assert_eq!(runs(&filter, libc::SYS_tgkill, 1), REFUSE);
        assert_eq!(runs(&filter, libc::SYS_kill, 4711), REFUSE);
        assert_eq!(runs(&filter, libc::SYS_read, 0), ALLOW);
        assert_eq!(runs(&filter, libc::SYS_openat, 0), REFUSE);
        assert_eq!(runs(&deadly().unwrap(), libc::SYS_execve, 0), 0x8000_0000);
    }
}
