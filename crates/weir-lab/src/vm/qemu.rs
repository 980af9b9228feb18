//! One running QEMU: how it is started, stopped, restored, and talked with.
//!
//! It starts in the folder of its VM, where all that it opens is, and is killed when this is dropped or when our process ends.

use super::accelerator::Accelerator;
use super::agent_connection::AgentConnection;
use super::cell::{self, Cell};
use super::qmp::Qmp;
use super::{Boot, DISK, VmSettings, identity, spawner};
use crate::cgroup::{ControlGroup, Hierarchy};
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use weir_guest::words::PORT;

pub(super) const SNAPSHOT: &str = "golden";
/// QEMU opens its sockets within this time.
const SOCKETS_MAX: Duration = Duration::from_secs(20);
/// How often it is checked whether they are there.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// A QEMU that was killed has ended within this time.
const END_MAX: Duration = Duration::from_secs(2);
/// Memory for translated code; more gains nothing for samples that run only for seconds.
const TRANSLATIONS_MIB: u32 = 48;
/// Wine, its server and the screen need more than that: their code would be thrown away and translated again while a sample runs.
const TRANSLATIONS_LARGE_MIB: u32 = 128;
/// Guests with this much memory have that much code.
const LARGE_MIB: u32 = 512;
/// The memory that QEMU itself needs in addition to the guest's.
const OWN_MIB: u32 = 256;
/// How many threads a QEMU may have: one for the guest's processor, and some that read and write its disk.
const TASKS_MAX: u32 = 128;
/// The kernel prints little, ends when it panics, and does not use protections that only cost time here.
const KERNEL_LINE: &str = "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic mitigations=off nokaslr no_timer_check \
                           random.trust_cpu=on init_on_free=1 tsc=reliable";

/// A running QEMU.
#[derive(Debug)]
pub(super) struct Qemu {
    child: Child,
    qmp: Qmp,
    folder: File,
    /// The agent, while it is connected.
    agent: Option<AgentConnection>,
    /// Its memory, processes and share of the processors are limited if control groups can be made. Removed after the child.
    _group: Option<ControlGroup>,
}

/// How one is started.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) program: &'a Path,
    pub(super) settings: &'a VmSettings,
    pub(super) accelerator: Accelerator,
    /// Its working directory, with its disk and what it boots.
    pub(super) folder: PathBuf,
    /// Started from the snapshot, and not running yet; otherwise it boots.
    pub(super) restored: bool,
    /// What a booting guest is told about its clock.
    pub(super) ticks_khz: Option<u64>,
    /// It may run without a sandbox.
    pub(super) unconfined: bool,
}

impl Qemu {
    /// Starts one and connects to its monitor and to its agent's port.
    pub(super) async fn start(start: Start<'_>) -> io::Result<Qemu> {
        for socket in ["qmp.sock", "agent.sock"] {
            let _ = std::fs::remove_file(start.folder.join(socket));
        }
        let folder = File::open(&start.folder)?;
        let group = bounded(start.settings);
        let mut child = spawner::spawn(command(&start, group.as_ref())).await?;
        let connected = tokio::select! {
            connected = connect(&folder) => connected,
            status = child.wait() => Err(io::Error::other(format!("QEMU ended at once with {}", status?))),
        };
        match connected {
            Ok((qmp, agent)) => Ok(Qemu { child, qmp, folder, agent: Some(agent), _group: group }),
            Err(error) => Err(io::Error::new(error.kind(), format!("{error}{}", said(&mut child).await))),
        }
    }

    /// QEMU's own process, below those of its sandbox.
    pub(super) fn pid(&self) -> Option<u32> {
        let first = self.child.id()?;
        Some(cell::below(first).last().copied().unwrap_or(first))
    }

    /// Returns when it has ended.
    pub(super) async fn ended(&mut self) -> io::Error {
        match self.child.wait().await {
            Ok(status) => io::Error::other(format!("QEMU ended with {status}")),
            Err(error) => error,
        }
    }

    /// The connection with the agent.
    pub(super) fn agent(&mut self) -> io::Result<&mut AgentConnection> {
        self.agent
            .as_mut()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "nobody is connected with the agent"))
    }

    /// Lets the guest run.
    pub(super) async fn go(&mut self) -> io::Result<()> {
        self.qmp.execute("cont", Value::Null).await.map(drop)
    }

    /// Stops the guest: it takes no processor time.
    pub(super) async fn hold(&mut self) -> io::Result<()> {
        self.qmp.execute("stop", Value::Null).await.map(drop)
    }

    /// Saves the present state of the guest as the snapshot.
    pub(super) async fn keep(&mut self) -> io::Result<()> {
        self.hold().await?;
        self.qmp.human(&format!("savevm {SNAPSHOT}")).await
    }

    /// Brings the guest back to the state of the snapshot; it is stopped then. The old connection is closed first, with everything in it.
    pub(super) async fn restore(&mut self) -> io::Result<()> {
        self.hold().await?;
        self.agent = None;
        self.agent = Some(AgentConnection::new(open(&self.folder, "agent.sock").await?));
        self.qmp.human(&format!("loadvm {SNAPSHOT}")).await
    }

    /// The last output of the guest's console.
    pub(super) async fn console(&mut self) -> String {
        let order = json!({ "device": "console", "size": 2048 });
        let said = self.qmp.execute("ringbuf-read", order).await.unwrap_or_default();
        said.as_str().unwrap_or_default().lines().rev().take(3).collect::<Vec<_>>().join(" | ")
    }

    /// Kills it, and returns when it has ended, because the next one needs its files.
    pub(super) async fn kill(mut self) {
        let members = self.child.id().map(cell::below).unwrap_or_default();
        let _ = self.child.kill().await;
        // What is in the sandbox ends with it, a moment later.
        let begun = Instant::now();
        let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        while members.iter().any(lives) && begun.elapsed() < END_MAX {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends it in an orderly way, so that its files are complete.
    pub(super) async fn quit(mut self) -> io::Result<()> {
        self.qmp.execute("quit", Value::Null).await?;
        self.child.wait().await.map(drop)
    }
}

async fn connect(folder: &File) -> io::Result<(Qmp, AgentConnection)> {
    let qmp = Qmp::greet(open(folder, "qmp.sock").await?).await?;
    Ok((qmp, AgentConnection::new(open(folder, "agent.sock").await?)))
}

/// Connects to a socket in a folder, whose path may be longer than the address of a socket can be.
async fn open(folder: &File, name: &str) -> io::Result<UnixStream> {
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    let begun = Instant::now();
    loop {
        match UnixStream::connect(&path).await {
            Err(_) if begun.elapsed() < SOCKETS_MAX => tokio::time::sleep(LOOK_EVERY).await,
            connected => return connected,
        }
    }
}

/// Why QEMU did not start.
async fn said(child: &mut Child) -> String {
    let _ = child.start_kill();
    let mut text = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = tokio::time::timeout(Duration::from_secs(1), stderr.take(4096).read_to_end(&mut text)).await;
    }
    let text = String::from_utf8_lossy(&text);
    text.trim().lines().last().map(|line| format!(": {line}")).unwrap_or_default()
}

