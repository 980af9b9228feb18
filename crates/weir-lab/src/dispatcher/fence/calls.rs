//! Which system calls a plugin may make.
//!
//! A plugin is any program, so this forbids rather than allows: calls that reach the network or other processes kill the process at once
//! (and this is reported); calls that a harmless program may try, and can do without, are refused. Calls of other instruction sets kill the
//! process too, because the same call has another number there.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, sock_filter,
};
use std::collections::BTreeMap;
use weir_scan::worker::fence::{FenceError, backend, compiled};

/// Calls that look into another process, change the machine, or load code into its kernel.
const DEADLY: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_open_by_handle_at,
];

/// Calls that some programs try, and can do without.
const REFUSED: &[i64] = &[
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_unshare,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_lookup_dcookie,
];

/// Calls that an older kernel would not know: programs then use others that can be checked.
const UNKNOWN: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// New namespaces, as flags of `clone`.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// The filters, to be applied when there may be no memory left to make them.
pub(super) fn filters() -> Result<[BpfProgram; 4], FenceError> {
    Ok([foreign(), deadly()?, refused()?, unknown()?])
}

/// Filters the calls of this thread, and of whatever it becomes or starts, for good.
pub(super) fn apply(filters: &[BpfProgram]) -> Result<(), FenceError> {
    filters.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(backend))
}

/// On x86-64 the calls of x32 have the same architecture and a bit of their own.
fn foreign() -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    const LOAD: u16 = 0x20;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const KILL: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    vec![step(LOAD, 0, 0, 0), step(AT_LEAST, 0, 1, 0x4000_0000), step(RETURN, 0, 0, KILL), step(RETURN, 0, 0, ALLOW)]
}

fn deadly() -> Result<BpfProgram, FenceError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DEADLY.iter().map(|call| (*call, Vec::new())).collect();
    let network = [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET, libc::AF_VSOCK];
    let family = |family: libc::c_int| when(0, SeccompCmpOp::Eq, family as u64);
    rules.insert(libc::SYS_socket, network.into_iter().map(family).collect::<Result<_, _>>()?);
    compiled(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

fn refused() -> Result<BpfProgram, FenceError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    // Anything except sockets of this machine: a program that asks for its addresses is told that there are none.
    let other = when(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?;
    rules.insert(libc::SYS_socket, vec![other]);
    let mut clones = Vec::new();
    for bit in (0..64).map(|bit| 1_u64 << bit).filter(|bit| NAMESPACES & bit != 0) {
        clones.push(when(0, SeccompCmpOp::MaskedEq(bit), bit)?);
    }
    rules.insert(libc::SYS_clone, clones);
    // Typing into somebody's terminal.
    let typing = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::TIOCSTI).map_err(backend)?;
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(vec![typing]).map_err(backend)?]);
    compiled(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

fn unknown() -> Result<BpfProgram, FenceError> {
    let rules = UNKNOWN.iter().map(|call| (*call, Vec::new())).collect();
    compiled(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn when(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, FenceError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value).map_err(backend)?;
    SeccompRule::new(vec![condition]).map_err(backend)
}
