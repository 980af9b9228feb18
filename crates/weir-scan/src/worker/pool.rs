//! The pool: as many workers as there are processors, each with one message at a time, and as many again for what is large.
//!
//! A large message is a tenth of a second of work or more. So it never takes a place from small ones, and its workers have a low priority:
//! what is small is looked at within a millisecond while they compute, and large messages lose no more than that to it.
//!
//! Workers start when they are needed, stay, and are replaced after some thousand messages, or when the setup changes: then the
//! next message goes to a new one. A worker that dies or hangs is replaced too; its message has failed once. A caller that goes
//! away takes its worker with it.

use super::process::{Process, WorkerError, WorkerProgram};
use crate::content::Content;
use crate::deadline::Deadline;
use crate::examine::{Report, Setup};
use crate::samples::Candidate;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use weir_settings::settings;

settings! {
    /// How a pool works.
    #[derive(PartialEq, Eq)]
    pub struct Settings {
        /// Processes at once, and as many again for messages above 256 KiB; 0 for as many as there are processors
        pub workers: usize = number(0, 0..=1024),
        /// Address space of one process
        pub memory: u64 = size(MEMORY, "256MiB"..="64GiB"),
        /// A process is replaced after this many messages
        pub messages: u32 = number(5_000, 1..=1_000_000),
        /// How long a worker may have a message, by its size.
        pub deadline: Deadline = part_by(|section| Deadline::secs(30, 1).read(section)),
        /// How long a message waits for a free process
        pub wait: Duration = duration("1m", "1s"..="1h"),
        /// What is started.
        pub program: WorkerProgram = fixed(WorkerProgram::itself(MEMORY)),
    }
}

/// The address space of a worker: a message, what is unpacked from it, the rules, and room to move.
pub const MEMORY: u64 = 1 << 30;

impl Settings {
    /// The longest that a message of this length can take: to wait for a place, to start a worker, and to be looked at. One worker
    /// that was found dead is replaced on the way.
    pub fn patience(&self, length: u64) -> Duration {
        self.wait + 2 * START_MAX + self.deadline.of(length)
    }
}

/// Workers for content of one kind.
#[derive(Debug)]
struct Crew {
    places: Semaphore,
    idle: Mutex<Vec<Process>>,
    gives_way: bool,
}

/// A worker that has used so much is replaced, far from the kernel's own limit.
const PROCESSOR_MAX: Duration = Duration::from_secs(super::fence::PROCESSOR_MAX.as_secs() / 2);
/// To compile a large set of rules.
const START_MAX: Duration = Duration::from_secs(60);

/// Longer content goes to the workers for what is large.
const LARGE: u64 = 256 << 10;
/// How many steps of priority (nice) these are below all else: beside another program that computes they get a tenth of a processor.
const GIVES_WAY: i32 = 10;

/// The pool. Shared by reference.
#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    small: Crew,
    large: Crew,
    setup: Mutex<(u64, Content)>,
    started: AtomicU64,
    lost: AtomicU64,
}

