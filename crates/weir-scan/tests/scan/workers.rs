//! Real worker processes: the fence, deaths, replacement, reload.

use crate::mail::{attached, eicar, found, member, zip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use weir_scan::content::Content;
use weir_scan::deadline::Deadline;
use weir_scan::examine::Setup;
use weir_scan::inspect::{About, Inspect};
use weir_scan::made::{Blocked, Made};
use weir_scan::panel::{self, Panel};
use weir_scan::samples::{Candidate, SamplePolicy, Sort};
use weir_scan::verdict::Outcome;
use weir_scan::worker::pool::{Pool, Settings};
use weir_scan::worker::scanner::Workers;
use weir_scan::worker::{WorkerError, WorkerProgram};
use weir_scan::yara::RuleFile;

/// The worker is an example of this crate. A test of the whole workspace has built it; one of this file alone has not, so
/// it is asked for where it is missing or older than what it is made of. That build may take minutes: it chooses other
/// features for the crates below.
pub(crate) fn worker() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let test = std::env::current_exe().unwrap();
        let profiles = test.ancestors().find(|folder| folder.join(".rustc_info.json").exists()).unwrap();
        let worker = profiles.join("debug/examples/scan_worker");
        if changed(&worker).is_none_or(|built| built < newest(Path::new(env!("CARGO_MANIFEST_DIR")))) {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--locked", "--example", "scan_worker"]);
            assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        }
        worker
    };
    BUILT.get_or_init(build).clone()
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().ok()?.modified().ok()
}

/// When the newest source file of a crate was changed.
fn newest(package: &Path) -> SystemTime {
    let mut folders = vec![package.join("src"), package.join("examples")];
    let mut newest = changed(&package.join("Cargo.toml")).unwrap();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            newest = newest.max(changed(&path).unwrap());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    newest
}

pub(crate) fn settings(arguments: &[&str]) -> Settings {
    let arguments = arguments.iter().map(Into::into).collect();
    Settings { workers: 2, program: WorkerProgram { path: worker(), arguments }, ..Settings::default() }
}

fn attempt(what: &str) -> Output {
    Command::new(worker()).args(["--try", what]).output().unwrap()
}

#[test]
fn the_fence_stands() {
    use std::os::unix::process::ExitStatusExt;
    for (what, answer) in [
        ("nothing", "nothing: done\n"),
        ("open", "open: refused\n"),
        ("write", "write: refused\n"),
        ("thread", "thread: refused\n"),
        ("memory", "memory: refused\n"),
        ("program", "program: refused\n"),
    ] {
        let output = attempt(what);
        assert_eq!(String::from_utf8_lossy(&output.stdout), answer, "{what}: {output:?}");
    }
    assert_eq!(attempt("socket").status.signal(), Some(libc::SIGSYS), "a socket is deadly");
    let overflow = attempt("stack").status.signal();
    assert!(matches!(overflow, Some(libc::SIGSEGV | libc::SIGABRT)), "a stack overflow ends the worker: {overflow:?}");
}

#[test]
fn a_worker_started_by_hand_says_what_it_is() {
    let output = Command::new(worker()).stdin(std::process::Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("this verb is for Weir itself"), "{output:?}");
}

#[tokio::test]
async fn messages_are_looked_at() {
    let pool = Pool::new(settings(&[]), &Setup::default()).unwrap();
    let clean = pool.examine(&Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap()).await.unwrap();
    assert_eq!(found(&clean), Vec::<String>::new());
    let message = attached("a.txt", &eicar());
    let infected = pool.examine(&Content::of(&message).unwrap()).await.unwrap();
    assert_eq!(found(&infected), ["infected EICAR_test_file @ a.txt"]);
    assert_eq!(pool.counts(), (1, 0), "one worker served both");
}