/// The control group of a QEMU; None where none can be made.
fn bounded(settings: &VmSettings) -> Option<ControlGroup> {
    let memory = u64::from(settings.memory_mib + translations_mib(settings) + OWN_MIB) << 20;
    let group = Hierarchy::of_this_machine()?.group("vm", memory, TASKS_MAX);
    group.inspect_err(|error| tracing::warn!(%error, "a VM gets no control group")).ok()
}

fn command(start: &Start<'_>, group: Option<&ControlGroup>) -> Command {
    let mut command = if start.unconfined && !cell::is_possible() { bare(start) } else { start.cell().command() };
    command.args(arguments(start));
    if let Some(group) = group {
        command = group.with(&command);
    }
    command.current_dir(&start.folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    command
}

/// Without a sandbox. `setpriv` makes the kernel kill QEMU when the thread that started it ends: that thread lives as long as our process.
fn bare(start: &Start<'_>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--no-new-privs"]).args(identity::words(start.settings, start.accelerator));
    command.arg("--").arg(start.program);
    command
}

impl Start<'_> {
    fn cell(&self) -> Cell<'_> {
        Cell { settings: self.settings, accelerator: self.accelerator, folder: &self.folder, program: self.program }
    }
}

fn arguments(start: &Start<'_>) -> Vec<String> {
    let settings = start.settings;
    let mut line = words(&format!("-name {} ", settings.name));
    line.extend(words("-nodefaults -no-user-config -no-reboot -display none -nic none -smp 1 -rtc base=utc"));
    line.extend(words("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"));
    // A machine that looks like a real one, as far as names of devices go.
    line.extend(words(
        "-M pc,usb=off,x-oem-id=LENOVO,x-oem-table-id=TP-N24 -smbios type=0,vendor=LENOVO,version=N24ET61W",
    ));
    line.extend(words("-smbios type=1,manufacturer=LENOVO,product=20L50000GE,version=ThinkPad,serial=PF1AB2CD"));
    line.extend(words("-smbios type=2,manufacturer=LENOVO,product=20L50000GE -smbios type=3,manufacturer=LENOVO"));
    line.extend(words("-chardev ringbuf,id=console,size=65536 -serial chardev:console"));
    line.extend(match start.accelerator {
        Accelerator::Kvm => words("-accel kvm -cpu host"),
        // With SMAP a program that returns by `iret`, as Wine's do, crashes the guest's kernel, because QEMU's translation mistakes its stack for the
        // kernel's.
        Accelerator::Tcg => words(&format!(
            "-accel tcg,tb-size={} -cpu max,smap=off,hypervisor=off,tcg-cpuid=off,vendor=GenuineIntel",
            translations_mib(settings)
        )),
    });
    line.extend(words(&format!("-m {}", settings.memory_mib)));
    line.extend(words("-chardev socket,id=qmp,path=qmp.sock,server=on,wait=off -mon chardev=qmp,mode=control"));
    line.extend(words(
        "-chardev socket,id=agent,path=agent.sock,server=on,wait=off -device virtio-serial-pci,id=ports",
    ));
    line.extend(words(&format!("-device virtserialport,bus=ports.0,chardev=agent,name={PORT}")));
    line.extend(words("-drive if=none,id=state,file=state.qcow2,format=qcow2,cache=unsafe"));
    line.extend(match &settings.boot {
        Boot::Kernel { .. } => {
            let mut boot = words("-kernel vmlinuz -initrd initrd -append");
            let clock = start.ticks_khz.map(|khz| format!(" tsc_early_khz={khz}")).unwrap_or_default();
            boot.push(format!("{KERNEL_LINE}{clock}"));
            if start.folder.join(DISK).exists() {
                let disk = format!(
                    "-drive if=none,id=root,file={DISK},format=raw,readonly=on -device virtio-blk-pci,drive=root"
                );
                boot.extend(words(&disk));
            }
            boot
        }
        Boot::Image(_) => words("-device ide-hd,drive=state -vga std"),
    });
    if start.restored {
        line.extend(words(&format!("-S -loadvm {SNAPSHOT}")));
    }
    line
}

fn translations_mib(settings: &VmSettings) -> u32 {
    if settings.memory_mib >= LARGE_MIB { TRANSLATIONS_LARGE_MIB } else { TRANSLATIONS_MIB }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
