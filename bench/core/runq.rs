//! Run queues: what it costs to add a sample and to choose one, with a million waiting.
//!
//! Random priorities, eight needs classes, a hundred submitters, and only some classes servable at a time, as
//! when the VMs of a kind are all in use. Beside it: one list a queue scanned for the first servable sample (the
//! paper's lists, without head-of-line blocking), one ordered map, and one sorted vector.

use crate::table::{Table, interleaved};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::Duration;
use weir_core::runq::{
    Assignment, ClassId, Directory, Needs, Offer, Output, Plugins, RunQueues, Sample, Scheduler, Servable, Settings,
    Slab, Submission, SubmitterId, Tags, VmId,
};
use weir_core::time::Instant;
use weir_sim::rng::Rng;

const CLASSES: u16 = 4;
/// The first three classes have VMs that become free; the fourth waits.
const SERVED: u16 = 3;
const SUBMITTERS: u64 = 50;
const MILLION: usize = 1_000_000;

pub(crate) fn run(table: &mut Table) {
    let mut at_1k = Ours::new(1_000, Directories::All);
    let mut at_1m = Ours::new(MILLION, Directories::All);
    let mut one_queue = Ours::new(MILLION, Directories::One);
    let mut aged = Ours::new(MILLION, Directories::All);
    aged.servable.ageing = Some(Duration::from_secs(60));
    let mut map = OrderedMap::new(MILLION);
    let nanos = interleaved(
        7,
        200_000,
        &mut [
            &mut |n| at_1k.add_and_choose(n),
            &mut |n| at_1m.add_and_choose(n),
            &mut |n| one_queue.add_and_choose(n),
            &mut |n| aged.add_and_choose(n),
            &mut |n| map.add_and_choose(n),
        ],
    );
    let what = "run queues, add + choose";
    table.row(format!("{what}, 1 000 queued"), nanos[0], "random directories");
    table.row(format!("{what}, 1 000 000 queued"), nanos[1], "random directories");
    table.row(format!("{what}, 1 000 000 queued"), nanos[2], "all in one queue: every sample is a cache miss");
    table.row(format!("{what}, 1 000 000 queued, ageing"), nanos[3], "looks at every queue");
    table.row("  naive: one ordered map, 1 000 000 queued", nanos[4], "no submitters, O(log n)");
    naive_scans(table);
    whole_scheduler(table);
    table.figure("runq_ns_1m", nanos[1].max(nanos[2]));
}

fn naive_scans(table: &mut Table) {
    let mut lists = Lists::new(MILLION);
    let mut sorted = SortedVec::new(MILLION);
    let nanos = interleaved(3, 100, &mut [&mut |n| lists.add_and_choose(n), &mut |n| sorted.add_and_choose(n)]);
    table.row("  naive: one list a queue, scanned, 1 000 000 queued", nanos[0], "no submitters, O(n)");
    table.row("  naive: one sorted vector, 1 000 000 queued", nanos[1], "no submitters, O(n)");
}

/// Submitting, starting, reporting and reverting, with a million queued.
fn whole_scheduler(table: &mut Table) {
    let mut lab = Lab::new(MILLION);
    let nanos = interleaved(5, 50_000, &mut [&mut |n| lab.cycle(n)]);
    table.row("scheduler, submit to done, 1 000 000 queued", nanos[0], "20 machines of 8 VMs, 8 classes");
}

#[derive(Clone, Copy)]
enum Directories {
    All,
    One,
}

/// Where samples come from: the same for every variant.
struct Source {
    rng: Rng,
    directories: Directories,
    ticket: u64,
}

impl Source {
    fn new(directories: Directories) -> Source {
        Source { rng: Rng::new(1), directories, ticket: 0 }
    }

    fn directory(&mut self) -> Directory {
        let number = match self.directories {
            Directories::All => self.rng.below(96),
            Directories::One => 32,
        };
        Directory::new(number).unwrap_or(Directory::DEFAULT)
    }

    fn submitter(&mut self) -> SubmitterId {
        SubmitterId(self.rng.below(SUBMITTERS).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A class of those below `classes`: all of them at first; then those that are served, one for one.
    fn class(&mut self, classes: u16) -> u16 {
        self.rng.below(u64::from(classes)) as u16
    }

    fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }
}

struct Ours {
    samples: Slab<Sample>,
    queues: RunQueues,
    servable: Servable,
    source: Source,
}

impl Ours {
    fn new(queued: usize, directories: Directories) -> Ours {
        let mut servable = Servable { idle_from: 56, ..Servable::default() };
        (0..SERVED).for_each(|class| servable.ordinary.set(ClassId::numbered(class), true));
        let samples = Slab::with_capacity(queued + 1);
        let mut ours = Ours { samples, queues: RunQueues::default(), servable, source: Source::new(directories) };
        (0..queued).for_each(|_| ours.add(CLASSES));
        ours
    }

