//! What a sample did to files, read from the disk: everything that is written in this guest goes to an overlay over a read-only disk.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The user's drive `C:`, and where what was written to it is.
pub(crate) const DRIVE: &str = "/home/anna/.wine/drive_c";
const LAID_OVER: &str = "/overlay/upper/home/anna/.wine/drive_c";
/// Files that are looked at.
const FILES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;

/// How a file was: its time, its length, and whether it is one that hides another.
type State = (i64, i64, u64, bool);

/// The files of the drive at a moment.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    laid_over: HashMap<PathBuf, State>,
    /// There are more files than are looked at, or some in deeper folders.
    pub(crate) is_cut: bool,
}

/// What became of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// In Windows.
    pub(crate) path: String,
    pub(crate) is_gone: bool,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment::of(Path::new(LAID_OVER))
    }

    fn of(top: &Path) -> Moment {
        let mut laid_over = HashMap::new();
        let is_whole = walk(top, &mut |path, about| {
            let hides = about.file_type().is_char_device();
            if about.is_file() || hides {
                let state = (about.mtime(), about.mtime_nsec(), about.len(), hides);
                laid_over.insert(path.strip_prefix(top).unwrap_or(path).to_owned(), state);
            }
        });
        Moment { laid_over, is_cut: !is_whole }
    }

    /// What is different since, in the order of the names.
    pub(crate) fn changes(&self, later: &Moment) -> Vec<Changed> {
        let is_other = |path: &PathBuf, state: &State| self.laid_over.get(path) != Some(state);
        let changed = later.laid_over.iter().filter(|(path, state)| is_other(path, state));
        let mut all: Vec<Changed> =
            changed.map(|(path, state)| Changed { path: in_windows(path), is_gone: state.3 }).collect();
        // What was only ever in memory leaves nothing behind when it is removed.
        let removed = self.laid_over.iter().filter(|(path, state)| !state.3 && !later.laid_over.contains_key(*path));
        all.extend(removed.map(|(path, _)| Changed { path: in_windows(path), is_gone: true }));
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

/// The user's own files that have something in them, by their names in Windows.
pub(crate) fn documents() -> HashSet<String> {
    let mut found = HashSet::new();
    walk(&Path::new(DRIVE).join("users"), &mut |path, about| {
        if about.is_file() && about.len() > 0 {
            found.insert(in_windows(path.strip_prefix(DRIVE).unwrap_or(path)));
        }
    });
    found
}

/// The name that Windows has for a file of the drive.
fn in_windows(path: &Path) -> String {
    format!("C:\\{}", path.to_string_lossy().replace('/', "\\"))
}

/// Where a file of Windows is, if it is on the drive; nothing else is meant by a name that leads out of it.
pub(crate) fn on_disk(path: &str) -> PathBuf {
    let rest = path.get(3..).unwrap_or_default().replace('\\', "/");
    let parts = rest.split('/').filter(|part| !part.is_empty() && *part != "." && *part != "..");
    parts.fold(PathBuf::from(DRIVE), |path, part| path.join(part))
}

/// All that is below a folder; links are not followed. False if that is more than is looked at.
fn walk(top: &Path, see: &mut dyn FnMut(&Path, &std::fs::Metadata)) -> bool {
    let (mut open, mut seen, mut is_whole) = (vec![(top.to_owned(), 0)], 0, true);
    while let Some((folder, depth)) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
            seen += 1;
            if seen > FILES_MAX {
                return false;
            }
            match about.is_dir() {
                true if depth < DEPTH_MAX => open.push((path, depth + 1)),
                true => is_whole = false,
                false => see(&path, &about),
            }
        }
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_between_two_moments_is_told() {
        let top = std::env::temp_dir().join(format!("weir-overlay-{}", std::process::id()));
        std::fs::create_dir_all(top.join("users/anna")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(top.join(name), text).unwrap();
        write("users/anna/same.txt", "x");
        write("users/anna/longer.txt", "x");
        write("users/anna/gone.txt", "x");
        let before = Moment::of(&top);
        write("users/anna/longer.txt", "xx");
        write("users/anna/new.exe", "MZ");
        std::fs::remove_file(top.join("users/anna/gone.txt")).unwrap();
        let changes = before.changes(&Moment::of(&top));
        std::fs::remove_dir_all(&top).unwrap();
        let told: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.is_gone)).collect();
        let at = |name: &str| format!("C:\\users\\anna\\{name}");
        assert_eq!(
            told,
            [(at("gone.txt").as_str(), true), (at("longer.txt").as_str(), false), (at("new.exe").as_str(), false)]
        );
    }

    #[test]
    fn what_is_too_deep_or_too_much_is_told() {
        let top = std::env::temp_dir().join(format!("weir-deep-{}", std::process::id()));
        let deep = |depth: usize| (0..depth).fold(top.clone(), |path, _| path.join("d"));
        std::fs::create_dir_all(deep(DEPTH_MAX)).unwrap();
        std::fs::write(deep(DEPTH_MAX).join("x.exe"), "MZ").unwrap();
        let within = Moment::of(&top);
        std::fs::create_dir(deep(DEPTH_MAX + 1)).unwrap();
        let beyond = Moment::of(&top);
        std::fs::remove_dir_all(&top).unwrap();
        assert_eq!((within.laid_over.len(), within.is_cut), (1, false));
        assert!(beyond.is_cut);
    }

    #[test]
    fn a_name_leads_nowhere_but_to_the_drive() {
        assert_eq!(on_disk("C:\\users\\x"), Path::new(DRIVE).join("users/x"));
        assert_eq!(on_disk("C:\\..\\..\\..\\etc\\shadow"), Path::new(DRIVE).join("etc/shadow"));
        assert_eq!(on_disk("\u{20ac}"), Path::new(DRIVE));
    }
}