#[tokio::test]
async fn files_that_are_worth_it_are_named_and_come_out_on_request() {
    let script = b"#!/bin/sh\necho hello\n";
    let samples = SamplePolicy { sorts: [Sort::Scripts].into(), ..SamplePolicy::default() };
    let pool = Pool::new(settings(&[]), &Setup { samples, ..Setup::default() }).unwrap();
    // The archive is opened: what is in it is the sample.
    let message = Content::of(&attached("a.zip", &zip(&[member("run.sh", script)]))).unwrap();
    let report = pool.examine(&message).await.unwrap();
    assert_eq!(report.samples.len(), 1, "{report:?}");
    let file = &report.samples[0];
    assert_eq!((file.name.as_str(), file.size, file.why.as_str()), ("run.sh", script.len() as u64, "a script"));
    assert_eq!(pool.extract(&message, file).await.unwrap().as_deref(), Some(&script[..]));
    let other = Candidate { sha256: "00".repeat(32), ..file.clone() };
    assert_eq!(pool.extract(&message, &other).await.unwrap(), None);
    let (all, left_out) = pool.attachments(&message).await.unwrap();
    assert_eq!((all.len(), all[0].name.as_str(), left_out), (1, "a.zip", 0));
    // More than a pipe holds.
    let large = [&b"#!/bin/sh\n"[..], &vec![b'x'; 3 << 20]].concat();
    let message = Content::of(&attached("large.sh", &large)).unwrap();
    let file = pool.examine(&message).await.unwrap().samples.remove(0);
    assert_eq!(pool.extract(&message, &file).await.unwrap(), Some(large));
    assert_eq!(pool.counts(), (2, 0), "one worker served all that is small, and one what is large");
}

#[tokio::test]
async fn many_at_once_share_the_workers() {
    let pool = Arc::new(Pool::new(settings(&[]), &Setup::default()).unwrap());
    let content = Content::of(&attached("a.txt", &eicar())).unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (pool, content) = (pool.clone(), content.clone());
            tokio::spawn(async move { found(&pool.examine(&content).await.unwrap()).len() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 1);
    }
    assert!(pool.counts().0 <= 2, "{:?}", pool.counts());
}

#[tokio::test]
async fn a_small_message_does_not_wait_for_a_large_one() {
    let settings = Settings { workers: 1, ..settings(&["1000000019"]) };
    let pool = Arc::new(Pool::new(settings, &slow_rules()).unwrap());
    let looked = {
        let pool = pool.clone();
        tokio::spawn(async move { pool.examine(&Content::of(&vec![b'a'; 30 << 20]).unwrap()).await.is_ok() })
    };
    // Who has a worker has a place.
    while children("1000000019").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pool.examine(&Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap()).await.unwrap();
    assert!(!looked.is_finished(), "it waited for the large one");
    let own = nice_of(&std::process::id().to_string());
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut nice = Vec::new();
    while nice != [own, (own + 10).min(19)] {
        assert!(Instant::now() < deadline, "what is large gives way: {nice:?}");
        nice = children("1000000019").iter().map(|pid| nice_of(pid)).collect();
        nice.sort_unstable();
    }
    looked.abort();
}

/// A process's place in the order of priorities; larger numbers give way.
fn nice_of(pid: &str) -> i32 {
    let told = Command::new("ps").args(["-o", "ni=", "-p", pid]).output().unwrap();
    String::from_utf8_lossy(&told.stdout).trim().parse().unwrap()
}

#[tokio::test]
async fn a_killed_worker_costs_one_attempt_and_is_replaced() {
    let pool = Pool::new(Settings { workers: 1, ..settings(&["1000000007"]) }, &Setup::default()).unwrap();
    let content = Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap();
    pool.examine(&content).await.unwrap();
    for pid in children("1000000007") {
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }
    while !children("1000000007").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It was idle: nobody's message is to blame.
    pool.examine(&content).await.unwrap();
    assert_eq!(pool.counts(), (2, 1));
}

