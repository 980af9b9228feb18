//! The machine that a sample finds by asking the kernel: four processors, eight gigabytes of memory, a disk of half a terabyte.
//!
//! The files in `/proc` and `/sys` that it reads are replaced elsewhere (`guest/init`, `guest/lies`). This module changes the answers of
//! system calls, in the memory of the calling process, so that both agree. A guest of 256 MiB whose disk is smaller than a telephone's is
//! what a sample looks for first. 32-bit programs are told the truth.

use crate::peek;

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// How large a file system is (`statfs`, `fstatfs`).
    Disk,
    /// How much memory there is (`sysinfo`).
    Memory,
    /// Which processors it may run on (`sched_getaffinity`).
    Processors,
}

const OVERLAY: u64 = 0x794c_7630;
const EXT4: u64 = 0xef53;
const TMPFS: u64 = 0x0102_1994;
const BLOCK: u64 = 4096;
/// The disk, in blocks, and how many of them are in use.
const DISK: u64 = 120_127_488;
const DISK_USED: u64 = 52_311_904;
/// What the file system keeps for root.
const DISK_KEPT: u64 = DISK / 20;
const FILES: u64 = 30_531_584;
const FILES_USED: u64 = 1_204_331;
/// File systems in memory are half as large as that.
const MEMORY_DISK: u64 = 4_020_616 * 1024 / BLOCK;
/// As `guest/lies/meminfo` says it.
const MEMORY: u64 = 8_041_232 * 1024;
const MEMORY_FREE: u64 = 2_113_896 * 1024;
const MEMORY_BUFFERS: u64 = 301_924 * 1024;
/// The first four.
const PROCESSORS: u8 = 0b1111;

/// Changes the answer to a question, which is at this address of a stopped process; `returned` is what the call returned.
pub(crate) fn answer(pid: i32, question: Question, at: u64, returned: i64) {
    match question {
        Question::Disk => change(pid, at, 56, disk),
        Question::Memory => change(pid, at, 108, memory),
        Question::Processors if returned >= 1 => {
            peek::write(pid, at, &[PROCESSORS]);
        }
        Question::Processors => {}
    }
}

fn change(pid: i32, at: u64, length: usize, how: impl FnOnce(&mut Words)) {
    let Some(bytes) = peek::bytes(pid, at, length) else { return };
    let mut words = Words(bytes);
    how(&mut words);
    peek::write(pid, at, &words.0);
}

/// The fields of an answer, all eight bytes long.
struct Words(Vec<u8>);

impl Words {
    fn get(&self, number: usize) -> u64 {
        let bytes = self.0.get(8 * number..8 * number + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn set(&mut self, number: usize, value: u64) {
        if let Some(bytes) = self.0.get_mut(8 * number..8 * number + 8) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

/// Of `struct statfs`: type, size of a block, blocks, free ones, those for everybody, files, free ones.
fn disk(answer: &mut Words) {
    let used = answer.get(2).saturating_sub(answer.get(3)).saturating_mul(answer.get(1)) / BLOCK;
    match answer.get(0) {
        OVERLAY => {
            // What the sample writes takes room, as it should.
            let free = DISK.saturating_sub(DISK_USED + used);
            let words = [EXT4, BLOCK, DISK, free, free.saturating_sub(DISK_KEPT), FILES, FILES - FILES_USED];
            words.into_iter().enumerate().for_each(|(at, word)| answer.set(at, word));
        }
        TMPFS => {
            let free = MEMORY_DISK.saturating_sub(used);
            for (at, word) in [(1, BLOCK), (2, MEMORY_DISK), (3, free), (4, free)] {
                answer.set(at, word);
            }
        }
        _ => {}
    }
}

/// Of `struct sysinfo`: after the uptime and three loads memory, free, shared, for buffers, swap, free swap; the unit is behind the rest.
fn memory(answer: &mut Words) {
    for (at, word) in [(4, MEMORY), (5, MEMORY_FREE), (7, MEMORY_BUFFERS)] {
        answer.set(at, word);
    }
    if let Some(unit) = answer.0.get_mut(104..108) {
        unit.copy_from_slice(&1_u32.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[u64]) -> Words {
        Words(given.iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    #[test]
    fn a_small_disk_looks_large_and_fills() {
        let mut small = words(&[OVERLAY, 4096, 16_384, 16_000, 16_000, 100, 100]);
        disk(&mut small);
        assert_eq!((small.get(0), (small.get(2) * BLOCK) >> 30), (EXT4, 458));
        let mut fuller = words(&[OVERLAY, 4096, 16_384, 6_000, 6_000, 100, 100]);
        disk(&mut fuller);
        assert_eq!(small.get(3) - fuller.get(3), 10_000, "what is written is missing");
        let mut memory = words(&[TMPFS, 4096, 12_288, 12_288, 12_288, 100, 100]);
        disk(&mut memory);
        assert_eq!((memory.get(0), (memory.get(2) * BLOCK) >> 20, memory.get(5)), (TMPFS, 3926, 100));
        let mut other = words(&[0x9fa0, 4096, 0, 0, 0, 0, 0]);
        disk(&mut other);
        assert_eq!((other.get(0), other.get(2)), (0x9fa0, 0));
    }

    #[test]
    fn a_process_is_told_of_memory_and_processors() {
        let (mut asked, mut mask) = (vec![0_u8; 112], vec![0_u8; 8]);
        let me = std::process::id() as i32;
        answer(me, Question::Memory, asked.as_mut_ptr() as u64, 0);
        answer(me, Question::Processors, mask.as_mut_ptr() as u64, 8);
        let told = Words(asked);
        assert_eq!((told.get(4), told.0[104]), (MEMORY, 1));
        assert_eq!(mask[0], PROCESSORS);
        answer(me, Question::Processors, mask.as_mut_ptr() as u64 + 1, -22);
        assert_eq!(mask[1], 0, "a call that failed has no answer");
        // Nobody is there.
        answer(me, Question::Disk, 1, 0);
    }
}
