//! The fence around a plugin: what it sees, what it may use, and what it may ask of the kernel.
//!
//! A plugin is started by this very program (`weir fence`), in three steps, each a process that becomes the next:
//!
//! ```text
//! Enter    joins its control groups; stands back behind the lab; dies with the dispatcher; makes namespaces (bubblewrap does it where it works)
//! Init     only without bubblewrap: the first process of the new namespace, which makes the view and takes orphans in
//! Inside   sets limits, gives up its user, filters its system calls, and becomes the plugin
//! ```
//!
//! Inside the fence there is no network, no other process of the machine, and no file except those of the view. All processes of a plugin
//! end when its first process is killed, whatever they have done to hide. A machine that can make no namespaces runs no plugin: there is no
//! weaker fence to fall back to.

mod calls;
mod view;
pub(super) mod watch;

pub(super) use view::View;

use crate::plugin::{Limits, Plugin};
use rustix::process::{Resource, Signal, WaitOptions};
use rustix::thread::{CapabilitiesSecureBits, UnshareFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_scan::worker::fence::limit;

/// User ids that nobody else has: if possible, every run of a plugin has its own.
const USERS_FROM: u32 = 2_100_000_000;
const USERS: u32 = 1_000_000;
/// Used where such user ids do not exist.
const NOBODY: u32 = 65_534;
/// The priority of a plugin where no control group limits its share: one of its processes gets a third of what a thread of ours gets.
const NICE: i32 = 5;
/// Open files of one process.
const FILES_MAX: u64 = 1024;
const BUBBLEWRAP: &str = "/usr/bin/bwrap";

/// How a plugin is sandboxed, in the form that one step passes to the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FenceSpec {
    step: Step,
    maker: Maker,
    /// This program.
    weir: PathBuf,
    view: View,
    /// The user that it becomes; None to keep its own.
    user: Option<u32>,
    /// Control groups to enter.
    groups: Vec<PathBuf>,
    memory_bytes: u64,
    disk_bytes: u64,
    processor_s: u64,
    processes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Enter,
    Init,
    Inside,
}

/// The way in which the namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Maker {
    Bubblewrap,
    Ourselves,
}

impl Maker {
    /// The better way of those that work here; it is found out once, by trying.
    pub(super) fn of_this_machine() -> Result<Maker, NoFence> {
        static FOUND: OnceLock<Result<Maker, NoFence>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                [Maker::Bubblewrap, Maker::Ourselves].into_iter().find(|maker| maker.works()).ok_or(NoFence)
            })
            .clone()
    }

    fn works(self) -> bool {
        let Ok(weir) = itself() else { return false };
        let view = View::new(&weir, Path::new(""), Path::new("/usr"), &[]);
        let mut spec = FenceSpec::new(self, weir, view, &Limits::default());
        spec.view.output = None;
        // This program itself: a container may have no other.
        let program = [spec.weir.clone().into_os_string(), "--help".into()];
        let mut command = spec.command(&program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", PATH);
        command.status().is_ok_and(|status| status.success())
    }
}

/// Where programs are looked for.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// This machine cannot sandbox anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine cannot fence plugins in, so it runs none: install bubblewrap, or let Weir make namespaces (run it as root, or allow user namespaces)"
)]
pub struct NoFence;

impl FenceSpec {
    /// For one run of a plugin in a job folder.
    pub(super) fn of(plugin: &Plugin, job: &Path, maker: Maker) -> io::Result<FenceSpec> {
        let weir = itself()?;
        let extra: Vec<&Path> = plugin.reads.iter().chain(&plugin.sockets).map(PathBuf::as_path).collect();
        let view = View::new(&weir, &plugin.folder, job, &extra);
        Ok(FenceSpec::new(maker, weir, view, &plugin.limits))
    }

    fn new(maker: Maker, weir: PathBuf, mut view: View, limits: &Limits) -> FenceSpec {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        view.tmp_bytes = limits.disk_bytes.min(limits.memory_bytes);
        let root = rustix::process::geteuid().is_root();
        let user = root.then(|| USERS_FROM + RUNS.fetch_add(1, Ordering::Relaxed) % USERS);
        FenceSpec {
            step: Step::Enter,
            maker,
            weir,
            view,
            user,
            groups: Vec::new(),
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            // Several threads may use it up faster than the clock runs.
            processor_s: limits.time.as_secs().max(1).saturating_mul(8),
            processes: limits.processes,
        }
    }

