//! Removes what plugins of a former process have left behind. This must not delay the start of a machine, so it is moved aside at once and
//! removed by a thread in the background, even if a plugin has taken away the permissions to do so.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How deeply nested folders are opened before they are removed.
const DEPTH_MAX: usize = 64;

/// Moves the job folder aside, and starts to remove it and everything that was moved aside earlier. Job folders have unique names,
/// so one that cannot even be moved does no harm.
pub(super) fn put_aside(jobs: &Path) {
    let Some(name) = jobs.file_name().and_then(|name| name.to_str()) else { return };
    let begin = format!(".{name}.old-");
    let aside = jobs.with_file_name(format!("{begin}{}-{}", std::process::id(), stamp()));
    match fs::rename(jobs, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder = %jobs.display(), %error, "what earlier jobs left cannot be put aside");
        }
        _ => {}
    }
    let old: Vec<PathBuf> = jobs.parent().into_iter().flat_map(|home| begins_with(home, &begin)).collect();
    if !old.is_empty() {
        std::thread::spawn(move || old.iter().for_each(|folder| remove(folder)));
    }
}

fn stamp() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

fn begins_with(home: &Path, begin: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(home) else { return Vec::new() };
    let old = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(begin));
    old.map(|entry| entry.path()).collect()
}

/// Removes a folder that is no longer used.
pub(super) fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_ok() {
        return;
    }
    open_up(folder, 0);
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!(folder = %folder.display(), %error, "what a job left cannot be removed");
    }
}

/// Gives us access to every folder; links are not followed.
fn open_up(folder: &Path, depth: usize) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|_| depth < DEPTH_MAX) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path(), depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_out_of_the_way_at_once_and_gone_soon() {
        let home = tempfile::tempdir().unwrap();
        let jobs = home.path().join("jobs");
        fs::create_dir_all(jobs.join("1-strings/output/locked/deep")).unwrap();
        fs::set_permissions(jobs.join("1-strings/output/locked"), fs::Permissions::from_mode(0o000)).unwrap();
        put_aside(&jobs);
        assert!(!jobs.exists());
        while fs::read_dir(home.path()).unwrap().next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        put_aside(&jobs);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "there was nothing");
    }
}
