//! Clients that read their responses more slowly than the servers send them, and what is buffered for them.
//!
//! As long as there is room, they may be as slow as they like. When there is no room for another response, clients that read below the
//! configured rate are cut off: in the subnet that holds the most, the slowest first, until part of the room is free again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::fair::SubnetKey;

use crate::admission::Reader;

/// All clients for which something is buffered.
#[derive(Debug, Default)]
pub(super) struct Readers {
    entries: Mutex<HashMap<u64, SlowReader>>,
    next: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug)]
struct SlowReader {
    reader: Arc<dyn Reader>,
    subnet: SubnetKey,
    progress: Arc<ReaderProgress>,
}

/// The progress of one of them.
#[derive(Debug)]
pub(super) struct ReaderProgress {
    held: AtomicU64,
    taken: AtomicU64,
    /// Its server waits, because there is no room for the rest.
    wants_room: AtomicBool,
    since: Instant,
    /// When its client was cut off.
    cut_at: OnceLock<Instant>,
}

impl ReaderProgress {
    /// How many octets it has read, and how much is held for it now.
    pub(super) fn note(&self, taken: usize, held: u64) {
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        self.held.store(held, Ordering::Relaxed);
    }

    /// Notes a piece that h2 holds. Nobody knows how much of it has been read, so all of it counts as read from the beginning: its client is slow only
    /// if even that would have been too little.
    pub(super) fn note_piece(&self, octets: usize) {
        self.note(octets, octets as u64);
    }

    /// Notes whether there is no room for what its server sends.
    pub(super) fn want_room(&self, wants: bool) {
        self.wants_room.store(wants, Ordering::Relaxed);
    }

    fn rate(&self, age: Duration) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed) as f64;
        (taken / age.as_secs_f64().max(1e-3)) as u64
    }
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    readers: Arc<Readers>,
    number: u64,
    pub(super) progress: Arc<ReaderProgress>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.readers.lock().remove(&self.number);
    }
}

/// No client is judged by less time than this.
const LEAST_AGE: Duration = Duration::from_secs(1);
/// A client that was cut off is gone within this time. What is still held after it belongs to a connection that stays, and another cut would not free it.
const LEAVING: Duration = Duration::from_secs(1);

impl Readers {
    pub(super) fn register(self: &Arc<Readers>, reader: Arc<dyn Reader>, subnet: SubnetKey) -> Registered {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let [held, taken] = [AtomicU64::new(0), AtomicU64::new(0)];
        let (wants_room, since, cut_at) = (AtomicBool::new(false), Instant::now(), OnceLock::new());
        let progress = Arc::new(ReaderProgress { held, taken, wants_room, since, cut_at });
        self.lock().insert(number, SlowReader { reader, subnet, progress: Arc::clone(&progress) });
        Registered { readers: Arc::clone(self), number, progress }
    }

    /// Asks for each client again whether there is room for what it holds, because others may have gone. `lacks_room` is given the subnet and the octets.
    pub(super) fn look_again(&self, lacks_room: impl Fn(SubnetKey, u64) -> bool) {
        for SlowReader { subnet, progress, .. } in self.lock().values() {
            progress.want_room(lacks_room(*subnet, progress.held.load(Ordering::Relaxed)));
        }
    }

    /// Whether some client finds no room.
    pub(super) fn want_room(&self) -> bool {
        self.lock().values().any(|entry| entry.progress.wants_room.load(Ordering::Relaxed))
    }

