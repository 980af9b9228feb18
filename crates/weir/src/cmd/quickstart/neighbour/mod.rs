//! Changes the configuration of a neighbouring program so that it works beside Weir, and undoes the change.
//!
//! Before a file is changed, the change is written to a journal, and a copy of the file is kept. The change is marked in the file, and the
//! program's own check must accept it; otherwise it is undone at once. `weir quickstart undo` restores what was there before. Whatever
//! somebody has changed since then stays.

mod marked;
mod nginx;
mod postfix;

use super::replacement;
use crate::machine::Machine;
use anyhow::{Context, bail};
use marked::Change;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a program may take to give up its ports.
const PATIENCE: Duration = Duration::from_secs(30);

/// Changes to the configuration of one program.
#[derive(Debug)]
pub(super) struct Edit {
    program: NeighbourProgram,
    files: Vec<FileChange>,
    /// The ports that it gives up for Weir.
    ports: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NeighbourProgram {
    Nginx,
    Postfix,
}

#[derive(Debug)]
struct FileChange {
    path: PathBuf,
    before: String,
    after: String,
}

impl FileChange {
    fn of(path: PathBuf, before: &str, changes: &[Change]) -> FileChange {
        FileChange { path, before: before.to_owned(), after: marked::put_in(before, changes) }
    }
}

/// Moves every web site of nginx on these ports behind Weir.
pub(super) fn nginx_behind(plain: u16, secure: u16, backend: &str) -> anyhow::Result<Edit> {
    nginx::behind(plain, secure, backend)
}

/// Lets nginx pass the authority's requests at port 80 on to this address.
pub(super) fn nginx_questions(to: &str) -> anyhow::Result<Edit> {
    nginx::questions(to)
}

/// Lets Postfix give up these ports, or move to `to`.
pub(super) fn postfix_leaves(ports: &[u16], to: Option<&str>) -> anyhow::Result<Edit> {
    postfix::leaves(ports, to)
}

/// The changes that were made for one program, as the journal beside Weir's configuration records them.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    program: NeighbourProgram,
    ports: Vec<u16>,
    files: Vec<DoneFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DoneFile {
    path: PathBuf,
    before: String,
    after: String,
}

impl Edit {
    /// Makes the changes, lets the program check and load them, and waits until it has given up its ports.
    pub(super) fn apply(&self, config: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
        self.program.check().context("its present configuration is not valid; nothing was changed")?;
        let journal = journal(config);
        let mut done = read_journal(&journal)?;
        let files = self.files.iter();
        let files = files.map(|file| DoneFile {
            path: file.path.clone(),
            before: file.before.clone(),
            after: file.after.clone(),
        });
        done.push(Done { program: self.program, ports: self.ports.clone(), files: files.collect() });
        write_journal(&journal, &done)?;
        for file in &self.files {
            let copy = copy_of(config, &file.path)?;
            writeln!(out, "A copy of {} is {}.", file.path.display(), copy.display())?;
        }
        let written = self.files.iter().try_for_each(|file| replace(&file.path, &file.after)).map_err(Into::into);
        if let Err(error) = written.and_then(|()| self.program.check()) {
            self.files.iter().try_for_each(|file| replace(&file.path, &file.before))?;
            done.pop();
            write_journal(&journal, &done)?;
            return Err(error).context("the changed configuration is not valid; the old one was put back");
        }
        self.files.iter().try_for_each(|file| writeln!(out, "Changed {}.", file.path.display()))?;
        self.program.reload()?;
        self.wait_for_ports()
    }

