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
    let path = PathBuf::from(text(pid, at)?);
    if path.as_os_str().is_empty() {
        return None;
    }
    let base = match folder {
        _ if path.is_absolute() => PathBuf::from("/"),
        None | Some(libc::AT_FDCWD) => std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?,
        Some(folder) => std::fs::read_link(format!("/proc/{pid}/fd/{folder}")).ok()?,
    };
    Some(plain(&base.join(path)))
}

/// Where an open file really is: links on the way to it are no more; none if it has no name.
pub(crate) fn open_path(pid: i32, file: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{file}")).ok()?;
    let gone = path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
    (path.is_absolute() && !gone).then(|| plain(&path))
}

fn plain(path: &Path) -> String {
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
    fn our_own_memory_can_be_read() {
        let (me, here) = (std::process::id() as i32, c"here I am");
        assert_eq!(text(me, here.as_ptr() as u64).as_deref(), Some("here I am"));
        assert_eq!(text(me, 0), None);
        assert_eq!(bytes(me, 1, 8), None);
    }
}