    /// Cuts off the slowest of the subnets that hold the most, until `wanted` octets are free or nobody is slower than `rate`.
    pub(super) fn make_room(&self, wanted: u64, rate: u64) {
        let mut slow = self.slow(rate);
        let (mut freed, mut cut) = (0, HashSet::new());
        while freed < wanted
            && let Some(victim) = slow.pop()
        {
            freed += victim.held;
            // One of them may hold many pieces.
            let is_new = victim.progress.cut_at.set(Instant::now()).is_ok();
            if is_new && cut.insert(Arc::as_ptr(&victim.reader).cast::<()>()) {
                victim.reader.cut();
                self.cut.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many clients were cut off.
    pub(super) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Clients below a rate, the slowest last.
    fn slow(&self, rate: u64) -> Vec<Slow> {
        let entries = self.lock();
        let mut held: HashMap<SubnetKey, u64> = HashMap::new();
        for entry in entries.values() {
            *held.entry(entry.subnet).or_default() += entry.progress.held.load(Ordering::Relaxed);
        }
        let slow = entries.values().filter_map(|entry| {
            let age = entry.progress.since.elapsed();
            let own = entry.progress.rate(age);
            let stays = entry.progress.cut_at.get().is_some_and(|at| at.elapsed() >= LEAVING);
            (age >= LEAST_AGE && own < rate && !stays).then(|| Slow {
                subnet_held: held.get(&entry.subnet).copied().unwrap_or(0),
                subnet: entry.subnet,
                rate: own,
                held: entry.progress.held.load(Ordering::Relaxed),
                progress: Arc::clone(&entry.progress),
                reader: Arc::clone(&entry.reader),
            })
        });
        let mut slow: Vec<Slow> = slow.filter(|slow| slow.held > 0).collect();
        drop(entries);
        slow.sort_by_key(|slow| (slow.subnet_held, slow.subnet, std::cmp::Reverse(slow.rate)));
        slow
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, SlowReader>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Slow {
    subnet_held: u64,
    subnet: SubnetKey,
    rate: u64,
    held: u64,
    progress: Arc<ReaderProgress>,
    reader: Arc<dyn Reader>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Noted(AtomicBool);

    impl Reader for Noted {
        fn cut(&self) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn blocks(&self, _: bool) {}

        fn blocked(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_of_the_largest_subnet_pays_first() {
        let readers = Arc::new(Readers::default());
        // Subnet, octets held, octets taken.
        let who = [(1, 500, 10), (1, 500, 5), (2, 600, 0), (1, 500, 100_000), (3, 10_000, 50_000)];
        let all = who.map(|(subnet, held, taken)| {
            let noted = Arc::new(Noted::default());
            let registered = readers.register(Arc::clone(&noted) as Arc<dyn Reader>, SubnetKey(subnet));
            registered.progress.note(taken, held);
            (noted, registered)
        });
        let cut = || all.iter().map(|(noted, _)| noted.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert!(!readers.want_room());
        all[4].1.progress.want_room(true);
        assert!(readers.want_room());
        readers.make_room(1, 1_000);
        assert_eq!(cut(), [false; 5], "too early to tell");
        tokio::time::advance(Duration::from_secs(2)).await;
        readers.make_room(1, 1_000);
        assert_eq!(cut(), [false, true, false, false, false]);
        readers.make_room(5_000, 1_000);
        assert_eq!(cut(), [true, true, true, false, false], "who reads is left alone, whatever it holds");
        drop(all);
        assert!(readers.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_been_cut_off_is_counted_once_and_hides_nobody_else() {
        let readers = Arc::new(Readers::default());
        let noted = [(); 2].map(|()| Arc::new(Noted::default()));
        let piece = |reader: &Arc<Noted>, subnet, octets| {
            let registered = readers.register(Arc::clone(reader) as Arc<dyn Reader>, SubnetKey(subnet));
            registered.progress.note_piece(octets);
            registered
        };
        // The first is a stream of another proxy, which keeps its pieces although it has ended.
        let _kept = [(); 3].map(|()| piece(&noted[0], 1, 500));
        let _other = piece(&noted[1], 2, 100);
        tokio::time::advance(Duration::from_secs(2)).await;
        for _ in 0..3 {
            readers.make_room(1_500, 4_096);
            assert_eq!(
                (noted[1].0.load(Ordering::Relaxed), readers.cut()),
                (false, 1),
                "what it held is about to be free"
            );
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        tokio::time::advance(LEAVING).await;
        readers.make_room(1, 4_096);
        assert_eq!((noted[1].0.load(Ordering::Relaxed), readers.cut()), (true, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_may_take_as_long_as_a_client_needs_that_is_fast_enough() {
        let readers = Arc::new(Readers::default());
        let noted = Arc::new(Noted::default());
        let registered = readers.register(Arc::clone(&noted) as Arc<dyn Reader>, SubnetKey(1));
        registered.progress.note_piece(8_192);
        for (waited_ms, cut) in [(1_500, false), (400, false), (200, true)] {
            tokio::time::advance(Duration::from_millis(waited_ms)).await;
            readers.make_room(1, 4_096);
            assert_eq!(noted.0.load(Ordering::Relaxed), cut, "{waited_ms} ms more");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_cut_off_for_room_that_has_come() {
        let readers = Arc::new(Readers::default());
        let noted = Arc::new(Noted::default());
        let registered = readers.register(Arc::clone(&noted) as Arc<dyn Reader>, SubnetKey(7));
        registered.progress.note_piece(500);
        registered.progress.want_room(true);
        readers.look_again(|subnet, octets| (subnet, octets) == (SubnetKey(7), 500));
        assert!(readers.want_room());
        readers.look_again(|_, _| false);
        assert!(!readers.want_room());
    }
}
