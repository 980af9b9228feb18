//! Five machines and their database.

use crate::cables::Cables;
use crate::usage::Usage;
use std::fs;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use weir_peers::Postgres;
use weir_store::records::{NewSample, Records};
use weir_store::samples::{SampleHash, Samples};

const MACHINES: usize = 5;
/// Rows that are handed in with one statement.
const BATCH: usize = 500;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A lab whose first machine leads.
pub(crate) struct Lab {
    machines: Vec<Machine>,
    records: Records,
    url: String,
    sample: (SampleHash, u64),
    tickets: AtomicU64,
    // Gone after the machines.
    _postgres: Postgres,
    _cables: Cables,
    _home: tempfile::TempDir,
}

struct Machine {
    weir: PathBuf,
    folder: PathBuf,
    space: String,
    running: Option<Child>,
}

impl Lab {
    pub(crate) async fn start(weir: &Path) -> Lab {
        let (cables, home) = (Cables::new(MACHINES), tempfile::tempdir().expect("a folder"));
        let postgres = Postgres::start_durable_on(&cables.bridge());
        let url = postgres.database();
        plugins(&home.path().join("plugins"));
        let mut machines: Vec<Machine> =
            (1..=MACHINES).map(|number| Machine::new(weir, &cables, number, (home.path(), &url))).collect();
        machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "1"]);
        machines[0].up();
        for number in 2..=MACHINES {
            let printed = machines[0].weir(&["lab", "invite", "--priority", &number.to_string(), "--json"]);
            let invited: serde_json::Value = serde_json::from_str(&printed).expect("one JSON document");
            let token = invited["token"].as_str().expect("a token").to_owned();
            machines[number - 1].weir(&["lab", "join", &token, "--name", &format!("n{number}")]);
            machines[number - 1].up();
        }
        let samples = Samples::open(&home.path().join("samples")).expect("a folder");
        let stored = samples.put(&mut Cursor::new(b"#!/bin/sh\n"), 100).expect("a sample");
        let records = Records::postgres(&url).await.expect("the database");
        let lab = Lab {
            machines,
            records,
            url,
            sample: (stored.hash, stored.size),
            tickets: AtomicU64::new(0),
            _postgres: postgres,
            _cables: cables,
            _home: home,
        };
        lab.wait_for("n1 to lead with four machines", || lab.figure("machines") == Some(4));
        lab
    }

    /// Hands in so many samples for this plugin and waits until all have ended: samples a second.
    pub(crate) async fn play(&self, plugin: &str, samples: usize) -> f64 {
        let highest = self.number("select coalesce(max(id), 0) from lab_samples");
        let begun = Instant::now();
        self.submit(plugin, samples).await;
        let open = format!("select count(*) from lab_samples where ended_at is null and id > {highest}");
        self.wait_for("the samples to end", || self.number(&open) == 0);
        let took = begun.elapsed();
        let bad = format!("select count(*) from lab_samples where state <> 'done' and id > {highest}");
        assert_eq!(self.number(&bad), 0, "all are done");
        samples as f64 / took.as_secs_f64()
    }

    /// The statement that `weir lab submit` and the numbered directories use, in batches.
    pub(crate) async fn submit(&self, plugin: &str, samples: usize) {
        let rows: Vec<NewSample> = (0..samples).map(|_| self.row(plugin)).collect();
        for batch in rows.chunks(BATCH) {
            self.records.lab_samples().submit(batch).await.expect("the database takes them");
        }
    }

    fn row(&self, plugin: &str) -> NewSample {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        NewSample {
            ticket: format!("bench {}", self.tickets.fetch_add(1, Ordering::Relaxed)),
            hash: self.sample.0.to_string(),
            size: self.sample.1 as i64,
            name: "sample.sh".into(),
            submitter: "bench".into(),
            directory: 32,
            file_type: "text/x-shellscript".into(),
            needs: format!("[[\"{plugin}\",\"1\"]]"),
            tags: "[]".into(),
            parent: None,
            root: None,
            depth: 0,
            // All have the same content, and each is to be analysed.
            forced: 1,
            arrived_at: wall.as_nanos() as i64,
            choices: String::new(),
            partial: 0,
        }
    }

    /// Rows for a plugin that no machine has, written by the database itself.
    pub(crate) fn queue_unservable(&self, samples: usize) {
        let hash = self.sample.0;
        self.sql(&format!(
            "insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, depth, forced,
               state, why, arrived_at)
             select 'million ' || n, '{hash}', 10, 'sample.sh', 'bench', 32, 'text/x-shellscript', '[[\"absent\",\"1\"]]', '[]', 0, 1,
               'queued', '', 0 from generate_series(1, {samples}) n"
        ));
        self.sql("analyze lab_samples");
    }

    /// Until the leader has so many samples.
    pub(crate) fn wait_until_read(&self, samples: usize) {
        self.wait_for("the leader to read them", || {
            self.status()["open"].as_u64().is_some_and(|open| open >= samples as u64)
        });
    }

    pub(crate) fn leader_rss_mb(&self) -> f64 {
        let leader = self.machines[0].running.as_ref().expect("it runs").id();
        Usage::of(leader).rss_mb()
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.number("select epoch from lab_leader")
    }

    /// Sends a signal to the leader; when that was.
    pub(crate) fn signal_leader(&self, signal: &str) -> SystemTime {
        let leader = self.machines[0].running.as_ref().expect("it runs").id().to_string();
        let at = SystemTime::now();
        let told = Command::new("kill").args([&format!("-{signal}"), &leader]).status();
        assert!(told.is_ok_and(|status| status.success()), "kill runs");
        at
    }

    /// When the first sample of a later term was assigned.
    pub(crate) fn first_assignment_after(&self, epoch: i64) -> SystemTime {
        let first = format!("select coalesce(min(started_at), 0) from lab_attempts where epoch > {epoch}");
        self.wait_for("an assignment by the next leader", || self.number(&first) > 0);
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.number(&first).cast_unsigned())
    }

    /// The first machine comes back and leads again.
    pub(crate) fn restart_leader(&mut self) {
        let first = &mut self.machines[0];
        if let Some(mut child) = first.running.take() {
            let _ = child.wait();
        }
        first.up();
        self.wait_for("n1 to lead again", || self.figure("machines") == Some(4));
        self.wait_for("the samples to end", || {
            self.number("select count(*) from lab_samples where ended_at is null") == 0
        });
    }

    fn figure(&self, name: &str) -> Option<u64> {
        self.status()["figures"][name].as_u64()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.machines[0].weir(&["lab", "status", "--json"])).expect("one JSON document")
    }

    fn number(&self, question: &str) -> i64 {
        self.sql(question).trim().parse().unwrap_or_else(|_| panic!("{question}"))
    }

    fn sql(&self, statement: &str) -> String {
        let answer = Command::new("psql").args([&self.url, "-qAt", "-c", statement]).output().expect("psql runs");
        assert!(answer.status.success(), "{statement}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, mut look: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !look() {
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
            // Every look is a program that starts: it must not slow down what it looks at.
            std::thread::sleep(Duration::from_millis(150));
        }
    }
}

