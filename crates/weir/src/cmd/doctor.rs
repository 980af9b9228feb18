//! `weir doctor`: lists what is wrong on this machine, the most important first, each with the next step.
//!
//! It changes nothing and does not open the store itself. It checks what an operator would check: the configuration, the data folder and
//! its disk, the process and its gates, ports, certificates, and the servers that Weir needs.

mod configured;
mod running;

use crate::assembly;
use crate::config::Loaded;
use crate::folder_args::FolderArgs;
use crate::machine::Machine;
use serde::Serialize;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: FolderArgs,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// How important a finding is, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    /// Something does not work.
    Broken,
    /// Something will not work before long, or is risky.
    Soon,
    /// Worth knowing.
    Note,
}

/// Something that was found.
#[derive(Debug, Serialize)]
struct Finding {
    grade: Grade,
    what: String,
    next: String,
}

impl Finding {
    fn new(grade: Grade, what: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { grade, what: what.into(), next: next.into() }
    }
}

/// If the disk has less free space than this, mail will soon be refused.
const DISK_LOW: u64 = 1 << 30;

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut findings = self.look();
        findings.sort_by_key(|finding| finding.grade);
        let broken = findings.iter().filter(|finding| finding.grade == Grade::Broken).count();
        if self.json {
            crate::answer::print_json(out, &findings)?;
        } else {
            print(out, &findings)?;
        }
        out.flush()?;
        anyhow::ensure!(broken == 0, "{} of these must be fixed", broken);
        Ok(())
    }

    fn look(&self) -> Vec<Finding> {
        let machine = Machine::look();
        let loaded = match self.place.load() {
            Ok(loaded) => loaded,
            Err(problems) => {
                let next = "correct the lines that are named, then run `weir check`";
                return vec![Finding::new(
                    Grade::Broken,
                    format!("the configuration is not valid:\n{problems:#}"),
                    next,
                )];
            }
        };
        let mut findings = Vec::new();
        findings.extend(loaded.file.is_none().then(|| {
            let next = "weir quickstart web, relay, mx or lab writes one";
            Finding::new(
                Grade::Note,
                "there is no configuration file: Weir would run with its defaults, on loopback only",
                next,
            )
        }));
        let folder = self.place.existing_folder().unwrap_or_default();
        findings.extend(folder_findings(&folder, machine.root));
        let runs = UnixStream::connect(folder.join("control.sock")).is_ok();
        match runs {
            true => findings.extend(running::look(&folder)),
            false => findings.extend(not_running(&loaded, &machine, &folder)),
        }
        findings.extend(configured::look(&loaded, runs));
        findings
    }
}

fn print(out: &mut dyn Write, findings: &[Finding]) -> anyhow::Result<()> {
    if findings.is_empty() {
        writeln!(out, "Nothing is wrong.")?;
    }
    for Finding { grade, what, next } in findings {
        let word = match grade {
            Grade::Broken => "BROKEN",
            Grade::Soon => "SOON",
            Grade::Note => "NOTE",
        };
        writeln!(out, "{word:<7} {}", what.replace('\n', "\n        "))?;
        writeln!(out, "        next: {next}")?;
    }
    Ok(())
}

fn folder_findings(folder: &Path, root: bool) -> Vec<Finding> {
    let shown = folder.display();
    let Ok(facts) = std::fs::metadata(folder) else {
        let what = format!("there is no data folder {shown} yet");
        return vec![Finding::new(
            Grade::Note,
            what,
            "the first `weir up` creates it; to use another one, set --data or store.folder",
        )];
    };
    let mut findings = Vec::new();
    if !root && facts.uid() != rustix::process::geteuid().as_raw() {
        let what = format!("{shown} belongs to another user, so not everything could be checked");
        findings.push(Finding::new(Grade::Note, what, "run the command as root: sudo weir doctor"));
    }
    if facts.mode() & 0o077 != 0 {
        let what = format!("other users can read {shown}, which contains mail and keys");
        findings.push(Finding::new(Grade::Soon, what, format!("chmod 700 {shown}")));
    }
    if let Ok(disk) = rustix::fs::statvfs(folder) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let share = disk.f_bavail.saturating_mul(100) / disk.f_blocks.max(1);
        if free < DISK_LOW || share < 5 {
            let what = format!("the disk of {shown} has {} left ({share} %)", crate::answer::bytes(free));
            let grade = if free < DISK_LOW / 10 { Grade::Broken } else { Grade::Soon };
            findings.push(Finding::new(grade, what, "free some space: mail is refused with 452 when the disk is full"));
        }
    }
    findings
}

fn not_running(loaded: &Loaded, machine: &Machine, folder: &Path) -> Vec<Finding> {
    let start = match (machine.systemd, &loaded.file) {
        (true, _) => "systemctl restart weir, then: journalctl -u weir -n 30".to_owned(),
        (false, Some(file)) => format!("weir up --config {} --data {}", file.display(), folder.display()),
        (false, None) => format!("weir up --data {}", folder.display()),
    };
    let mut findings = vec![Finding::new(Grade::Broken, format!("Weir is not running on {}", folder.display()), start)];
    for address in assembly::needs::addresses(loaded) {
        if let Some(taken) = machine.on_port(address.port()) {
            let what = format!("Weir needs {address}, but {} listens at {}", taken.who(), taken.address);
            let next = "stop that program or move it to another port; weir quickstart prints the lines for nginx, Apache and Postfix";
            findings.push(Finding::new(Grade::Broken, what, next));
        }
    }
    findings
}
