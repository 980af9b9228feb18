//! The same job through Karton: tasks that do nothing, with its Redis, its S3, its system process and four workers.
//!
//! A task carries no sample, as ours need not be moved either: that spares Karton a call to its S3 each. In [`rate_of_looks`] it carries one, and
//! a service for each look takes it from there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

const TASKS: u32 = 2_000;
const WORKERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(300);
const SCRIPT: &str = include_str!("karton_nothing.py");
const REAL: &str = include_str!("karton_real.py");
/// The looks of that script: as many as the lab has plugins of its own that need no service.
const LOOKS: [&str; 7] = ["identify", "strings", "entropy", "matches", "program", "archive", "document"];

/// Tasks a second, the median of the rounds.
pub(crate) fn rate(rounds: usize) -> f64 {
    let karton = Karton::start();
    karton.play(200);
    let mut rates: Vec<f64> = (0..rounds).map(|_| karton.play(TASKS)).collect();
    eprintln!("karton: {rates:.0?} tasks/s");
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Files a second through a service for each look, the median of the rounds.
pub(crate) fn rate_of_looks(rounds: usize, files: u32) -> f64 {
    let karton = Karton::start_with(REAL, &LOOKS);
    karton.look_at(20);
    let mut rates: Vec<f64> = (0..rounds).map(|_| karton.look_at(files)).collect();
    eprintln!("karton, {} looks: {rates:.0?} files/s", LOOKS.len());
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

struct Karton {
    redis: u16,
    s3: u16,
    programs: PathBuf,
    script: PathBuf,
    children: Vec<Child>,
    _home: tempfile::TempDir,
}

impl Karton {
    fn start() -> Karton {
        Karton::start_with(SCRIPT, &[""; WORKERS])
    }

    /// With a worker for each of these names.
    fn start_with(script: &str, workers: &[&str]) -> Karton {
        let source = script;
        let programs = PathBuf::from(std::env::var("WEIR_KARTON").unwrap_or_else(|_| "target/karton/bin".into()));
        let programs = std::path::absolute(programs).expect("a path");
        assert!(programs.join("karton-system").exists(), "Karton is not installed: run `tools/setup bench-lab`");
        let home = tempfile::tempdir().expect("a folder");
        let script = home.path().join("nothing.py");
        std::fs::write(&script, source).expect("a script");
        let (redis, s3) = (weir_peers::free_port(), weir_peers::free_port());
        let mut karton = Karton { redis, s3, programs, script, children: Vec::new(), _home: home };
        karton.run(Command::new("redis-server").args([
            "--port",
            &redis.to_string(),
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ]));
        let moto = karton.programs.join("moto_server");
        karton.run(Command::new(moto).args(["-H", "127.0.0.1", "-p", &s3.to_string()]));
        for port in [redis, s3] {
            wait_for("a server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        let mut system = karton.command(&karton.programs.join("karton-system"));
        karton.run(system.arg("--setup-bucket"));
        // A producer that comes before the bucket fails, and on a busy machine it does.
        wait_for("Karton's bucket", || karton.has_its_bucket());
        for name in workers {
            let mut worker = karton.python();
            karton.run(worker.args(["work", name]));
        }
        karton
    }

    fn has_its_bucket(&self) -> bool {
        let bucket = format!("http://127.0.0.1:{}/karton", self.s3);
        Command::new("curl")
            .args(["--silent", "--fail", "--head", &bucket])
            .output()
            .expect("curl runs")
            .status
            .success()
    }

    /// Sends so many tasks and waits until all were consumed.
    fn play(&self, tasks: u32) -> f64 {
        let before = self.consumed();
        let sent = self.python().args(["send", &tasks.to_string()]).output().expect("python runs");
        assert!(sent.status.success(), "the producer failed: {}", String::from_utf8_lossy(&sent.stderr));
        wait_for("Karton's tasks", || self.consumed() >= before + u64::from(tasks));
        let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        // Python's own start does not count.
        let begun: f64 = String::from_utf8_lossy(&sent.stdout).trim().parse().expect("when it sent the first");
        f64::from(tasks) / (ended - begun)
    }

    /// Sends so many files and waits until every look has seen them all.
    fn look_at(&self, files: u32) -> f64 {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..u64::from(files) {
            let name = format!("{number:08}");
            std::fs::write(folder.path().join(name), crate::real::content(number)).expect("a file");
        }
        let before = LOOKS.map(|look| self.consumed_by(look));
        let sent = self.python().arg("send").arg(folder.path()).output().expect("python runs");
        assert!(sent.status.success(), "the producer failed: {}", String::from_utf8_lossy(&sent.stderr));
        let seen =
            || LOOKS.iter().zip(before).all(|(look, before)| self.consumed_by(look) >= before + u64::from(files));
        wait_for("Karton's looks", seen);
        let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let begun: f64 = String::from_utf8_lossy(&sent.stdout).trim().parse().expect("when it sent the first");
        f64::from(files) / (ended - begun)
    }

    fn consumed(&self) -> u64 {
        self.consumed_by("nothing")
    }

    /// What Karton itself counts.
    fn consumed_by(&self, identity: &str) -> u64 {
        let asked = Command::new("redis-cli")
            .args(["-p", &self.redis.to_string(), "hget", "karton.metrics.consumed", identity])
            .output();
        let answer = asked.expect("redis-cli runs").stdout;
        String::from_utf8_lossy(&answer).trim().parse().unwrap_or(0)
    }

    fn python(&self) -> Command {
        let mut command = self.command(&self.programs.join("python"));
        command.arg(&self.script);
        command
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KARTON_REDIS_HOST", "127.0.0.1").env("KARTON_REDIS_PORT", self.redis.to_string());
        command.env("KARTON_S3_ADDRESS", format!("http://127.0.0.1:{}", self.s3)).env("KARTON_S3_BUCKET", "karton");
        command.env("KARTON_S3_ACCESS_KEY", "bench").env("KARTON_S3_SECRET_KEY", "bench");
        command
    }

    fn run(&mut self, command: &mut Command) {
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.children.push(started.unwrap_or_else(|error| panic!("{command:?}: {error}: run `tools/setup bench-lab`")));
    }
}

impl Drop for Karton {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