    pub(super) fn in_groups(self, groups: Vec<PathBuf>) -> FenceSpec {
        FenceSpec { groups, ..self }
    }

    /// The command that starts the program in the sandbox. Its environment is that of the command.
    pub(super) fn command(&self, program: &[OsString]) -> Command {
        let mut command = Command::new(&self.weir);
        if self.step == Step::Enter {
            command.env_clear();
        }
        for argument in self.arguments(program) {
            command.arg(argument);
        }
        #[cfg(test)]
        command.env(tests::STANDS_FOR, tests::packed(self, program));
        command
    }

    #[cfg(not(test))]
    fn arguments(&self, program: &[OsString]) -> Vec<OsString> {
        let spec = serde_json::to_string(self).unwrap_or_default();
        let own = ["fence".into(), spec.into(), "--".into()];
        own.into_iter().chain(program.iter().cloned()).collect()
    }

    /// Tests of this crate have no `weir`, so the test program takes its place.
    #[cfg(test)]
    fn arguments(&self, _: &[OsString]) -> Vec<OsString> {
        ["--exact", "dispatcher::fence::tests::stands_for_weir", "--nocapture"].map(Into::into).to_vec()
    }

    /// Takes this process one step further; returns the code to end with, or why it could not be done.
    pub fn run(self, program: &[OsString]) -> Result<u8, FenceFailure> {
        match self.step {
            Step::Enter => self.enter(program),
            Step::Init => self.init(program),
            Step::Inside => Err(self.inside(program)),
        }
    }

    fn enter(self, program: &[OsString]) -> Result<u8, FenceFailure> {
        die_with_parent()?;
        let _ = rustix::process::nice(NICE);
        // Folders that are made on the way must be accessible to the plugin's user.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        for group in &self.groups {
            std::fs::write(group.join("cgroup.procs"), "0").map_err(|error| failed("a control group", error))?;
        }
        match self.maker {
            Maker::Bubblewrap => {
                let inside = FenceSpec { step: Step::Inside, ..self };
                let arguments = inside.view.bubblewrap(inside.user.is_some());
                let mut command = Command::new(BUBBLEWRAP);
                command.args(arguments).arg("--").arg(&inside.weir).args(inside.arguments(program));
                #[cfg(test)]
                command.env(tests::STANDS_FOR, tests::packed(&inside, program));
                Err(failed("bubblewrap", command.exec()))
            }
            Maker::Ourselves => {
                unshare()?;
                let init = FenceSpec { step: Step::Init, ..self };
                let status = init.command(program).status().map_err(|error| failed("the first process", error))?;
                Ok(code(status))
            }
        }
    }

    fn init(self, program: &[OsString]) -> Result<u8, FenceFailure> {
        die_with_parent()?;
        self.view.make().map_err(|error| failed("the view", error))?;
        let inside = FenceSpec { step: Step::Inside, ..self };
        let child = inside.command(program).spawn().map_err(|error| failed("the plugin", error))?;
        let child = child.id().cast_signed();
        loop {
            // Processes that lost their parent are our children too, and must not stay as zombies.
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == child => {
                    return Ok(code(ExitStatus::from_raw(status.as_raw())));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("the plugin", error.into())),
            }
        }
    }

    /// Executes the program.
    fn inside(&self, program: &[OsString]) -> FenceFailure {
        if let Err(error) = self.humble() {
            return error;
        }
        let [name, arguments @ ..] = program else {
            return failed("the plugin", io::Error::other("no program is named"));
        };
        let mut command = Command::new(name);
        command.args(arguments);
        #[cfg(test)]
        command.env_remove(tests::STANDS_FOR);
        let error = command.exec();
        FenceFailure::Start(name.to_string_lossy().into_owned(), error)
    }

    fn humble(&self) -> Result<(), FenceFailure> {
        let limits = [
            (Resource::Core, 0),
            (Resource::Nofile, FILES_MAX),
            (Resource::Fsize, self.disk_bytes),
            (Resource::Cpu, self.processor_s),
            (Resource::Nproc, self.processes.into()),
        ];
        let refused = |error: weir_scan::worker::fence::FenceError| FenceFailure::Filter(error.to_string());
        let filters = calls::filters().map_err(refused)?;
        limit(&limits).map_err(refused)?;
        match self.user {
            Some(user) => {
                become_user(user).or_else(|_| become_user(NOBODY)).map_err(|error| failed("the user", error))?;
            }
            None if rustix::process::geteuid().is_root() => {
                // It is root only in a user namespace; but even that is not wanted.
                let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
                let _ = rustix::thread::set_capabilities_secure_bits(bits);
            }
            None => {}
        }
        // Last but one: this process itself may use more than what it becomes.
        limit(&[(Resource::As, self.memory_bytes)]).map_err(refused)?;
        calls::apply(&filters).map_err(refused)
    }
}

