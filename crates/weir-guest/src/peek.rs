//! Reading in the memory of a stopped process, and what its paths mean.

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Component, Path, PathBuf};
use weir_guest::behaviour::TEXT_MAX;

const PAGE: u64 = 4096;

/// Reads `length` bytes of a process, if they are there.
pub(crate) fn bytes(pid: i32, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut into = vec![0; length];
    let remote = [RemoteIoVec { base: at as usize, len: length }];
    let read = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut into)], &remote).ok()?;
    (read == length).then_some(into)
}

/// Writes into the memory of a stopped process; whether it worked.
pub(crate) fn write(pid: i32, at: u64, bytes: &[u8]) -> bool {
    let remote = [RemoteIoVec { base: at as usize, len: bytes.len() }];
    process_vm_writev(Pid::from_raw(pid), &[IoSlice::new(bytes)], &remote).is_ok_and(|written| written == bytes.len())
}

/// Text that ends with a zero, cut where it is too long.
pub(crate) fn text(pid: i32, at: u64) -> Option<String> {
    let (mut text, mut at) = (Vec::new(), at);
    if at == 0 {
        return None;
    }
    while text.len() < TEXT_MAX {
        // A page may be the last one that is there.
        let piece = bytes(pid, at, (PAGE - at % PAGE).min(256) as usize)?;
        let zero = piece.iter().position(|byte| *byte == 0);
        text.extend_from_slice(&piece[..zero.unwrap_or(piece.len())]);
        if zero.is_some() {
            break;
        }
        at += piece.len() as u64;
    }
    text.truncate(TEXT_MAX);
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The first six words of a 32-bit program.
pub(crate) fn words_32(pid: i32, at: u64) -> Option<[u64; 6]> {
    let bytes = bytes(pid, at, 24)?;
    let word = |n: usize| bytes.get(4 * n..4 * n + 4).and_then(|w| w.try_into().ok()).map_or(0, u32::from_ne_bytes);
    Some(std::array::from_fn(|n| word(n).into()))
}

pub(crate) fn word(pid: i32, at: u64) -> Option<u64> {
    bytes(pid, at, 8)?.try_into().ok().map(u64::from_ne_bytes)
}

/// Where a message has its address, and how long that is.
pub(crate) fn message_name(pid: i32, at: u64, short: bool) -> Option<(u64, u64)> {
    if short {
        let words = words_32(pid, at)?;
        return Some((words[0], words[1]));
    }
    let bytes = bytes(pid, at, 12)?;
    let name = bytes.get(..8)?.try_into().ok().map(u64::from_ne_bytes)?;
    let length = bytes.get(8..12)?.try_into().ok().map(u32::from_ne_bytes)?;
    Some((name, length.into()))
}

/// A path as the process means it: absolute, without dots.
pub(crate) fn path(pid: i32, folder: Option<i32>, at: u64) -> Option<String> {
    said(pid, folder, at).map(|path| plain(&path))
}

/// A path as the process says it, made absolute.
pub(crate) fn said(pid: i32, folder: Option<i32>, at: u64) -> Option<PathBuf> {
    let path = PathBuf::from(text(pid, at)?);
    if path.as_os_str().is_empty() {
        return None;
    }
    let base = match folder {
        _ if path.is_absolute() => PathBuf::from("/"),
        None | Some(libc::AT_FDCWD) => std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?,
        Some(folder) => std::fs::read_link(format!("/proc/{pid}/fd/{folder}")).ok()?,
    };
    Some(base.join(path))
}

/// Links that are followed on the way to one file, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A path without the links on the way to it, as the process means it, whether or not there is anything at its end. A link at the end is
/// followed if the call follows it.
///
/// This is what a name means at this moment: where a call has opened something, [`open_path`] is surer.
pub(crate) fn real(pid: i32, path: &Path, follows: bool) -> String {
    let mut ahead: Vec<String> = parts(path);
    let (mut real, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = ahead.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        // Of all processes these two are the reader's own, which is not us.
        real.push(match (real.to_str(), part.as_str()) {
            (Some("/proc"), "self") => pid.to_string(),
            (Some("/proc"), "thread-self") => format!("{pid}/task/{pid}"),
            _ => part,
        });
        if ahead.is_empty() && !follows {
            break;
        }
        let Ok(target) = std::fs::read_link(seen_by(pid, &real)) else { continue };
        links += 1;
        // Open files without a name, such as pipes, have a text in place of a path.
        let of_process = real.starts_with("/proc") && !target.is_absolute() && target.to_string_lossy().contains(":[");
        if links > LINKS_MAX || of_process {
            continue;
        }
        real.pop();
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        ahead.extend(parts(&target));
    }
    real.to_string_lossy().chars().take(TEXT_MAX).collect()
}

/// The parts of a path, the last one first; `..` is one, because behind a link it leads elsewhere than it seems to.
fn parts(path: &Path) -> Vec<String> {
    let part = |part: Component<'_>| match part {
        Component::ParentDir => Some("..".to_owned()),
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// Where we find what a process finds at this path, which has no links in it: its root may be another than ours.
pub(crate) fn seen_by(pid: i32, path: &Path) -> PathBuf {
    Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path))
}

/// Where an open file really is: links on the way to it are no more; none if it has no name.
pub(crate) fn open_path(pid: i32, file: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{file}")).ok()?;
    let gone = path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
    (path.is_absolute() && !gone).then(|| plain(&path))
}

/// Without dots; what is behind links is not looked at.
pub(crate) fn plain(path: &Path) -> String {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    plain.to_string_lossy().chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (path, plainly) in [("/tmp/../etc/./cron.d//x", "/etc/cron.d/x"), ("/../..", "/"), ("/a/b/..", "/a")] {
            assert_eq!(plain(Path::new(path)), plainly);
        }
    }

    #[test]
    fn links_are_followed_as_the_process_would() {
        let home = std::env::temp_dir().join(format!("weir-guest-links-{}", std::process::id()));
        let (folder, me) = (home.join("kept/deep"), std::process::id() as i32);
        std::fs::create_dir_all(&folder).unwrap();
        let home = home.canonicalize().unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, home.join(name)).unwrap();
        link("kept/deep", "to-folder");
        link("to-folder/key", "to-file");
        link("/etc/cron.d", "cron");
        link("round", "round");
        let real = |path: &str, follows| real(me, &home.join(path), follows);
        let here = |path: &str| home.join(path).to_string_lossy().into_owned();
        assert_eq!(real("to-file", true), here("kept/deep/key"), "a file that is not there");
        assert_eq!(real("to-file", false), here("to-file"), "the link itself");
        assert_eq!(real("to-folder/key", false), here("kept/deep/key"));
        assert_eq!(real("to-folder/../x", true), here("kept/x"), "the folder above is that of the target");
        assert_eq!(real("cron/new", true), "/etc/cron.d/new");
        assert!(real("round", true).ends_with("round"), "a link to itself has an end");
        assert_eq!(super::real(me, Path::new("/proc/self/root/etc/shadow"), true), "/etc/shadow");
        assert_eq!(super::real(me, Path::new("/proc/self/mem"), true), format!("/proc/{me}/mem"));
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn our_own_memory_can_be_read() {
        let (me, here) = (std::process::id() as i32, c"here I am");
        assert_eq!(text(me, here.as_ptr() as u64).as_deref(), Some("here I am"));
        assert_eq!(text(me, 0), None);
        assert_eq!(bytes(me, 1, 8), None);
    }
}