/// The workers that were started with this argument; other tests run beside.
fn children(argument: &str) -> Vec<String> {
    let listed =
        Command::new("ps").args(["-o", "pid=,args=", "--ppid", &std::process::id().to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let ours = text.lines().filter(|line| line.ends_with(argument));
    ours.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn out_of_memory_is_a_death_and_not_the_end() {
    // Enough to start and to compile the rules, not for a message of this size.
    let memory = (160u64 << 20).to_string();
    let pool = Pool::new(settings(&[memory.as_str()]), &Setup::default()).unwrap();
    pool.examine(&Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap()).await.unwrap();
    let large = Content::of(&vec![b'a'; 100 << 20]).unwrap();
    let error = pool.examine(&large).await.unwrap_err();
    assert!(matches!(error, WorkerError::Died(_) | WorkerError::Failed(_)), "{error}");
    pool.examine(&Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_takes_too_long_is_stopped() {
    let deadline = Deadline { base: Duration::from_millis(20), per_mib: Duration::ZERO };
    let pool = Pool::new(Settings { deadline, ..settings(&[]) }, &slow_rules()).unwrap();
    let content = Content::of(&vec![b'a'; 30 << 20]).unwrap();
    let error = pool.examine(&content).await.unwrap_err();
    assert!(matches!(error, WorkerError::TooLong(_)), "{error}");
    assert_eq!(pool.counts().1, 1);
}

fn slow_rules() -> Setup {
    let text = "rule slow { strings: $a = /a.{0,200}b.{0,200}c/s condition: #a > 1000 }".to_owned();
    Setup { rules: vec![RuleFile { name: "slow".into(), text }], ..Setup::default() }
}

#[tokio::test]
async fn new_rules_are_in_force_with_the_next_message() {
    let pool = Pool::new(settings(&[]), &Setup::default()).unwrap();
    let content = Content::of(b"Subject: x\r\n\r\nhello marker\r\n").unwrap();
    assert_eq!(found(&pool.examine(&content).await.unwrap()), Vec::<String>::new());
    let rule = RuleFile { name: "new.yar".into(), text: "rule r { strings: $a = \"marker\" condition: $a }".into() };
    pool.change(&Setup { rules: vec![rule], ..Setup::default() }).unwrap();
    assert_eq!(found(&pool.examine(&content).await.unwrap()), ["infected new.yar/r @ "]);
}

#[tokio::test]
async fn rules_that_people_make_count_at_once_and_no_answer_of_before_counts() {
    let workers = Workers { pool: settings(&[]), ..Workers::default() };
    let panel = Panel::start(panel::Settings::default().with(workers)).await.unwrap();
    let content = Content::of(&attached("notes.txt", b"a marker in a file\n")).unwrap();
    let outcome = async || {
        let verdict = panel.inspect(&content, &Arc::new(About::default())).await;
        let gravest = verdict.gravest().unwrap();
        (gravest.scanner.clone(), gravest.outcome.clone(), gravest.place.clone())
    };
    let (_, clean, _) = outcome().await;
    assert_eq!(clean, Outcome::Clean);
    let before = panel.version();
    let sha256 = sha256(b"a marker in a file\n");
    let blocked = Blocked { sha256, bytes: Some(19), infected: true, about: "rule 7".into() };
    let by_hash = Made { blocked: vec![blocked], rules: Vec::new() };
    panel.adopt(&by_hash).await.unwrap();
    let known = ("rules".to_owned(), Outcome::Infected { name: "rule 7".into() }, "notes.txt".to_owned());
    assert_eq!(outcome().await, known);
    // Rules that do not compile change nothing.
    let rule =
        |text: &str| Made { rules: vec![RuleFile { name: "rule 8".into(), text: text.into() }], ..Made::default() };
    assert!(panel.adopt(&rule("rule x { condition: $a }")).await.unwrap_err().to_string().contains("rule 8"));
    assert_eq!(outcome().await, known);
    panel.adopt(&rule("rule x { strings: $a = \"a marker in\" condition: $a }")).await.unwrap();
    let (scanner, found, _) = outcome().await;
    assert_eq!((scanner.as_str(), found), ("yara", Outcome::Infected { name: "rule 8/x".into() }));
    panel.adopt(&Made::default()).await.unwrap();
    assert_eq!(outcome().await.1, Outcome::Clean);
    assert_eq!(panel.version(), before, "the same rules have the same name");
    let nobody = Panel::start(panel::Settings::default()).await.unwrap();
    nobody.adopt(&Made::default()).await.unwrap();
    assert!(nobody.adopt(&by_hash).await.unwrap_err().to_string().contains("no worker"));
}

fn sha256(data: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn workers_are_replaced_after_some_messages() {
    let pool = Pool::new(Settings { messages: 3, workers: 1, ..settings(&[]) }, &Setup::default()).unwrap();
    let content = Content::of(b"Subject: x\r\n\r\nhello\r\n").unwrap();
    for _ in 0..7 {
        pool.examine(&content).await.unwrap();
    }
    assert_eq!(pool.counts(), (3, 0));
}

#[tokio::test]
async fn what_does_not_start_is_told() {
    let program = WorkerProgram { path: "/bin/true".into(), arguments: Vec::new() };
    let pool = Pool::new(Settings { program, ..settings(&[]) }, &Setup::default()).unwrap();
    let error = pool.examine(&Content::of(b"x").unwrap()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Died(_) | WorkerError::GoneBefore), "{error}");
    let bad = RuleFile { name: "bad.yar".into(), text: "rule".into() };
    let pool = Pool::new(settings(&[]), &Setup { rules: vec![bad], ..Setup::default() }).unwrap();
    let error = pool.examine(&Content::of(b"x").unwrap()).await.unwrap_err();
    assert!(matches!(&error, WorkerError::Setup(why) if why.contains("bad.yar")), "{error}");
}
