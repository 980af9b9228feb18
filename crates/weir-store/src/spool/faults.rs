//! Test-only: a disk that fails on command, and that knows what a power cut would leave of it.
//!
//! Each byte of each file is durable, dirty (written, not synced) or lost (its sync failed: the kernel has
//! forgotten that it was dirty, so a later sync does not help; only writing it again does). Names are durable once
//! their folder was synced. [`Faults::power_cut`] freezes the disk; [`Faults::remains`] builds one folder that
//! the cut may have left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::file;

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Creating a file.
    Create,
    /// Writing to a file (half of the bytes arrive).
    Write,
    /// Syncing a file.
    Sync,
    /// Cutting a file off.
    Cut,
    /// Removing a file.
    Remove,
    /// Syncing a folder.
    SyncFolder,
}

/// A failing disk.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Bytes>,
    /// Files whose creation is not durable.
    created: Vec<PathBuf>,
    /// Files whose removal is not durable, with what they held.
    removed: Vec<(PathBuf, Vec<u8>, Bytes)>,
    planned: Vec<(Call, u32, i32)>,
    syncs_lie: bool,
    dead: bool,
}

/// The state of each byte of a file, and the bytes behind an end whose cutting off is not durable.
#[derive(Clone, Debug, Default)]
struct Bytes {
    states: Vec<Byte>,
    behind: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Byte {
    Durable,
    Dirty,
    Lost,
}

impl Faults {
    /// Lets the next call of this kind fail after `skip` more that succeed, with the system's error number.
    pub fn fail(&self, call: Call, skip: u32, errno: i32) {
        self.state().planned.push((call, skip, errno));
    }

    /// Forgets failures that were planned and have not happened.
    pub fn heal(&self) {
        self.state().planned.clear();
    }

    /// A planted bug: from now on syncs of files answer at once and do nothing.
    pub fn let_syncs_lie(&self) {
        self.state().syncs_lie = true;
    }

    /// From now on nothing reaches the disk and every call fails.
    pub fn power_cut(&self) {
        self.state().dead = true;
    }

    /// Builds in `to` what a power cut may have left of the folder `from`; `draw` decides.
    pub fn remains(&self, from: &Path, to: &Path, draw: &mut dyn FnMut() -> u64) -> io::Result<()> {
        let state = self.state();
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let never_made_durable = state.created.contains(&path) && draw().is_multiple_of(2);
            if !path.is_file() || never_made_durable {
                continue;
            }
            let bytes = state.files.get(&path).cloned().unwrap_or_default();
            write_remains(&path, to, (fs::read(&path)?, &bytes), draw)?;
        }
        for (path, content, bytes) in &state.removed {
            if draw().is_multiple_of(2) && !path.exists() {
                write_remains(path, to, (content.clone(), bytes), draw)?;
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        let mut state = self.state();
        state.allow(Call::Create)?;
        let file = file::create(path)?;
        state.files.insert(path.to_owned(), Bytes::default());
        state.created.push(path.to_owned());
        Ok(file)
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        let mut state = self.state();
        state.alive()?;
        let file = file::open(path)?;
        let length = file.metadata()?.len() as usize;
        let durable = || Bytes { states: vec![Byte::Durable; length], behind: Vec::new() };
        state.files.entry(path.to_owned()).or_insert_with(durable);
        Ok(file)
    }

    pub(super) fn write(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.state();
        state.alive()?;
        let allowed = state.allow(Call::Write);
        let arriving = if allowed.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        file.write_all_at(arriving, at)?;
        let end = at as usize + arriving.len();
        let known = state.files.entry(path.to_owned()).or_default();
        if known.states.len() < end {
            known.states.resize(end, Byte::Dirty);
            known.behind.clear();
        }
        known.states[at as usize..end].fill(Byte::Dirty);
        allowed
    }

    pub(super) fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let allowed = state.allow(Call::Sync);
        if state.syncs_lie {
            return allowed;
        }
        let known = state.files.entry(path.to_owned()).or_default();
        let becomes = if allowed.is_ok() { Byte::Durable } else { Byte::Lost };
        known.states.iter_mut().filter(|byte| **byte == Byte::Dirty).for_each(|byte| *byte = becomes);
        if allowed.is_ok() {
            known.behind.clear();
        }
        let _ = file;
        allowed
    }

    pub(super) fn cut_file(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.allow(Call::Cut)?;
        let mut behind = vec![0; file.metadata()?.len().saturating_sub(length) as usize];
        file.read_exact_at(&mut behind, length)?;
        file.set_len(length)?;
        let known = state.files.entry(path.to_owned()).or_default();
        known.states.truncate(length as usize);
        known.behind = behind;
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.allow(Call::Remove)?;
        if let Ok(content) = fs::read(path) {
            let bytes = state.files.remove(path).unwrap_or_default();
            state.removed.push((path.to_owned(), content, bytes));
        }
        file::remove(path)
    }

    pub(super) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.allow(Call::SyncFolder)?;
        state.created.retain(|created| created.parent() != Some(path));
        state.removed.retain(|(removed, ..)| removed.parent() != Some(path));
        Ok(())
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the power is cut")) } else { Ok(()) }
    }

    fn allow(&mut self, call: Call) -> io::Result<()> {
        self.alive()?;
        let Some(place) = self.planned.iter().position(|(planned, ..)| *planned == call) else { return Ok(()) };
        let (_, skip, errno) = &mut self.planned[place];
        if *skip > 0 {
            *skip -= 1;
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(*errno);
        self.planned.remove(place);
        Err(error)
    }
}

/// Durable bytes stay; of the others, in blocks of 512, some are zeros, and some behind the last durable one are cut off.
fn write_remains(
    path: &Path,
    to: &Path,
    (mut content, bytes): (Vec<u8>, &Bytes),
    draw: &mut dyn FnMut() -> u64,
) -> io::Result<()> {
    let state = |at: usize| bytes.states.get(at).copied().unwrap_or(Byte::Durable);
    let durable_end = (0..content.len()).rev().find(|at| state(*at) == Byte::Durable).map_or(0, |at| at + 1);
    let open_end = content.len() - durable_end;
    if !bytes.behind.is_empty() && draw().is_multiple_of(2) {
        content.extend_from_slice(&bytes.behind);
    } else if open_end > 0 {
        content.truncate(durable_end + (draw() as usize) % (open_end + 1));
    }
    let mut keeps = true;
    for (at, byte) in content.iter_mut().enumerate() {
        if at.is_multiple_of(512) {
            keeps = !draw().is_multiple_of(3);
        }
        match state(at) {
            Byte::Lost => *byte = 0,
            Byte::Dirty if !keeps => *byte = 0,
            Byte::Durable | Byte::Dirty => {}
        }
    }
    fs::write(to.join(path.file_name().unwrap_or_default()), content)
}
