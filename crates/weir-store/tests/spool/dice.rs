//! A small seeded generator, and the things that tests make by the thousand.

use std::path::Path;

use tempfile::TempDir;
use weir_store::spool::{MessageId, Options, Spool, SpoolError};

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Uniform in 0 … n−1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A folder in memory where there is one: these tests sync a lot, and what they ask of a sync they check themselves.
pub(crate) fn quick_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a temporary folder")
}

/// Segments so small that everything happens at once.
pub(crate) fn tiny() -> Options {
    Options {
        segment_bytes: 8192,
        queue_bytes: 256 * 1024,
        keep_bytes: 4096,
        free_floor_bytes: 0,
        marks_every: std::time::Duration::ZERO,
        compact_below: 0.4,
        spare_newest: 1,
        ..Options::default()
    }
}

/// Commits one message.
pub(crate) async fn commit(spool: &Spool, body: &[u8], envelope: &[u8]) -> Result<MessageId, SpoolError> {
    let mut draft = spool.draft()?;
    draft.write(body).await?;
    draft.commit(envelope).await
}

/// A runtime for one test.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