impl Machine {
    fn new(weir: &Path, cables: &Cables, number: usize, (home, url): (&Path, &str)) -> Machine {
        let folder = home.join(format!("n{number}"));
        fs::create_dir(&folder).expect("a folder");
        let (address, ports) = (cables.address(number), "listen = [\"127.0.0.1:0\"]");
        let configuration = format!(
            "[submission]\n{ports}\nlisten_tls = [\"127.0.0.1:0\"]\nhostname = \"n{number}.example\"\n[web]\n{ports}\n\
             [console]\n{ports}\n[store]\nrecords = \"{url}\"\n\
             [lab]\nenabled = true\nslots = 128\naddress = \"{address}/24\"\nprocessing_index = 7\n\
             samples = {:?}\nplugins = {:?}\n",
            home.join("samples"),
            home.join("plugins"),
        );
        fs::write(folder.join("weir.toml"), configuration).expect("a configuration");
        Machine { weir: weir.to_owned(), folder, space: cables.space(number), running: None }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]).arg(&self.weir).args(args);
        command.arg("--data").arg(self.folder.join("data")).arg("--config").arg(self.folder.join("weir.toml"));
        command.stdin(Stdio::null());
        command
    }

    fn weir(&self, args: &[&str]) -> String {
        let done = self.command(args).output().expect("weir runs");
        assert!(done.status.success(), "weir {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn up(&mut self) {
        let log = fs::File::create(self.folder.join("log")).expect("a log");
        let mut child = self.command(&["up"]).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C"));
        assert!(up, "it ended early:\n{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        std::thread::spawn(move || lines.count());
        self.running = Some(child);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One that does nothing at all, and one that starts a program which does nothing.
fn plugins(folder: &Path) {
    let report = "echo '{\\\"success\\\":true}' > output/output.json";
    for (name, how) in
        [("nothing", "run = \"nothing\"".to_owned()), ("process", format!("exec = [\"sh\", \"-c\", \"{report}\"]"))]
    {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let manifest = format!("name = \"{name}\"\nversion = \"1\"\n{how}\ncache = false\n");
        fs::write(folder.join("plugin.toml"), manifest).expect("a manifest");
    }
}
