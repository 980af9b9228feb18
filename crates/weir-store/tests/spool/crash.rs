//! The process is killed under load, again and again; what it said was committed is there.
//!
//! The child is this same test binary, told by an environment variable where to work. It writes a line to its standard output
//! after each promise, and the parent holds it to those lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_store::spool::{FoundMessage, MessageId, Options, Spool};

use crate::dice::{Dice, commit};

const WHERE: &str = "WEIR_SPOOL_CHILD";
const KILLS: u64 = 5;

/// What the children promised.
#[derive(Debug, Default)]
struct Promises {
    /// Committed: the seed of the body.
    committed: BTreeMap<MessageId, u64>,
    /// Marks that were flushed.
    marks: BTreeMap<MessageId, Vec<String>>,
    /// Finish was asked for: it may be gone, or back.
    finishing: Vec<MessageId>,
    /// Finished and flushed.
    finished: Vec<MessageId>,
}

#[tokio::test]
async fn what_was_committed_survives_kills() {
    let home = tempfile::tempdir().unwrap();
    let mut promises = Promises::default();
    let mut dice = Dice(std::process::id().into());
    for round in 0..KILLS {
        let said = run_and_kill(home.path(), 20 + dice.next() % 1500);
        let fresh = said.lines().filter(|line| promises.note(line)).count();
        let (spool, found) = Spool::open(home.path(), options()).unwrap();
        assert!(spool.damage().is_empty(), "round {round}: {:?}", spool.damage());
        promises.check(&spool, &found).await.unwrap_or_else(|problem| panic!("round {round}: {problem}"));
        assert!(fresh > 10, "round {round}: the child did nothing: {said}");
    }
}

/// The load; does nothing unless this process is a child.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(WHERE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(load(Path::new(&folder)));
}

fn options() -> Options {
    Options { segment_bytes: 1 << 20, keep_bytes: 1 << 16, compact_below: 0.3, ..Options::default() }
}

async fn load(folder: &Path) {
    let (spool, _) = Spool::open(folder, options()).unwrap();
    let sessions: Vec<_> = (0..8).map(|number| tokio::spawn(session(spool.clone(), number))).collect();
    for session in sessions {
        session.await.unwrap();
    }
}

async fn session(spool: Spool, number: u64) {
    let mut dice = Dice(number ^ u64::from(std::process::id()) << 8);
    loop {
        let seed = dice.next();
        let id = commit(&spool, &body(seed), &seed.to_le_bytes()).await.unwrap();
        say(&format!("committed {id} {seed}"));
        if dice.one_in(2) {
            spool.mark(id, format!("mark {seed}").into_bytes()).unwrap();
            spool.flush().await.unwrap();
            say(&format!("marked {id} {seed}"));
        }
        if !dice.one_in(4) {
            say(&format!("finishing {id} 0"));
            spool.finish(id).unwrap();
            if dice.one_in(3) {
                spool.flush().await.unwrap();
                say(&format!("finished {id} 0"));
            }
        }
    }
}

fn body(seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let length = if dice.one_in(20) { 200_000 } else { dice.below(6000) };
    dice.bytes(length)
}

/// One write a line, so that a kill cannot mix two.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Runs a child until it has made so many promises, kills it, and returns all that it said.
fn run_and_kill(folder: &Path, promises: u64) -> String {
    let mut child = start(folder);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..promises {
        output.read_line(&mut said).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    said + &String::from_utf8_lossy(&rest)
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(WHERE, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

impl Promises {
    /// Whether the line was a promise.
    fn note(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, id, seed] = words[..] else { return false };
        let (Ok(id), Ok(seed)) = (id.parse(), seed.parse()) else { return false };
        match what {
            "committed" => drop(self.committed.insert(id, seed)),
            "marked" => self.marks.entry(id).or_default().push(format!("mark {seed}")),
            "finishing" => self.finishing.push(id),
            "finished" => self.finished.push(id),
            _ => return false,
        }
        true
    }

    async fn check(&mut self, spool: &Spool, found: &[FoundMessage]) -> Result<(), String> {
        for id in &self.finished {
            if spool.contains(*id) {
                return Err(format!("{id} was finished and is back"));
            }
        }
        for found in found {
            let seed = u64::from_le_bytes(found.envelope[..].try_into().map_err(|_| "another envelope")?);
            let read = spool.body(found.id).map_err(|error| error.to_string())?;
            if read.read_all().await.map_err(|error| error.to_string())? != body(seed) {
                return Err(format!("{} has another body", found.id));
            }
            let promised = self.marks.get(&found.id).cloned().unwrap_or_default();
            let marks: Vec<String> =
                found.marks.iter().map(|mark| String::from_utf8_lossy(mark).into_owned()).collect();
            if !self.finishing.contains(&found.id) && promised.iter().any(|mark| !marks.contains(mark)) {
                return Err(format!("{} has lost a mark", found.id));
            }
        }
        for (id, seed) in &self.committed {
            if !self.finishing.contains(id) && !spool.contains(*id) {
                return Err(format!("{id} (seed {seed}) was committed and is lost"));
            }
        }
        // What was on its way out is settled now, either way.
        for id in self.finishing.drain(..) {
            self.committed.remove(&id);
            if spool.contains(id) {
                spool.finish(id).map_err(|error| error.to_string())?;
            }
            self.finished.push(id);
        }
        spool.flush().await.map_err(|error| error.to_string())
    }
}