/// This program, which must be a file that can be seen from inside.
fn itself() -> io::Result<PathBuf> {
    std::env::current_exe()
}

fn die_with_parent() -> Result<(), FenceFailure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed("the process", error.into()))
}

/// Creates new namespaces; without being root, inside a new user namespace.
fn unshare() -> Result<(), FenceFailure> {
    let spaces =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let spaces = if user.is_root() { spaces } else { spaces | UnshareFlags::NEWUSER };
    // This is unsafe only for tables of open files, which stay as they are here.
    #[allow(deprecated)]
    rustix::thread::unshare(spaces).map_err(|error| failed("namespaces", error.into()))?;
    if !user.is_root() {
        let maps = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {} 1", user.as_raw())),
            ("gid_map", format!("0 {} 1", group.as_raw())),
        ];
        for (name, text) in maps {
            std::fs::write(format!("/proc/self/{name}"), text).map_err(|error| failed("namespaces", error))?;
        }
    }
    Ok(())
}

fn become_user(user: u32) -> io::Result<()> {
    let (uid, gid) = (rustix::process::Uid::from_raw(user), rustix::process::Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// As in shells: a signal is 128 plus its number.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    u8::try_from(code).unwrap_or(255)
}

fn failed(what: &'static str, error: io::Error) -> FenceFailure {
    FenceFailure::Made(what, error)
}

/// The exit code of `weir fence` when it could not start the plugin. Not 126, with which a shell ends that should
/// run something that is not a program: that is the plugin's own fault.
pub const NOT_STARTED: u8 = 211;

/// Why the plugin was not started.
#[derive(Debug, thiserror::Error)]
pub enum FenceFailure {
    /// Some part of the sandbox cannot be made.
    #[error("the fence cannot be made: {0}: {1}")]
    Made(&'static str, io::Error),
    /// Limits or filters are refused.
    #[error("the fence cannot be made: {0}")]
    Filter(String),
    /// The program cannot be started.
    #[error("{0} cannot be started: {1} (a plugin's files must be readable for everybody)")]
    Start(String, io::Error),
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    pub(in crate::dispatcher) const STANDS_FOR: &str = "WEIR_TEST_FENCE";

    /// The spec and the program in one variable of the environment.
    pub(super) fn packed(spec: &FenceSpec, program: &[OsString]) -> OsString {
        let program: Vec<Vec<u8>> = program.iter().map(|part| part.as_bytes().to_vec()).collect();
        serde_json::to_string(&(spec, program)).unwrap().into()
    }

    /// Not a test: the test program continues here when it is started as a sandbox.
    #[test]
    fn stands_for_weir() {
        let Some(packed) = std::env::var_os(STANDS_FOR) else { return };
        let (spec, program): (FenceSpec, Vec<Vec<u8>>) = serde_json::from_slice(packed.as_bytes()).unwrap();
        let program: Vec<OsString> = program.into_iter().map(OsString::from_vec).collect();
        let code = spec.run(&program).unwrap_or_else(|failure| {
            eprintln!("error: {failure}");
            NOT_STARTED
        });
        std::process::exit(code.into());
    }

    #[test]
    fn this_machine_can_fence_plugins_in() {
        assert!(Maker::Ourselves.works(), "own namespaces");
        assert!(!Path::new(BUBBLEWRAP).exists() || Maker::Bubblewrap.works(), "bubblewrap");
    }

    #[test]
    fn a_spec_survives_the_way() {
        let view = View::new(Path::new("/usr/bin/weir"), Path::new("/opt/p"), Path::new("/var/j"), &[]);
        let spec = FenceSpec::new(Maker::Ourselves, "/usr/bin/weir".into(), view, &Limits::default());
        let text = serde_json::to_string(&spec).unwrap();
        let again: FenceSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
