//! The system calls that the agent looks at, and what they say.

use crate::disguise::Question;
use crate::peek;
use crate::sleep::TimeForm;
use libc::user_regs_struct;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use weir_guest::secret::{self, Secret};

/// What becomes of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// It stops for the agent.
    Always,
    /// It stops if any of these bits of this argument is set.
    IfAny(u32, u32),
    /// It stops if none of these bits of this argument is set.
    UnlessAny(u32, u32),
    /// It does not happen: it would be a way around the agent.
    Never(i32),
    /// The same if any of these bits of this argument is set.
    NeverIfAny(u32, u32, i32),
    /// The same; otherwise it stops if any of those other bits of the argument is set.
    NeverOrIfAny(u32, u32, i32, u32),
}

/// One call: its number in both worlds (0 where it is not), what becomes of it and what it is.
#[derive(Debug)]
pub(crate) struct KnownCall {
    pub(crate) number: u32,
    pub(crate) number_32: u32,
    pub(crate) stop: Stop,
    call: Call,
}

/// The argument with the folder, if any, and that with the path.
type PathAt = (Option<usize>, usize);

#[derive(Debug, Clone, Copy)]
enum Call {
    Execute(PathAt),
    /// With the argument that has the flags.
    Open(PathAt, usize),
    /// With the argument that points to the flags.
    OpenHow(PathAt, usize),
    Create(PathAt),
    Truncate(PathAt),
    /// Another name for a file; with the argument that has the flags.
    Link(PathAt, PathAt, Option<usize>),
    /// With the path of the link; what it leads to is seen when it is gone through.
    Symlink(PathAt),
    Delete(PathAt),
    /// With the argument that has the flags.
    Rename(PathAt, PathAt, Option<usize>),
    /// Looks whether a file is there.
    Look(PathAt),
    /// The argument with the time.
    Sleep(usize),
    /// Arguments: clock, flags, time.
    SleepByClock,
    /// The same with times of 64 bits, as newer 32-bit programs give them.
    SleepByLongClock,
    Mode(PathAt),
    /// The argument with the open file.
    ModeOfOpen(usize),
    Socket,
    Connect,
    Bind,
    Listen,
    SendTo,
    SendMessage,
    SendMessages,
    /// All calls of sockets, of old 32-bit programs.
    OldSocket,
    /// The arguments with the process and with the signal.
    Kill(usize, usize),
    Trace,
    /// Reads or writes the memory of another.
    Invade,
    Session,
    Process,
    Load,
    Reboot,
    /// Names of files mean something else afterwards; by which call.
    Remount(&'static str),
    /// Asks what machine this is; with the argument in which the answer is wanted.
    Ask(Question, usize),
    /// Never stops.
    Refused,
}

const fn entry(number: u32, number_32: u32, stop: Stop, call: Call) -> KnownCall {
    KnownCall { number, number_32, stop, call }
}

/// The flags of `open` that can change a file: write, read and write, create, truncate.
const OPEN_CHANGES: u64 = 0o1 | 0o2 | 0o100 | 0o1000;
const SETUID: u32 = 0o4000;
/// A process that its parent's tracer would not get.
const CLONE_UNTRACED: u32 = 0x0080_0000;
/// A filter that answers in place of ours (`SECCOMP_FILTER_FLAG_NEW_LISTENER`).
const NEW_LISTENER: u32 = 8;

/// The kernel takes no more messages at once.
const MESSAGES_MAX: u64 = 1024;

/// Another tree of files, another set of users, processes or networks.
const NEW_SPACES: u32 = 0x0002_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// The call is about an open file and not about a path.
const EMPTY_PATH: u32 = 0x1000;

/// All of them.
pub(crate) static CALLS: [KnownCall; 69] = [
    // What is answered is not the whole truth; 32-bit programs have other forms of the answers.
    entry(137, 0, Stop::Always, Call::Ask(Question::Disk, 1)),
    entry(138, 0, Stop::Always, Call::Ask(Question::Disk, 1)),
    entry(99, 0, Stop::Always, Call::Ask(Question::Memory, 0)),
    entry(204, 0, Stop::Always, Call::Ask(Question::Processors, 2)),
    // Where shells look for commands.
    entry(4, 195, Stop::Always, Call::Look((None, 0))),
    entry(262, 300, Stop::UnlessAny(3, EMPTY_PATH), Call::Look((Some(0), 1))),
    entry(332, 383, Stop::UnlessAny(2, EMPTY_PATH), Call::Look((Some(0), 1))),
    entry(21, 33, Stop::Always, Call::Look((None, 0))),
    entry(269, 307, Stop::Always, Call::Look((Some(0), 1))),
    entry(439, 439, Stop::Always, Call::Look((Some(0), 1))),
    entry(35, 162, Stop::Always, Call::Sleep(0)),
    entry(230, 267, Stop::Always, Call::SleepByClock),
    entry(0, 407, Stop::Always, Call::SleepByLongClock),
    entry(59, 11, Stop::Always, Call::Execute((None, 0))),
    entry(322, 358, Stop::Always, Call::Execute((Some(0), 1))),
    entry(2, 5, Stop::Always, Call::Open((None, 0), 1)),
    entry(257, 295, Stop::Always, Call::Open((Some(0), 1), 2)),
    entry(437, 437, Stop::Always, Call::OpenHow((Some(0), 1), 2)),
    entry(85, 8, Stop::Always, Call::Create((None, 0))),
    // Truncating a file that is open for writing says nothing new; the second is the 64-bit form for 32-bit programs.
    entry(76, 92, Stop::Always, Call::Truncate((None, 0))),
    entry(0, 193, Stop::Always, Call::Truncate((None, 0))),
    entry(86, 9, Stop::Always, Call::Link((None, 0), (None, 1), None)),
    entry(265, 303, Stop::Always, Call::Link((Some(0), 1), (Some(2), 3), Some(4))),
    entry(88, 83, Stop::Always, Call::Symlink((None, 1))),
    entry(266, 304, Stop::Always, Call::Symlink((Some(1), 2))),
    entry(87, 10, Stop::Always, Call::Delete((None, 0))),
    entry(263, 301, Stop::Always, Call::Delete((Some(0), 1))),
    entry(82, 38, Stop::Always, Call::Rename((None, 0), (None, 1), None)),
    entry(264, 302, Stop::Always, Call::Rename((Some(0), 1), (Some(2), 3), None)),
    entry(316, 353, Stop::Always, Call::Rename((Some(0), 1), (Some(2), 3), Some(4))),
    entry(90, 15, Stop::IfAny(1, SETUID), Call::Mode((None, 0))),
    entry(91, 94, Stop::IfAny(1, SETUID), Call::ModeOfOpen(0)),
    entry(268, 306, Stop::IfAny(2, SETUID), Call::Mode((Some(0), 1))),
    entry(452, 452, Stop::IfAny(2, SETUID), Call::Mode((Some(0), 1))),
    entry(41, 359, Stop::Always, Call::Socket),
    entry(42, 362, Stop::Always, Call::Connect),
    entry(49, 361, Stop::Always, Call::Bind),
    entry(50, 363, Stop::Always, Call::Listen),
    // By the length of the address, not by where it is: half of a pointer may be zero.
    entry(44, 369, Stop::IfAny(5, u32::MAX), Call::SendTo),
    entry(46, 370, Stop::Always, Call::SendMessage),
    entry(307, 345, Stop::Always, Call::SendMessages),
    entry(0, 102, Stop::Always, Call::OldSocket),
    // kill, tkill, tgkill, and the two that bring something along.
    entry(62, 37, Stop::Always, Call::Kill(0, 1)),
    entry(200, 238, Stop::Always, Call::Kill(0, 1)),
    entry(234, 270, Stop::Always, Call::Kill(0, 2)),
    entry(129, 178, Stop::Always, Call::Kill(0, 1)),
    entry(297, 335, Stop::Always, Call::Kill(0, 2)),
    entry(101, 26, Stop::Always, Call::Trace),
    entry(310, 347, Stop::Always, Call::Invade),
    entry(311, 348, Stop::Always, Call::Invade),
    entry(112, 66, Stop::Always, Call::Session),
    entry(157, 172, Stop::Always, Call::Process),
    entry(175, 128, Stop::Always, Call::Load),
    entry(313, 350, Stop::Always, Call::Load),
    entry(169, 88, Stop::Always, Call::Reboot),
    // What is asked of io_uring is no system call, and would be seen by nobody.
    entry(425, 425, Stop::Never(libc::ENOSYS), Call::Refused),
    // Its flags are in memory, where no filter sees them; everybody falls back to the old one.
    entry(435, 435, Stop::Never(libc::ENOSYS), Call::Refused),
    entry(56, 120, Stop::NeverOrIfAny(0, CLONE_UNTRACED, libc::EINVAL, NEW_SPACES), Call::Remount("clone")),
    entry(272, 310, Stop::IfAny(0, NEW_SPACES), Call::Remount("unshare")),
    entry(308, 346, Stop::Always, Call::Remount("setns")),
    entry(165, 21, Stop::Always, Call::Remount("mount")),
    entry(429, 429, Stop::Always, Call::Remount("mount")),
    entry(166, 52, Stop::Always, Call::Remount("umount")),
    entry(0, 22, Stop::Always, Call::Remount("umount")),
    entry(161, 61, Stop::Always, Call::Remount("chroot")),
    entry(155, 217, Stop::Always, Call::Remount("pivot_root")),
    entry(317, 354, Stop::NeverIfAny(1, NEW_LISTENER, libc::EINVAL), Call::Refused),
    // The same file, opened by its handle instead of its name: for root alone.
    entry(304, 342, Stop::Never(libc::EPERM), Call::Refused),
    // Signals by a descriptor of a process.
    entry(424, 424, Stop::Never(libc::ENOSYS), Call::Refused),
];

/// What a process is about to do. Paths of files that it changes are real ones, without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    /// As it was said, and the real file.
    Execute(String, String),
    /// Only of files that tell something.
    Read(String),
    /// The same of a file whose name tells nothing; its real name may. And whether it must be a folder.
    See(PathBuf, bool),
    /// In a way that can change it, and whether it can be read as well: what comes back is an open file.
    Open(String, bool),
    Write(String),
    /// A file gets this other name.
    Link(Option<String>, String),
    Delete(String),
    Rename(String, String),
    /// Each gets the other's name.
    Swap(String, String),
    Setuid(String),
    Connect(SocketAddr),
    Send(Vec<SocketAddr>),
    Bind(u64, SocketAddr),
    Listen(u64),
    Kill {
        to: i32,
        signal: i32,
    },
    /// Whether a command of this name is there.
    Look(String),
    /// Where the time is, and the clock if that is a point of time and not a span.
    Sleep {
        at: u64,
        until: Option<i32>,
        form: TimeForm,
    },
    /// What machine this is; where the answer is wanted.
    Ask(Question, u64),
    /// Another, or itself.
    Trace(Option<i32>),
    Session,
    Name(String),
    Load,
    Reboot,
    Remount(&'static str),
    /// Which packets it wants to hear.
    Sniff(&'static str),
}

/// Reads what a stopped process is about to do; none if that tells nothing. `short` is a call of the 32-bit world, which
/// 64-bit programs can make too.
pub(crate) fn deed(pid: i32, registers: &user_regs_struct, short: bool) -> Option<Deed> {
    let number = registers.orig_rax as u32;
    let entry = CALLS.iter().find(|entry| number == if short { entry.number_32 } else { entry.number })?;
    let arguments = if short {
        [registers.rbx, registers.rcx, registers.rdx, registers.rsi, registers.rdi, registers.rbp]
            .map(|r| r & 0xffff_ffff)
    } else {
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9]
    };
    let path = |(folder, path): PathAt| {
        let folder = folder.map(|at| arguments[at] as i32);
        peek::path(pid, folder, arguments[path])
    };
    let said = |(folder, path): PathAt| peek::said(pid, folder.map(|at| arguments[at] as i32), arguments[path]);
    let real = |at: PathAt, follows: bool| said(at).map(|path| peek::real(pid, &path, follows));
    let open = |at: PathAt, flags: u64| match flags & OPEN_CHANGES != 0 {
        true => real(at, true).map(|path| Deed::Open(path, flags & libc::O_ACCMODE as u64 == libc::O_RDWR as u64)),
        false => said(at).map(|said| reads(peek::plain(&said), said, flags)),
    };
    match entry.call {
        Call::Execute(at) => Some(Deed::Execute(path(at)?, real(at, true)?)),
        Call::Open(at, flags) => open(at, arguments[flags]),
        Call::OpenHow(at, how) => open(at, peek::word(pid, arguments[how])?),
        Call::Create(at) => real(at, true).map(|path| Deed::Open(path, false)),
        Call::Truncate(at) => real(at, true).map(Deed::Write),
        Call::Link(from, to, flags) => {
            let has = |flag: i32| flags.is_some_and(|flags| arguments[flags] & flag as u64 != 0);
            // A file that is open has no path here.
            let open = || peek::open_path(pid, arguments[from.0.filter(|_| has(libc::AT_EMPTY_PATH))?] as i32);
            Some(Deed::Link(real(from, has(libc::AT_SYMLINK_FOLLOW)).or_else(open), real(to, false)?))
        }
        Call::Symlink(at) => real(at, false).map(Deed::Write),
        Call::Delete(at) => real(at, false).map(Deed::Delete),
        Call::Rename(from, to, flags) => {
            let swaps = flags.is_some_and(|flags| arguments[flags] & u64::from(libc::RENAME_EXCHANGE) != 0);
            let deed = if swaps { Deed::Swap } else { Deed::Rename };
            Some(deed(real(from, false)?, real(to, false)?))
        }
        Call::Look(at) => path(at).filter(|path| command(path).is_some()).map(Deed::Look),
        Call::Ask(question, at) => Some(Deed::Ask(question, arguments[at])),
        Call::Sleep(at) => Some(Deed::Sleep { at: arguments[at], until: None, form: TimeForm::of(short) }),
        Call::SleepByClock | Call::SleepByLongClock => {
            let until = (arguments[1] & libc::TIMER_ABSTIME as u64 != 0).then_some(arguments[0] as i32);
            let form = TimeForm::of(short && matches!(entry.call, Call::SleepByClock));
            Some(Deed::Sleep { at: arguments[2], until, form })
        }
        Call::Mode(at) => real(at, true).map(Deed::Setuid),
        Call::ModeOfOpen(at) => peek::open_path(pid, arguments[at] as i32).map(Deed::Setuid),
        Call::OldSocket => {
            let more = peek::words_32(pid, arguments[1])?;
            socket(pid, arguments[0], more, true)
        }
        Call::Socket => socket(pid, 1, arguments, short),
        Call::Bind => socket(pid, 2, arguments, short),
        Call::Connect => socket(pid, 3, arguments, short),
        Call::Listen => socket(pid, 4, arguments, short),
        Call::SendTo => socket(pid, 11, arguments, short),
        Call::SendMessage => socket(pid, 16, arguments, short),
        Call::SendMessages => socket(pid, 20, arguments, short),
        Call::Kill(to, signal) => Some(Deed::Kill { to: arguments[to] as i32, signal: arguments[signal] as i32 }),
        Call::Trace => trace(arguments[0], arguments[1] as i32),
        Call::Invade => Some(Deed::Trace(Some(arguments[0] as i32))),
        Call::Session => Some(Deed::Session),
        Call::Process => match arguments[0] as i32 {
            libc::PR_SET_NAME => {
                peek::text(pid, arguments[1]).map(|name| name.chars().take(15).collect()).map(Deed::Name)
            }
            _ => None,
        },
        Call::Load => Some(Deed::Load),
        Call::Reboot => Some(Deed::Reboot),
        Call::Remount(how) => Some(Deed::Remount(how)),
        Call::Refused => None,
    }
}

/// The command that a path would be, if it is one of a folder of commands. Names with a dot are files that interpreters look for beside
/// themselves.
pub(crate) fn command(path: &str) -> Option<&str> {
    let folders = ["/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"];
    let name = folders.iter().find_map(|folder| path.strip_prefix(folder))?;
    (!name.is_empty() && !name.contains(['/', '.'])).then_some(name)
}

/// Opening a file only to read it.
fn reads(path: String, said: PathBuf, flags: u64) -> Deed {
    let is_folder = flags & libc::O_DIRECTORY as u64 != 0;
    if tells(&path, is_folder) { Deed::Read(path) } else { Deed::See(said, is_folder) }
}

/// Whether it tells something that a file is opened. Whoever goes through all folders, as `find` does, opens those of secrets too, and in a way
/// that opens only folders: no file was read.
pub(crate) fn tells(path: &str, is_folder: bool) -> bool {
    secret::of(path).is_some_and(|kept| !(is_folder && matches!(kept, Secret::Passwords | Secret::Keys)))
}

/// Whether only root can have put something at this path, so that it is no way to anything else.
pub(crate) fn is_of_the_system(path: &Path) -> bool {
    let is_up = |part: Component<'_>| part == Component::ParentDir;
    ["/usr", "/lib", "/lib64", "/bin", "/sbin"].iter().any(|top| path.starts_with(top)) && !path.components().any(is_up)
}

fn trace(request: u64, pid: i32) -> Option<Deed> {
    const ATTACH: u64 = libc::PTRACE_ATTACH as u64;
    const SEIZE: u64 = libc::PTRACE_SEIZE as u64;
    match request {
        0 => Some(Deed::Trace(None)),
        ATTACH | SEIZE => Some(Deed::Trace(Some(pid))),
        _ => None,
    }
}

/// A call of sockets, by the number that `socketcall` has for it.
fn socket(pid: i32, call: u64, arguments: [u64; 6], short: bool) -> Option<Deed> {
    match call {
        1 => wire(arguments[0], arguments[1], arguments[2]).map(Deed::Sniff),
        2 => address(pid, arguments[1], arguments[2]).map(|to| Deed::Bind(arguments[0], to)),
        3 => address(pid, arguments[1], arguments[2]).map(Deed::Connect),
        4 => Some(Deed::Listen(arguments[0])),
        11 => address(pid, arguments[4], arguments[5]).map(|to| Deed::Send(vec![to])),
        16 => messages(pid, arguments[1], 1, short),
        20 => messages(pid, arguments[1], arguments[2].min(MESSAGES_MAX), short),
        _ => None,
    }
}

/// To whom messages go that are described in a row. Each begins with its address and the address's length.
fn messages(pid: i32, at: u64, count: u64, short: bool) -> Option<Deed> {
    let step = if short { 32 } else { 64 };
    let to = |number: u64| {
        let (name, length) = peek::message_name(pid, at.checked_add(number * step)?, short)?;
        address(pid, name, length)
    };
    let all: Vec<SocketAddr> = (0..count).filter_map(to).collect();
    (!all.is_empty()).then_some(Deed::Send(all))
}

/// A socket that hears more than what is meant for its process; `ping` has one for its answers only.
fn wire(domain: u64, kind: u64, protocol: u64) -> Option<&'static str> {
    const RAW: u64 = libc::SOCK_RAW as u64;
    const ICMP: u64 = libc::IPPROTO_ICMP as u64;
    const ICMP_6: u64 = libc::IPPROTO_ICMPV6 as u64;
    match (domain as i32, kind & 0xf, protocol) {
        (libc::AF_PACKET, _, _) => Some("all packets"),
        (libc::AF_INET | libc::AF_INET6, RAW, ICMP | ICMP_6) => None,
        (libc::AF_INET | libc::AF_INET6, RAW, _) => Some("all packets of a protocol"),
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
    fn opening_for_reading_tells_only_of_secrets() {
        let told = |path: &str, flags| reads(path.to_owned(), path.into(), flags) == Deed::Read(path.into());
        assert!(told("/etc/shadow", 0));
        assert!(!told("/etc/passwd", 0o2_000_000));
        let folder = 0o200_000;
        assert!(!told("/etc/sudoers.d", folder), "its files may be read, and are told then");
        assert!(!told("/home/user/.mozilla/firefox/k3v9x1ab.default", folder));
        assert!(told("/sys/class/dmi/id", folder), "its names tell enough");
        assert_eq!(reads("/tmp/x".into(), "/home/../tmp/x".into(), folder), Deed::See("/home/../tmp/x".into(), true));
        let of_system = |path: &str| is_of_the_system(Path::new(path));
        assert!(of_system("/usr/lib/python3/x.py") && of_system("/lib/x.so"));
        assert!(!of_system("/usr/../home/user/x") && !of_system("/library/x") && !of_system("/etc/x"));
        assert_eq!((trace(0, 9), trace(1, 9)), (Some(Deed::Trace(None)), None));
        assert_eq!(trace(16, 9), Some(Deed::Trace(Some(9))));
    }

    #[test]
    fn a_socket_for_the_whole_wire_is_told_from_others() {
        assert_eq!(wire(17, 3, 0x0300), Some("all packets"));
        assert_eq!(wire(2, 3, 6), Some("all packets of a protocol"));
        assert_eq!((wire(2, 0x0008_0003, 1), wire(10, 3, 58)), (None, None), "ping");
        assert_eq!((wire(2, 1, 0), wire(2, 2, 1), wire(1, 1, 0), wire(16, 3, 0)), (None, None, None, None));
    }

    #[test]
    fn every_message_of_a_row_is_read() {
        let me = std::process::id() as i32;
        let address = |port: u8| [2, 0, 0, port, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0_u8];
        let (first, last) = (address(53), address(80));
        // Name, its length, and what else a message has; the one in the middle has no name.
        let mut row = [0_u64; 24];
        (row[0], row[1], row[16], row[17]) = (first.as_ptr() as u64, 16, last.as_ptr() as u64, 16);
        let sent = |count| messages(me, row.as_ptr() as u64, count, false);
        let (first, last) = ("10.1.2.3:53".parse().unwrap(), "10.1.2.3:80".parse().unwrap());
        assert_eq!(sent(3), Some(Deed::Send(vec![first, last])));
        assert_eq!(sent(1), Some(Deed::Send(vec![first])));
        assert_eq!(messages(me, 8, 3, false), None);
    }

    #[test]
    fn commands_are_told_from_other_files() {
        for (path, expected) in [
            ("/usr/bin/curl", Some("curl")),
            ("/bin/sh", Some("sh")),
            ("/usr/bin/pyvenv.cfg", None),
            ("/usr/bin/lib/python3", None),
            ("/usr/lib/x", None),
            ("/bin/", None),
        ] {
            assert_eq!(command(path), expected, "{path}");
        }
    }

    #[test]
    fn numbers_are_there_once() {
        for world in [|entry: &KnownCall| entry.number, |entry: &KnownCall| entry.number_32] {
            let mut numbers: Vec<u32> = CALLS.iter().map(world).filter(|number| *number != 0).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count);
        }
    }
}
