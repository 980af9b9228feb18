//! A lab of five machines, each in a network namespace of its own, on one bridge, with a real PostgreSQL beside it.
//!
//! Needs root and `ip` of iproute2; a machine without them fails these tests with a sentence that says so.

use crate::control::gate::wait_for;
use crate::harness::Run;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_peers::Postgres;

/// Five debug builds on a busy machine are slower than a lab: these timers are twice the default ones.
const PATIENT: &str = "reply_wait = \"500ms\"\nmissed_beats = 5\nabort_wait = \"2s\"\nlease = \"4s\"\n";

/// Runs `ip` with these words.
#[track_caller]
fn ip(words: &str) {
    let done = Command::new("ip").args(words.split_whitespace()).output();
    let done = done.unwrap_or_else(|error| panic!("`ip` is needed ({error}): run `make setup`"));
    assert!(done.status.success(), "ip {words}: {} (root is needed)", String::from_utf8_lossy(&done.stderr));
}

/// The bridge and what hangs on it; gone when dropped.
struct Cables {
    /// Tells this test's namespaces from others on this machine.
    tag: String,
    net: u32,
    machines: usize,
}

impl Cables {
    fn new(machines: usize) -> Cables {
        let pid = std::process::id();
        let cables =
            Cables { tag: format!("wl{}{machines}", pid % 100_000), net: (pid * 7 + machines as u32) % 250, machines };
        let (tag, bridge) = (&cables.tag, cables.bridge());
        ip(&format!("link add {tag} type bridge"));
        ip(&format!("addr add {bridge}/24 dev {tag}"));
        ip(&format!("link set {tag} up"));
        for number in 1..=machines {
            let (space, inside, outside) = (cables.space(number), format!("{tag}i{number}"), format!("{tag}o{number}"));
            ip(&format!("netns add {space}"));
            ip(&format!("link add {outside} type veth peer name {inside}"));
            ip(&format!("link set {outside} master {tag} up"));
            ip(&format!("link set {inside} netns {space}"));
            ip(&format!("-n {space} link set lo up"));
            ip(&format!("-n {space} addr add {}/24 brd + dev {inside}", cables.address(number)));
            ip(&format!("-n {space} link set {inside} up"));
        }
        cables
    }

