//! Run queues: what it costs to add a sample and to choose one, with a million waiting.
//!
//! Random priorities, four needs classes, twenty submitters; one class cannot be served (the VMs of its kind are all
//! in use), and its samples have piled up in the urgent queues, where what can be served has gone. Beside it: one list a queue scanned for the first servable sample (the
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
const SUBMITTERS: u64 = 20;
const MILLION: usize = 1_000_000;

pub(crate) fn run(table: &mut Table) {
    let what = "run queues, add + choose";
    let nanos = ours(&mut Ours::new(1_000, Directories::All));
    table.row(format!("{what}, 1 000 queued"), nanos, "random directories");
    let random = ours(&mut Ours::new(MILLION, Directories::All));
    table.row(format!("{what}, 1 000 000 queued"), random, "random directories");
    let one = ours(&mut Ours::new(MILLION, Directories::One));
    table.row(format!("{what}, 1 000 000 queued"), one, "all in one run queue");
    let mut aged = Ours::new(MILLION, Directories::All);
    aged.servable.ageing = Some(Duration::from_secs(60));
    table.row(format!("{what}, 1 000 000 queued, ageing"), ours(&mut aged), "looks at every run queue");
    let mut map = OrderedMap::new(MILLION);
    let nanos = interleaved(21, 4_000, &mut [&mut |n| map.add_and_choose(n)]);
    table.row("  naive: one ordered map, 1 000 000 queued", nanos[0], "no submitters, O(log n)");
    naive_scans(table);
    whole_scheduler(table);
    table.figure("runq_ns_1m", random.max(one));
}

/// Many short rounds: on a shared machine most of them pass without an interruption. One variant at a time, because
/// others in between would empty the caches, which are a good part of what is measured.
fn ours(queues: &mut Ours) -> f64 {
    queues.add_and_choose(50_000);
    interleaved(101, 4_000, &mut [&mut |n| queues.add_and_choose(n)])[0]
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
    let nanos = interleaved(15, 5_000, &mut [&mut |n| lab.cycle(n)]);
    table.row("scheduler, submit to done, 1 000 000 queued", nanos[0], "20 machines of 8 VMs");
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

    /// The class of a sample that arrives: one that is served, so that the queues keep their length.
    fn class(&mut self) -> u16 {
        self.rng.below(u64::from(SERVED)) as u16
    }

    /// The class of a sample that waits from the beginning: what is served has gone from the urgent half.
    fn old_class(&mut self, directory: Directory) -> u16 {
        let urgent = matches!(self.directories, Directories::All) && directory.number() < 48;
        if urgent { SERVED } else { self.rng.below(u64::from(CLASSES)) as u16 }
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
        for _ in 0..queued {
            let directory = ours.source.directory();
            let class = ours.source.old_class(directory);
            ours.add(directory, class);
        }
        ours
    }

    fn add(&mut self, directory: Directory, class: u16) {
        let now = Instant(self.source.ticket() * 1_000);
        let sample = Sample::new(directory, self.source.submitter(), ClassId::numbered(class));
        if let Some(key) = self.samples.insert(sample) {
            self.queues.add(&mut self.samples, key, now);
        }
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            let (directory, class) = (self.source.directory(), self.source.class());
            self.add(directory, class);
            if let Some(key) = self.queues.choose(&mut self.samples, &self.servable) {
                black_box(self.samples.remove(key).is_some());
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
        for _ in 0..queued {
            let directory = map.source.directory();
            let class = map.source.old_class(directory);
            map.add(directory, class);
        }
        map
    }

    fn add(&mut self, directory: Directory, class: u16) {
        let key = (directory.queue(), class, self.source.ticket());
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
            let (directory, class) = (self.source.directory(), self.source.class());
            self.add(directory, class);
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
        for _ in 0..queued {
            let directory = lists.source.directory();
            let class = lists.source.old_class(directory);
            lists.add(directory, class);
        }
        lists
    }

    fn add(&mut self, directory: Directory, class: u16) {
        self.queues[usize::from(directory.queue())].push_back((class, self.source.submitter()));
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            let (directory, class) = (self.source.directory(), self.source.class());
            self.add(directory, class);
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
        let mut one = |_| {
            let directory = source.directory();
            (Reverse((directory.queue(), source.ticket())), source.old_class(directory))
        };
        let mut waiting: Vec<_> = (0..queued).map(&mut one).collect();
        waiting.sort_unstable();
        SortedVec { waiting, source }
    }

    fn add_and_choose(&mut self, n: u64) {
        for _ in 0..n {
            let place = Reverse((self.source.directory().queue(), self.source.ticket()));
            let at = self.waiting.partition_point(|(other, _)| *other < place);
            self.waiting.insert(at, (place, self.source.class()));
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
        let needs = Needs { plugins: Plugins(1 << self.source.rng.below(u64::from(CLASSES))), tags: Tags::NONE };
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
