//! Starts Weir: by systemd if it runs on this machine, otherwise in the foreground.

use super::{InstallPaths, SYSTEM_CONFIG};
use crate::folder_args::SYSTEM_DATA;
use crate::machine::Machine;
use anyhow::{Context, bail};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the start may take.
const PATIENCE: Duration = Duration::from_secs(60);
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// The user as whom the service runs.
const USER: &str = "weir";

/// A Weir that was started.
pub(super) enum Started {
    BySystemd,
    Here(Child),
}

impl Started {
    /// For a Weir in the foreground, waits until it ends.
    pub(super) fn stay(self) -> anyhow::Result<()> {
        let Started::Here(mut child) = self else { return Ok(()) };
        let ended = child.wait()?;
        if ended.success() { Ok(()) } else { bail!("weir up ended: {ended}") }
    }
}

/// Whether the unit of the package, or another one of its name, is installed.
pub(super) fn has_unit() -> bool {
    UNIT_FOLDERS.iter().any(|folder| Path::new(folder).join("weir.service").exists())
}

pub(super) fn start(place: &InstallPaths, machine: &Machine, out: &mut dyn Write) -> anyhow::Result<Started> {
    let unit = has_unit();
    let usual = place.config == Path::new(SYSTEM_CONFIG) && place.data == Path::new(SYSTEM_DATA);
    if machine.systemd && machine.root && unit && usual {
        for verb in ["enable", "restart"] {
            let status = Command::new("systemctl").args([verb, "weir"]).stderr(Stdio::null()).status()?;
            if !status.success() {
                bail!("systemctl {verb} weir failed\n  hint: journalctl -u weir -n 30");
            }
        }
        writeln!(out, "Started by systemd.")?;
        return Ok(Started::BySystemd);
    }
    let mut child = command(place, machine.root)?.spawn().context("setpriv (util-linux) cannot start weir up")?;
    wait_until_up(&mut child, &place.data)?;
    writeln!(out, "Started here, in the foreground; Ctrl-C stops it.")?;
    out.flush()?;
    Ok(Started::Here(child))
}

/// The command for `weir up`. It runs as the service's user if that user exists and we are root, because nothing that strangers talk to
/// should be root.
fn command(place: &InstallPaths, root: bool) -> anyhow::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("setpriv");
    // If this process is killed, Weir ends as well.
    command.arg("--pdeathsig=TERM");
    if root && group().is_some() {
        let caps = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--init-groups"]).args(caps);
    }
    command.arg(program);
    command.args(["up", "--log", "warn", "--config"]).arg(&place.config).arg("--data").arg(&place.data);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn wait_until_up(child: &mut Child, data: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(data.join("control.sock")).is_err() {
        if let Some(ended) = child.try_wait()? {
            bail!("weir up ended: {ended}; what it said is above");
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            bail!("weir up is not ready after {} seconds", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The group of the service's user, if there is one.
pub(super) fn group() -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(USER))?;
    line.split(':').nth(2)?.parse().ok()
}