impl Pool {
    /// A pool without workers yet. The rules of the setup must compile.
    pub fn new(settings: Settings, setup: &Setup) -> std::io::Result<Pool> {
        let workers = match settings.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        };
        Ok(Pool {
            settings,
            small: Crew::new(workers, false),
            large: Crew::new(workers, true),
            setup: Mutex::new((0, content_of(setup)?)),
            started: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// From the next message on, this setup is in force.
    pub fn change(&self, setup: &Setup) -> std::io::Result<()> {
        let content = content_of(setup)?;
        let mut current = lock(&self.setup);
        *current = (current.0 + 1, content);
        drop(current);
        for crew in [&self.small, &self.large] {
            lock(&crew.idle).clear();
        }
        Ok(())
    }

    /// The setup in force.
    pub fn setup(&self) -> std::io::Result<Setup> {
        let content = lock(&self.setup).1.clone();
        let mut bytes = vec![0; usize::try_from(content.length()).map_err(std::io::Error::other)?];
        content.read_at(&mut bytes, 0)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Has a message looked at by some worker.
    pub async fn examine(&self, content: &Content) -> Result<Report, WorkerError> {
        self.look(content, false).await
    }

    /// Has content looked at that may be a file of any kind, or a message.
    pub async fn examine_file(&self, content: &Content) -> Result<Report, WorkerError> {
        self.look(content, true).await
    }

    async fn look(&self, content: &Content, is_file: bool) -> Result<Report, WorkerError> {
        let crew = self.crew(content);
        let _place = self.place(crew).await?;
        loop {
            let fresh = lock(&crew.idle).is_empty();
            let mut worker = self.worker(crew).await?;
            let deadline = self.settings.deadline.of(content.length());
            let looked = timeout(deadline, worker.examine(content, is_file))
                .await
                .unwrap_or(Err(WorkerError::TooLong(deadline)));
            match looked {
                Ok(report) => {
                    self.keep(crew, worker);
                    return Ok(report);
                }
                // It died while it had nothing to do, which is not this message's fault.
                Err(WorkerError::GoneBefore) if !fresh => self.lose(),
                Err(error) => {
                    self.lose();
                    return Err(error);
                }
            }
        }
    }

    /// Gets one file out of a message; none if it is not there.
    pub async fn extract(&self, content: &Content, wanted: &Candidate) -> Result<Option<Vec<u8>>, WorkerError> {
        let crew = self.crew(content);
        let _place = self.place(crew).await?;
        let mut worker = self.worker(crew).await?;
        let deadline = self.settings.deadline.of(content.length());
        let taken = timeout(deadline, worker.extract(content, wanted)).await;
        self.came_back(crew, worker, taken.unwrap_or(Err(WorkerError::TooLong(deadline))))
    }

    /// The attachments of a message, and how many more there are.
    pub async fn attachments(&self, content: &Content) -> Result<(Vec<Candidate>, usize), WorkerError> {
        let crew = self.crew(content);
        let _place = self.place(crew).await?;
        let mut worker = self.worker(crew).await?;
        let deadline = self.settings.deadline.of(content.length());
        let listed = timeout(deadline, worker.attachments(content)).await;
        self.came_back(crew, worker, listed.unwrap_or(Err(WorkerError::TooLong(deadline))))
    }

    /// Who looks at such content.
    fn crew(&self, content: &Content) -> &Crew {
        if content.length() > LARGE { &self.large } else { &self.small }
    }

    async fn place<'c>(&self, crew: &'c Crew) -> Result<SemaphorePermit<'c>, WorkerError> {
        let wait = self.settings.wait;
        let place = timeout(wait, crew.places.acquire()).await.map_err(|_| WorkerError::NoneFree(wait))?;
        place.map_err(|_| WorkerError::Confused)
    }

    /// A worker that answered is kept for the next message.
    fn came_back<T>(&self, crew: &Crew, worker: Process, answer: Result<T, WorkerError>) -> Result<T, WorkerError> {
        match &answer {
            Ok(_) => self.keep(crew, worker),
            Err(_) => self.lose(),
        }
        answer
    }

    /// How many workers were started, and how many of them died or were ended.
    pub fn counts(&self) -> (u64, u64) {
        (self.started.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    async fn worker(&self, crew: &Crew) -> Result<Process, WorkerError> {
        let (generation, setup) = lock(&self.setup).clone();
        if let Some(worker) = lock(&crew.idle).pop().filter(|worker| worker.generation == generation) {
            return Ok(worker);
        }
        self.started.fetch_add(1, Ordering::Relaxed);
        let started = timeout(START_MAX, Process::start(&self.settings.program, &setup, generation)).await;
        let worker = started.unwrap_or(Err(WorkerError::TooLong(START_MAX)))?;
        if crew.gives_way {
            worker.give_way(GIVES_WAY);
        }
        Ok(worker)
    }

    fn keep(&self, crew: &Crew, worker: Process) {
        let current = lock(&self.setup).0 == worker.generation;
        if current && worker.served < self.settings.messages && worker.processor < PROCESSOR_MAX {
            lock(&crew.idle).push(worker);
        }
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Crew {
    fn new(workers: usize, gives_way: bool) -> Crew {
        Crew { places: Semaphore::new(workers), idle: Mutex::new(Vec::new()), gives_way }
    }
}

fn content_of(setup: &Setup) -> std::io::Result<Content> {
    Content::of(&serde_json::to_vec(setup)?)
}

/// No state here can be half changed, so a panic elsewhere changes nothing.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