    fn add(&mut self, classes: u16) {
        let now = Instant(self.source.ticket() * 1_000);
        let class = ClassId::numbered(self.source.class(classes));
        let sample = Sample::new(self.source.directory(), self.source.submitter(), class);
        if let Some(key) = self.samples.insert(sample) {
            self.queues.add(&mut self.samples, key, now);
        }
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            self.add(SERVED);
            if let Some(key) = self.queues.choose(&mut self.samples, &self.servable) {
                black_box(self.samples.remove(key));
            }
        }
    }
}

/// (run queue, class, ticket), in order.
struct OrderedMap {
    waiting: BTreeMap<(u8, u16, u64), SubmitterId>,
    source: Source,
}

impl OrderedMap {
    fn new(queued: usize) -> OrderedMap {
        let mut map = OrderedMap { waiting: BTreeMap::new(), source: Source::new(Directories::All) };
        (0..queued).for_each(|_| map.add(CLASSES));
        map
    }

    fn add(&mut self, classes: u16) {
        let key = (self.source.directory().queue(), self.source.class(classes), self.source.ticket());
        self.waiting.insert(key, self.source.submitter());
    }

    fn choose(&self) -> Option<(u8, u16, u64)> {
        let first = |queue, class| self.waiting.range((queue, class, 0)..=(queue, class, u64::MAX)).next();
        let front =
            |queue| (0..SERVED).filter_map(|class| first(queue, class)).map(|(key, _)| *key).min_by_key(|k| k.2);
        (32..64).find_map(front)
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            self.add(SERVED);
            let chosen = self.choose().and_then(|key| self.waiting.remove(&key));
            black_box(chosen);
        }
    }
}

/// The paper's 64 lists, each scanned for the first sample that can be served.
struct Lists {
    queues: Vec<VecDeque<(u16, SubmitterId)>>,
    source: Source,
}

impl Lists {
    fn new(queued: usize) -> Lists {
        let mut lists = Lists { queues: vec![VecDeque::new(); 64], source: Source::new(Directories::All) };
        (0..queued).for_each(|_| lists.add(CLASSES));
        lists
    }

    fn add(&mut self, classes: u16) {
        let (queue, class) = (self.source.directory().queue(), self.source.class(classes));
        self.queues[usize::from(queue)].push_back((class, self.source.submitter()));
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            self.add(SERVED);
            let served = |list: &mut VecDeque<(u16, SubmitterId)>| {
                let first = list.iter().position(|(class, _)| *class < SERVED)?;
                list.remove(first)
            };
            black_box(self.queues.iter_mut().find_map(served));
        }
    }
}

/// One vector, the most urgent and oldest last.
struct SortedVec {
    waiting: Vec<(Reverse<(u8, u64)>, u16)>,
    source: Source,
}

impl SortedVec {
    fn new(queued: usize) -> SortedVec {
        let mut source = Source::new(Directories::All);
        let mut one = |_| (Reverse((source.directory().queue(), source.ticket())), source.class(CLASSES));
        let mut waiting: Vec<_> = (0..queued).map(&mut one).collect();
        waiting.sort_unstable();
        SortedVec { waiting, source }
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            let place = Reverse((self.source.directory().queue(), self.source.ticket()));
            let at = self.waiting.partition_point(|(other, _)| *other < place);
            self.waiting.insert(at, (place, self.source.class(SERVED)));
            if let Some(first) = self.waiting.iter().rposition(|(_, class)| *class < SERVED) {
                black_box(self.waiting.remove(first));
            }
        }
    }
}

/// The whole scheduler: every VM in use, one finishes, the next starts.
struct Lab {
    scheduler: Scheduler,
    source: Source,
    running: VecDeque<Assignment>,
}

impl Lab {
    fn new(queued: usize) -> Lab {
        let mut lab = Lab {
            scheduler: Scheduler::new(Settings::default()),
            source: Source::new(Directories::All),
            running: VecDeque::new(),
        };
        for machine in 0..20 {
            let offer = Offer { plugins: Plugins(1 << (machine % CLASSES)), tags: Tags::NONE };
            if let Ok(group) = lab.scheduler.plug(Instant::ZERO, &[offer; 8]) {
                (0..8).for_each(|number| assert!(lab.scheduler.ready(Instant::ZERO, VmId { group, number })));
            }
        }
        (0..queued).for_each(|_| lab.submit());
        lab
    }

    fn submit(&mut self) {
        let needs = Needs { plugins: Plugins(1 << self.source.class(CLASSES)), tags: Tags::NONE };
        let submission = Submission { directory: self.source.directory(), submitter: self.source.submitter(), needs };
        let taken = self.scheduler.submit(Instant(self.source.ticket()), &submission);
        assert!(taken.is_ok(), "the scheduler is full");
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.scheduler.poll() {
            match output {
                Output::Start(assignment) => self.running.push_back(assignment),
                Output::Ended { sample, .. } => assert!(self.scheduler.forget(sample)),
                Output::Stop { .. } => {}
            }
        }
    }

    fn cycle(&mut self, n: u64) {
        for _ in 0..n {
            self.submit();
            let Some(run) = self.running.pop_front() else { continue };
            let now = Instant(self.source.ticket());
            for plugin in run.plugins.iter() {
                self.scheduler.result(now, run.attempt, plugin, true);
            }
            self.scheduler.ready(now, run.vm);
            self.drain();
        }
    }
}