    fn wait_for_ports(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while taken(&self.ports).is_some() {
            if begun.elapsed() > PATIENCE {
                bail!("{} was told to give up its port, but still listens there", self.program.name());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Undoes all changes, the last one first.
pub(super) fn undo(config: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let journal = journal(config);
    let mut done = read_journal(&journal)?;
    if done.is_empty() {
        return Ok(writeln!(out, "Nothing was put into the configuration of another program.")?);
    }
    while let Some(last) = done.last() {
        last.undo(out)?;
        done.pop();
        write_journal(&journal, &done)?;
    }
    Ok(())
}

impl Done {
    fn undo(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let name = self.program.name();
        if let Some((port, who)) = taken(&self.ports) {
            bail!(
                "{who} uses port {port}, which {name} would get back; nothing was changed\n  hint: stop Weir first: \
                 systemctl disable --now weir, or end `weir up`"
            );
        }
        let mut now = Vec::new();
        for file in &self.files {
            let text =
                fs::read_to_string(&file.path).with_context(|| format!("{} cannot be read", file.path.display()))?;
            let back = if text == file.after { Some(file.before.clone()) } else { marked::taken_out(&text) };
            now.push((&file.path, text, back));
        }
        let wanted = |(path, _, back): &(&PathBuf, String, Option<String>)| match back {
            Some(back) => replace(path, back),
            None => Ok(()),
        };
        let written = now.iter().try_for_each(wanted).map_err(Into::into);
        if let Err(error) = written.and_then(|()| self.program.check()) {
            now.iter().try_for_each(|(path, text, _)| replace(path, text))?;
            return Err(error)
                .with_context(|| format!("without Weir's lines {name} would not start; nothing was changed"));
        }
        for (path, _, back) in &now {
            match back {
                Some(_) => writeln!(out, "Removed Weir's lines from {}.", path.display())?,
                None => writeln!(out, "{} has none of Weir's lines any more and was not changed.", path.display())?,
            }
        }
        self.program.reload()
    }
}

impl NeighbourProgram {
    fn name(self) -> &'static str {
        match self {
            NeighbourProgram::Nginx => "nginx",
            NeighbourProgram::Postfix => "Postfix",
        }
    }

    fn check(self) -> anyhow::Result<()> {
        match self {
            NeighbourProgram::Nginx => run(Command::new("nginx").args(["-t", "-q"])),
            NeighbourProgram::Postfix => run(Command::new("postfix").arg("check")),
        }
    }

    fn reload(self) -> anyhow::Result<()> {
        let systemd = Path::new("/run/systemd/system").exists();
        match self {
            NeighbourProgram::Nginx if systemd => run(Command::new("systemctl").args(["reload", "nginx"])),
            NeighbourProgram::Nginx => run(Command::new("nginx").args(["-s", "reload"])),
            NeighbourProgram::Postfix => run(Command::new("postfix").arg("reload")),
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = format!("{command:?}").replace('"', "");
    let output = command.output().with_context(|| format!("{name} cannot be run"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())
}

/// The first of these ports that is still taken, and by whom.
fn taken(ports: &[u16]) -> Option<(u16, String)> {
    let machine = Machine::look();
    ports.iter().find_map(|port| machine.on_port(*port).map(|taken| (*port, taken.who().to_owned())))
}

/// The journal of all changes.
fn journal(config: &Path) -> PathBuf {
    config.with_file_name("neighbours.json")
}

/// Copies a file for people to look at. The copy is beside Weir's configuration, because the program might read it as its own if it were in
/// its folder.
fn copy_of(config: &Path, file: &Path) -> anyhow::Result<PathBuf> {
    let folder = config.with_file_name("neighbours");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    let name = file.to_string_lossy().trim_start_matches('/').replace('/', "_");
    let copy = super::free_name(&folder.join(name));
    fs::copy(file, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
    Ok(copy)
}

fn read_journal(file: &Path) -> anyhow::Result<Vec<Done>> {
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
    }
}

fn write_journal(file: &Path, done: &[Done]) -> anyhow::Result<()> {
    let written = match done.is_empty() {
        true => fs::remove_file(file),
        false => serde_json::to_string_pretty(done)
            .map_err(io::Error::from)
            .and_then(|text| weir_tls::write_private(file, &text)),
    };
    written.with_context(|| format!("{} cannot be written", file.display()))
}

/// Replaces a file in one step, keeping its owner and permissions.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let before = fs::metadata(path)?;
    // Until the new file has them, only we can read it: there may be a password in it.
    replacement::replace(path, text, 0o600, |file| {
        fchown(file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(before.permissions())
    })
}
