//! Mail from a Maildir: the Sent folder of one user, or of each user of a tree.
//!
//! A folder with a Sent folder in it (`.Sent`, as Maildir++ has it, or `Sent`) stands for that: its own `cur` and
//! `new` are what the user received. A folder with `cur` or `new` alone is read as it is. Any other folder is taken
//! to hold one folder a user, named after the user. Of a message file only the header is read.

use super::collected::{CollectError, Collected, Hint};
use super::header::{HEADER_MAX, WantedFields};
use super::lines::Lines;
use super::skipped::Reason;
use super::wall::Wall;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

const SENT: [&str; 6] = [".Sent", ".Sent Items", ".Sent Messages", ".INBOX.Sent", "Sent", "Sent Items"];
const GZIP: &[u8] = &[0x1f, 0x8b];

/// A folder to read, and the user it belongs to if its place says so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    user: Option<String>,
}

/// The folders of sent mail that `path` stands for; none if it is no Maildir.
pub(crate) fn folders(path: &Path) -> io::Result<Vec<Folder>> {
    if let Some(path) = sent_folder(path) {
        return Ok(vec![Folder { path, user: None }]);
    }
    let mut found = Vec::new();
    for user in sorted_entries(path)? {
        let named = user.file_name().map(|name| name.to_string_lossy().into_owned());
        let sent = sent_folder(&user).or_else(|| sent_folder(&user.join("Maildir")));
        found.extend(sent.map(|path| Folder { path, user: named }));
    }
    Ok(found)
}

pub(crate) fn read(folder: &Folder, collected: &mut Collected) -> Result<(), CollectError> {
    for part in ["cur", "new"] {
        let part = folder.path.join(part);
        if !part.is_dir() {
            continue;
        }
        for file in sorted_entries(&part)? {
            message(&file, folder.user.as_ref(), collected)?;
        }
    }
    Ok(())
}

fn message(path: &Path, user: Option<&String>, collected: &mut Collected) -> Result<(), CollectError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Only regular files: opening a pipe would wait for its writer.
    if name.starts_with('.') || !fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return Ok(());
    }
    let header = match read_header(path) {
        Ok(Content::Header(header)) => header,
        Ok(Content::Compressed) => {
            collected.skip(Reason::Compressed, || name);
            return Ok(());
        }
        Err(error) => {
            collected.skip(Reason::Unreadable, || format!("{name}: {error}"));
            return Ok(());
        }
    };
    let envelope = header.read(&name, collected);
    collected.add_filed(envelope, Hint { at: delivered(&name), user: user.cloned() }, name.into())
}

enum Content {
    Header(WantedFields),
    Compressed,
}

fn read_header(path: &Path) -> io::Result<Content> {
    let mut lines = Lines::new(BufReader::new(File::open(path)?), HEADER_MAX);
    let mut header = WantedFields::default();
    while let Some(line) = lines.next()? {
        if line.number == 1 && line.bytes.starts_with(GZIP) {
            return Ok(Content::Compressed);
        }
        if line.is_blank() {
            break;
        }
        header.push(line.bytes, line.cut);
    }
    Ok(Content::Header(header))
}

/// The time that a Maildir file name begins with: `1709296205.M1P2.host:2,S`.
fn delivered(name: &str) -> Option<Wall> {
    Wall::from_unix_seconds(name.split('.').next()?.parse().ok()?)
}

fn sent_folder(path: &Path) -> Option<PathBuf> {
    let is_folder = |path: &Path| path.join("cur").is_dir() || path.join("new").is_dir();
    let sent = SENT.iter().map(|name| path.join(name)).find(|path| is_folder(path));
    sent.or_else(|| is_folder(path).then(|| path.to_path_buf()))
}

fn sorted_entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collected::Wanted;

    fn file(root: &Path, path: &str, content: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read_all(root: &Path) -> Collected {
        let mut collected = Collected::new(Wanted::default());
        for folder in folders(root).unwrap() {
            read(&folder, &mut collected).unwrap();
        }
        collected
    }

    const MAIL: &[u8] = b"From: ann@x.org\nTo: bob@y.org\nDate: Fri, 1 Mar 2024 12:30:00 +0000\n\nTo: no@y.org\n";

    #[test]
    fn the_sent_folder_is_read_and_the_inbox_is_not() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "cur/1709296205.1.h:2,S", MAIL);
        assert_eq!(read_all(root.path()).mails.len(), 1);
        file(root.path(), ".Sent/new/1709296205.2.h", b"From: ann@x.org\nTo: bob@y.org\n\n");
        file(root.path(), ".Sent/cur/1709296206.3.h:2,S", MAIL);
        file(root.path(), ".Sent/cur/.hidden", MAIL);
        fs::create_dir(root.path().join(".Sent/cur/folder")).unwrap();
        let collected = read_all(root.path());
        let times: Vec<String> = collected.mails.iter().map(|mail| mail.at.to_string()).collect();
        assert_eq!(times, ["2024-03-01 12:30:00", "2024-03-01 12:30:05"], "the second by its file name");
        assert_eq!(collected.skipped.total(), 0);
    }

    #[test]
    fn a_tree_has_a_folder_a_user() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "ann/.Sent/cur/1.1.h", MAIL);
        file(root.path(), "ben/Maildir/.Sent Items/cur/1.1.h", MAIL);
        file(root.path(), "notes/readme.txt", b"hello");
        let users: Vec<String> = read_all(root.path()).mails.into_iter().map(|mail| mail.user).collect();
        assert_eq!(users, ["ann", "ben"]);
    }

    #[test]
    fn strange_files_are_counted() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "cur/1.gz", b"\x1f\x8b\x08\0\0");
        file(root.path(), "cur/2.empty", b"");
        file(root.path(), "cur/3.nul", &[0; 300_000]);
        file(root.path(), "cur/none", b"From: a@x.org\nTo: b@y.org\n\n");
        let collected = read_all(root.path());
        assert!(collected.mails.is_empty());
        let of = |reason| collected.skipped.count_of(reason);
        assert_eq!((of(Reason::Compressed), of(Reason::NoDate)), (1, 3));
    }
}
