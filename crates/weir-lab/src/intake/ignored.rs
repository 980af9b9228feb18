//! Files in the analysis directory that are not taken as samples. Each is logged once, so that nobody waits for a result that never comes.

use super::{REFUSED_HERE, SIGHTS_MAX};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many entries of the root one pass sees at most.
const ROOT_MAX: usize = 1_000;

/// A file or folder that is left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ignored {
    /// Its path, relative to the root.
    pub path: PathBuf,
    pub why: &'static str,
}

/// What was ignored at the last pass, and at this one.
#[derive(Debug, Default)]
pub(super) struct IgnoredFiles {
    told: HashSet<Ignored>,
    seen: HashSet<Ignored>,
}

impl IgnoredFiles {
    /// A name in a numbered directory that is ignored. Files that were refused have been reported before.
    pub(super) fn half(&mut self, directory: u8, name: &OsStr) {
        if !matches!(name.as_bytes(), b"." | b"..") && !name.as_bytes().starts_with(REFUSED_HERE.as_bytes()) {
            let path = Path::new(&directory.to_string()).join(name);
            self.see(Ignored { path, why: "by its name it is hidden or not complete yet" });
        }
    }

    /// Everything beside the numbered directories.
    pub(super) fn look_at_root(&mut self, root: &Path) {
        let Ok(entries) = std::fs::read_dir(root) else { return };
        for entry in entries.flatten().take(ROOT_MAX) {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            let why = match (is_folder, name.to_str()) {
                (true, Some("refused")) => continue,
                (true, Some(name)) if is_numbered(name) => continue,
                (true, _) => "only the directories 0 to 127 are looked at",
                (false, _) => "files are taken only from the directories 0 to 127",
            };
            self.see(Ignored { path: name.into(), why });
        }
    }

    fn see(&mut self, ignored: Ignored) {
        if self.seen.len() < SIGHTS_MAX {
            self.seen.insert(ignored);
        }
    }

    /// What is new since the last pass. After a complete pass, what is gone is forgotten, and is reported again if it comes back.
    pub(super) fn news(&mut self, complete: bool) -> Vec<Ignored> {
        let seen = std::mem::take(&mut self.seen);
        let mut news: Vec<Ignored> = seen.difference(&self.told).cloned().collect();
        news.sort_by(|a, b| a.path.cmp(&b.path));
        if complete {
            self.told = seen;
        } else if self.told.len() < SIGHTS_MAX {
            self.told.extend(news.iter().cloned());
        }
        news
    }
}

/// Whether the name is one of the numbered directories as they are opened: `032` is another name.
fn is_numbered(name: &str) -> bool {
    name.parse::<u8>().is_ok_and(|number| number <= 127 && number.to_string() == name)
}