    fn space(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    fn address(&self, number: usize) -> String {
        format!("10.77.{}.{number}", self.net)
    }

    fn bridge(&self) -> String {
        self.address(254)
    }

    fn unplug(&self, number: usize) {
        ip(&format!("link set {}o{number} down", self.tag));
    }

    fn plug(&self, number: usize) {
        ip(&format!("link set {}o{number} up", self.tag));
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        let quiet = |words: String| {
            let _ = Command::new("ip").args(words.split_whitespace()).stderr(Stdio::null()).status();
        };
        (1..=self.machines).for_each(|number| quiet(format!("netns del {}", self.space(number))));
        quiet(format!("link del {}", self.tag));
    }
}

/// One machine of the lab.
struct Machine {
    home: tempfile::TempDir,
    space: String,
    running: Option<Child>,
}

impl Machine {
    fn new(cables: &Cables, number: usize, records: &str, (index, more): (u32, &str)) -> Machine {
        let home = tempfile::tempdir().expect("a folder");
        let (address, ports) = (cables.address(number), "listen = [\"127.0.0.1:0\"]");
        let configuration = format!(
            "[submission]\n{ports}\nlisten_tls = [\"127.0.0.1:0\"]\nhostname = \"n{number}.example\"\n[web]\n{ports}\n\
             [store]\nrecords = \"{records}\"\n\
             [lab]\nenabled = true\nslots = 1\naddress = \"{address}/24\"\nprocessing_index = {index}\n{PATIENT}{more}"
        );
        fs::write(home.path().join("weir.toml"), configuration).expect("a configuration");
        Machine { home, space: cables.space(number), running: None }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space, env!("CARGO_BIN_EXE_weir")]).args(args);
        command
            .arg("--data")
            .arg(self.home.path().join("data"))
            .arg("--config")
            .arg(self.home.path().join("weir.toml"));
        command.stdin(Stdio::null());
        command
    }

    fn weir(&self, args: &[&str]) -> Run {
        let output = self.command(args).output().expect("the binary starts");
        Run {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.weir(&[args, &["--json"]].concat()).ok()).expect("one JSON document")
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn up(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut child =
            self.command(&["up", "--log", "debug"]).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        while !lines
            .next()
            .unwrap_or_else(|| panic!("it ended early:\n{}", self.said()))
            .expect("text")
            .contains("Ctrl-C")
        {}
        // Whoever reads no more must not stop it.
        std::thread::spawn(move || lines.count());
        self.running = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, name: &str) {
        let id = self.running.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill runs").success());
    }

    /// Stops it in order.
    fn stop(&mut self) {
        let mut child = self.running.take().expect("it runs");
        let told = Command::new("kill").arg(child.id().to_string()).status();
        assert!(told.expect("kill runs").success());
        child.wait().expect("it ends");
    }

    /// The end of its log.
    fn said(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let start = log.char_indices().rev().nth(3_000).map_or(0, |(at, _)| at);
        log[start..].to_owned()
    }

    /// Who leads, as this machine says.
    fn leader(&self) -> Option<String> {
        let status = self.weir(&["lab", "status", "--json"]);
        let status: Value = serde_json::from_str(&status.stdout).ok()?;
        status["leader"].as_str().map(str::to_owned)
    }

    /// Waits until somebody leads, as this machine says; how long it took.
    #[track_caller]
    fn led_by(&self, name: &str) -> Duration {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < Duration::from_secs(40) {
            last = self.leader();
            if last.as_deref() == Some(name) {
                return begun.elapsed();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{name} does not lead, but {last:?}; {} says:\n{}", self.space, self.said());
    }

    /// Hands a sample in; its number.
    #[track_caller]
    fn submit(&self, content: &str) -> String {
        let file = self.home.path().join("sample");
        fs::write(&file, content).expect("a file");
        self.json(&["lab", "submit", file.to_str().expect("text")])[0]["sample"].to_string()
    }

    /// Hands a sample in and returns its page when it has ended.
    #[track_caller]
    fn analysed(&self, content: &str) -> Value {
        let number = self.submit(content);
        wait_for("the sample to end", || {
            let page = self.json(&["lab", "report", &number]);
            (page["state"] != "queued").then_some(page)
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Two labs at once would only make each other slow.
static ONE_LAB: Mutex<()> = Mutex::new(());

#[test]
fn five_machines_elect_the_right_leader_and_the_next_when_its_cable_is_pulled() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let cables = Cables::new(5);
    let postgres = Postgres::start_on(&cables.bridge());
    let records = postgres.database();
    // Number, priority, index, role: 3 and 4 are alike but for their addresses; 5 would be best and may not lead.
    let ranks =
        [(20, 50, "eligible"), (10, 5, "eligible"), (10, 9, "eligible"), (10, 9, "eligible"), (0, 99, "dispatcher")];
    let mut machines: Vec<Machine> =
        (1..=5).map(|number| Machine::new(&cables, number, &records, (ranks[number - 1].1, ""))).collect();
    machines[0].weir(&["up"]).refused(&["belongs to no lab", "weir lab init"]);
    machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "20"]).ok();
    machines[1].weir(&["lab", "init", "--name", "n2"]).refused(&["hold a lab already"]);
    machines[0].up();
    machines[0].led_by("n1");
    for number in 2..=5 {
        let (priority, _, role) = ranks[number - 1];
        let invited = machines[0].json(&["lab", "invite", "--role", role, "--priority", &priority.to_string()]);
        let token = invited["token"].as_str().expect("a token").to_owned();
        let name = format!("n{number}");
        machines[number - 1].weir(&["lab", "join", &token, "--name", &name]).ok();
        if number == 2 {
            machines[2].weir(&["lab", "join", &token, "--name", "thief"]).refused(&["was used"]);
        }
        machines[number - 1].up();
    }

    // Priority, then the weakest machine, then the lowest address.
    for machine in &machines {
        machine.led_by("n3");
    }
    let page = machines[0].analysed("#!/bin/sh\necho one\n");
    assert_eq!(page["state"], "done", "{page}");
    assert_ne!(page["attempts"][0]["node"], "n3", "the leader does not analyse");

    cables.unplug(3);
    let without = machines[0].led_by("n4");
    assert!(without < Duration::from_secs(10), "{without:?}");
    assert_eq!(machines[1].analysed("#!/bin/sh\necho two\n")["state"], "done");

    // A better machine that comes back leads again.
    cables.plug(3);
    machines[0].led_by("n3");
    machines[3].led_by("n3");
    assert_eq!(machines[4].analysed("#!/bin/sh\necho three\n")["state"], "done");

    machines[2].kill();
    machines[0].led_by("n4");
    machines[3].stop();
    let handed_over = machines[0].led_by("n2");
    assert!(handed_over < Duration::from_secs(3), "{handed_over:?}");
    machines[1].kill();
    machines[4].led_by("n1");
    assert_eq!(machines[4].analysed("#!/bin/sh\necho four\n")["attempts"][0]["node"], "n5");

    // Each epoch had one leader, and never the dispatcher.
    let terms = machines[0].json(&["lab", "status"])["terms"].clone();
    let terms: Vec<(u64, String)> = terms
        .as_array()
        .expect("terms")
        .iter()
        .map(|term| (term["epoch"].as_u64().expect("a number"), term["leader"].as_str().expect("a name").to_owned()))
        .collect();
    assert!(terms.windows(2).all(|pair| pair[0].0 > pair[1].0), "{terms:?}");
    assert!(terms.iter().all(|(_, leader)| leader != "n5"), "{terms:?}");
    let nodes = machines[0].json(&["lab", "nodes"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(5));
    assert_eq!((&nodes[0]["leads"], &nodes[4]["role"]), (&json!(true), &json!("dispatcher")));

    machines[0].weir(&["lab", "drain", "n5"]).ok();
    machines[0].weir(&["lab", "drain", "nobody"]).refused(&["no machine nobody"]);
    // The leader reads who is drained every second.
    std::thread::sleep(Duration::from_secs(3));
    let number = machines[0].submit("#!/bin/sh\necho five\n");
    wait_for("a reason", || {
        machines[0].weir(&["lab", "why", &number]).ok().contains("no machine is plugged in").then_some(())
    });
    machines[0].weir(&["lab", "drain", "--undo", "n5"]).ok();
    wait_for("the sample", || (machines[0].json(&["lab", "report", &number])["state"] == "done").then_some(()));
}

/// A plugin that takes its time, in every machine's configuration.
fn slow_plugin() -> tempfile::TempDir {
    let plugins = tempfile::tempdir().expect("a folder");
    let folder = plugins.path().join("slow");
    fs::create_dir(&folder).expect("a folder");
    let command = "sleep 4; echo '{\\\"success\\\":true}' > output/output.json";
    let manifest = format!("name = \"slow\"\nversion = \"1\"\nexec = [\"sh\", \"-c\", \"{command}\"]\n");
    fs::write(folder.join("plugin.toml"), manifest).expect("a file");
    plugins
}

#[test]
fn machines_that_die_or_stand_still_lose_nothing() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let (cables, plugins) = (Cables::new(3), slow_plugin());
    let postgres = Postgres::start_on(&cables.bridge());
    let (records, more) = (postgres.database(), format!("plugins = {:?}\n", plugins.path()));
    let mut machines: Vec<Machine> =
        (1..=3).map(|number| Machine::new(&cables, number, &records, (7, &more))).collect();
    machines[0].weir(&["lab", "init", "--name", "n1"]).ok();
    machines[0].up();
    for number in 2..=3 {
        let token = machines[0].json(&["lab", "invite"])["token"].as_str().expect("a token").to_owned();
        machines[number - 1].weir(&["lab", "join", &token, "--name", &format!("n{number}")]).ok();
        machines[number - 1].up();
    }
    machines[0].led_by("n1");

    // A machine that dies in the middle of its work: another does it, long before THRESHOLD.
    let number = machines[0].submit("one");
    let worker = wait_for("an attempt", || {
        let page = machines[0].json(&["lab", "report", &number]);
        page["attempts"][0]["node"].as_str().map(str::to_owned)
    });
    let dead = if worker == "n2" { 1 } else { 2 };
    machines[dead].kill();
    let page = wait_for("the sample", || {
        let page = machines[0].json(&["lab", "report", &number]);
        (page["state"] != "queued").then_some(page)
    });
    assert_eq!(page["state"], "done", "{page}");
    assert_eq!((&page["attempts"][0]["outcome"], page["attempts"].as_array().map(Vec::len)), (&json!("lost"), Some(2)));
    machines[dead].up();

    // A leader that stands still for three leases, with work under way: the next takes over, and nothing is written in the
    // name of the old one when it goes on.
    let number = machines[1].submit("two");
    wait_for("an attempt", || {
        machines[1].json(&["lab", "report", &number])["attempts"][0]["node"].as_str().map(str::to_owned)
    });
    let old = machines[1].json(&["lab", "status"])["epoch"].as_i64();
    machines[0].signal("STOP");
    machines[1].led_by("n2");
    std::thread::sleep(Duration::from_secs(12));
    machines[0].signal("CONT");
    machines[1].led_by("n1");
    let page = wait_for("the sample", || {
        let page = machines[1].json(&["lab", "report", &number]);
        (page["state"] != "queued").then_some(page)
    });
    assert_eq!(page["state"], "done", "{page}");
    let accepted = page["results"].as_array().expect("results").iter().filter(|result| result["accepted"] == true);
    let mut plugins: Vec<&str> = accepted.filter_map(|result| result["plugin"].as_str()).collect();
    let all = plugins.len();
    plugins.sort_unstable();
    plugins.dedup();
    assert!(all >= 2 && plugins.len() == all, "one of each plugin: {page}");
    assert!(machines[1].json(&["lab", "status"])["epoch"].as_i64() > old);

    // The database goes away and comes back.
    postgres.kill();
    std::thread::sleep(Duration::from_secs(6));
    postgres.restart();
    machines[1].led_by("n1");
    assert_eq!(machines[2].analysed("three")["state"], "done");

    // The last one left leads, whoever the database remembers.
    machines[0].kill();
    machines[1].kill();
    machines[2].led_by("n3");
}
