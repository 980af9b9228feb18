//! Every task that is watched panics once: its gate must come back, nothing that was acknowledged may be lost, and readiness and status
//! must report it.

use crate::control::gate::{Client, Site, Up, wait_for};
use crate::gates::{LAB, is_ready};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_peers::{Postgres, free_port};

/// Every task that is watched, with its gate and what it takes for it to exist.
const TASKS: [(&str, &str, Needs); 50] = [
    ("mail opening", "mail", Needs::Nothing),
    ("submission listener", "mail", Needs::Nothing),
    ("inbound listener", "mail", Needs::Nothing),
    ("throttle", "mail", Needs::Nothing),
    ("held", "mail", Needs::Nothing),
    ("retention", "mail", Needs::Nothing),
    ("tracking", "mail", Needs::Nothing),
    ("notices", "mail", Needs::Nothing),
    ("bans", "mail", Needs::Nothing),
    ("delivery", "mail", Needs::Nothing),
    ("late decisions", "mail", Needs::Undecided),
    ("mail-certificate", "mail", Needs::Nothing),
    ("scan-keeper", "mail", Needs::Nothing),
    ("scan-intake", "mail", Needs::Nothing),
    ("scan-minder", "mail", Needs::Scan("")),
    ("scan-tuning", "mail", Needs::Scan("")),
    ("scan-health", "mail", Needs::Scan("")),
    ("scan-pending", "mail", Needs::Scan("[scan.lab]\nenabled = true\n")),
    ("scan-rules", "mail", Needs::SharedRecords),
    ("scan rules", "mail", Needs::Scan("[scan.yara]\nfolder = \"/mnt\"\n")),
    ("clamd watch", "mail", Needs::Scan("[scan.clamav]\naddresses = [\"127.0.0.1:9\"]\n")),
    ("door", "mail", Needs::Scan("[scan.clamd_door]\nlisten = [\"127.0.0.1:0\"]\n")),
    ("web opening", "web", Needs::Nothing),
    ("web thread", "web", Needs::Nothing),
    ("web listener", "web", Needs::Nothing),
    ("web sweep", "web", Needs::Nothing),
    ("web maintenance", "web", Needs::Nothing),
    ("web certificate", "web", Needs::Nothing),
    ("web history", "web", Needs::Nothing),
    ("web exchange", "web", Needs::Nothing),
    ("web exchange relay", "web", Needs::Sections("[web.exchange]\nrelays = [\"127.0.0.1:9\"]\n")),
    ("web exchange nats", "web", Needs::Sections("[web.exchange]\nnats = [\"nats://127.0.0.1:9\"]\n")),
    ("web forward-auth", "web", Needs::ForwardAuth),
    ("web forward-auth log", "web", Needs::ForwardAuth),
    ("lab opening", "lab", Needs::Nothing),
    ("lab election", "lab", Needs::Nothing),
    ("lab node", "lab", Needs::Nothing),
    ("lab VM", "lab", Needs::Vm),
    ("lab VM status", "lab", Needs::Vm),
    ("lab server", "lab", Needs::LabNetwork),
    ("lab datagrams", "lab", Needs::LabNetwork),
    ("lab samples from other machines", "lab", Needs::LabNetwork),
    ("lab work for a leader", "lab", Needs::LabNetwork),
    ("lab certificate", "lab", Needs::LabNetwork),
    ("lab presence", "lab", Needs::LabNetwork),
    ("lab registry", "lab", Needs::LabNetwork),
    ("lab entry", "lab", Needs::LabOutside),
    ("console opening", "console", Needs::Nothing),
    ("console listener", "console", Needs::Nothing),
    ("console watch", "console", Needs::Nothing),
];

/// What must be configured, or have happened, for a task to exist.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    /// A mail in the spool, from before a kill, that cannot be decided now either.
    Undecided,
    /// These further sections.
    Sections(&'static str),
    /// The scan, and these further sections.
    Scan(&'static str),
    /// The scan, and records that several machines share.
    SharedRecords,
    /// Another proxy that asks the web gate.
    ForwardAuth,
    /// A lab with a VM. There is no system in the VM, so it does not come up and is tried again and again.
    Vm,
    /// A lab of several machines, of which this is the only one.
    LabNetwork,
    /// A worker of such a lab, which has no database and asks another machine who leads. That machine does not run any more.
    LabOutside,
}

impl Needs {
    /// The site for a task, before the first start.
    fn site(self) -> Site {
        let inbound =
            "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n";
        let scan = "[scan]\nenabled = true\n";
        let port = free_port();
        let more = match self {
            Needs::Nothing | Needs::Undecided => LAB.to_owned(),
            Needs::Sections(sections) => format!("{LAB}{sections}"),
            Needs::Scan(sections) => format!("{LAB}{scan}{sections}"),
            Needs::SharedRecords => format!("{LAB}{scan}{}", shared_records()),
            Needs::ForwardAuth => format!("{LAB}[web.forward_auth]\nlisten = [\"127.0.0.1:0\"]\n"),
            Needs::Vm => format!("{LAB}vms = [\"vm1 kernel=/etc/passwd initrd=/etc/passwd\"]\n"),
            Needs::LabNetwork => lab_network(port),
            Needs::LabOutside => {
                format!("{LAB}address = \"127.0.0.2/24\"\nport = {port}\nentry = [\"127.0.0.1\"]\n")
            }
        };
        let site = Site::new(&format!("{inbound}{more}"));
        let backend = match self {
            Needs::ForwardAuth => "shop forward_auth slots=2",
            _ => "app 127.0.0.1:9",
        };
        let file = site.home().join("weir.toml");
        let config = fs::read_to_string(&file).expect("its configuration");
        fs::write(&file, config.replace("[web]\n", &format!("[web]\nbackends = [\"{backend}\"]\n"))).expect("a file");
        match self {
            Needs::LabNetwork => drop(site.weir(&["lab", "init", "--name", "n1"]).ok()),
            Needs::LabOutside => join_lab(&site, port),
            Needs::Undecided => leave_undecided(&site),
            _ => {}
        }
        site
    }
}

/// The section of a machine of a lab with a database of its own.
fn lab_network(port: u16) -> String {
    format!("{LAB}address = \"127.0.0.1/24\"\nport = {port}\n{}", shared_records())
}

fn shared_records() -> String {
    format!("[store]\nrecords = \"{}\"\n", Postgres::shared().database())
}

/// Makes the site a worker of a new lab, whose only other machine runs until then.
fn join_lab(site: &Site, port: u16) {
    let first = Site::new(&lab_network(port));
    first.weir(&["lab", "init", "--name", "n1"]).ok();
    let _up = first.up();
    let invited = first.json(&["lab", "invite", "--role", "worker", "--priority", "20"]);
    site.weir(&["lab", "join", invited["token"].as_str().expect("a token"), "--name", "x1"]).ok();
}

/// Leaves a mail in the spool that the throttle could not decide, because what the records hold of its user's throttle cannot be read. The
/// client was told to try again later; taking the mail back failed as well, until the kill.
fn leave_undecided(site: &Site) {
    const PASSWORD: &str = "a long password";
    let send = |up: &Up| {
        let mut client = Client::login(&up.plain, "ann", PASSWORD).expect("a login");
        client.mail("ann@localhost", &["stranger@elsewhere.example"], "x")
    };
    let up = site.up_alone();
    let add = ["user", "add", "ann", "--address", "ann@localhost", "--password-stdin"];
    site.weir_with(&add, &format!("{PASSWORD}\n")).ok();
    let reply = send(&up);
    assert!(reply.starts_with("250"), "{reply}");
    up.kill();
    let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(site.data().join("records.db"));
    let changed = python.arg("update throttles set state = 'unreadable' where identity = 'ann'").status();
    assert!(changed.expect("python3 is not installed: run `make setup`").success());
    let up = site.up_alone();
    let reply = send(&up);
    assert!(reply.contains("the throttle cannot decide now"), "{reply}");
    up.kill();
}

/// How many run at once; most of the time they wait.
const AT_ONCE: usize = 4;

#[test]
fn a_panic_in_a_task_brings_the_gate_back() {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((task, gate, needs)) = TASKS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    comes_back(task, gate, *needs);
                }
            });
        }
    });
}

fn comes_back(task: &str, gate: &str, needs: Needs) {
    let site = needs.site();
    let mut command = site.command(&["up", "--demo-user"]);
    command.env("WEIR_PLANT_PANIC", task);
    let up = Site::start(command);
    let seen = || {
        let status = site.status();
        let gates = status["gates"].as_array().expect("gates").clone();
        gates.into_iter().find(|one| one["gate"] == gate).expect("a gate")
    };
    let view = wait_for(&format!("{gate} after a panic in {task}"), || {
        let view = seen();
        (view["last_failure"].is_string() && view["state"] == "up").then_some(view)
    });
    let why = view["last_failure"].as_str().expect("a failure");
    assert!(why.contains("a planted panic") && why.contains(".rs:"), "{task}: {why}");
    let told = why.contains(&format!("a panic in {task}: ")) && view["restarts"].as_u64() >= Some(1);
    assert!(task.ends_with("opening") || told, "{task}: {why}");
    // If the console could not open at first, its address was not printed, so it cannot be asked.
    if task != "console opening" {
        wait_for("readiness", || is_ready(&up).then_some(()));
    }
}

/// Tasks that belong to no gate, and what must be configured for them.
const OUTSIDE: [(&str, &str); 5] = [
    ("control socket", ""),
    ("webhook", "[notices]\nwebhook = \"http://127.0.0.1:9/\"\n"),
    ("incident watch", "[console]\nenabled = false\n[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n"),
    ("certificates", CERTIFICATES),
    ("certificate answers", CERTIFICATES),
];

/// Nobody gets a certificate here: the authority is a port at which nothing listens.
const CERTIFICATES: &str = "[certificates]\nnames = [\"site.example\"]\naccept_terms = true\ndirectory = \"https://127.0.0.1:9/\"\nlisten = [\"127.0.0.1:PORT\"]\n";

#[test]
fn a_panic_outside_the_gates_brings_the_task_back() {
    for (task, sections) in OUTSIDE {
        let console = if sections.contains("[console]") { "" } else { "[console]\nlisten = [\"127.0.0.1:0\"]\n" };
        let web = "[web]\nlisten = [\"127.0.0.1:0\"]\nbackends = [\"app 127.0.0.1:9\"]\n";
        let site = Site::only(&format!("{web}{console}{}", sections.replace("PORT", &free_port().to_string())));
        let log = site.home().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" up --config \"$1\" --data \"$2\" 2>\"$3\"", env!("CARGO_BIN_EXE_weir")]);
        command.arg(site.home().join("weir.toml")).arg(site.data()).arg(&log);
        command.env("WEIR_PLANT_PANIC", task);
        let _up = Site::start(command);
        let said = wait_for(&format!("a panic in {task}"), || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            said.contains("a task outside the gates is gone").then_some(said)
        });
        assert!(said.contains(task) && said.contains("a planted panic (at "), "{task}: {said}");
        let answers = || matches!(site.weir(&["status", "--json"]).code, Some(0 | 3 | 4)).then_some(());
        wait_for(&format!("an answer after a panic in {task}"), answers);
    }
}

/// Fails if somebody adds a task to the code but not to the list above.
#[test]
fn every_task_that_is_watched_panics_in_a_test() {
    let here: BTreeSet<String> = TASKS.iter().map(|(task, ..)| (*task).to_owned()).collect();
    assert_eq!(here.len(), TASKS.len(), "one is named twice");
    let mut started = BTreeSet::new();
    for gate in ["mail", "web", "lab", "console"] {
        started.insert(format!("{gate} opening"));
    }
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut |text| started.extend(tasks_started(text)));
    let here = here.into_iter().chain(OUTSIDE.iter().map(|(task, _)| (*task).to_owned())).collect();
    assert_eq!(started, here, "left: the tasks that the sources start; right: those of this test");
}

/// The names of the tasks that this source file starts, without those in its tests.
fn tasks_started(text: &str) -> Vec<String> {
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    // The threads of the web gate have a name of their own, before that of the task.
    let calls = [
        ("supervision::spawn(", 0),
        ("supervision::spawn_until_done(", 0),
        ("supervision::watched(", 0),
        ("supervision::watched_elsewhere(", 0),
        ("Task::new(", 0),
        ("keep_running(", 0),
        ("self.spawn(", 1),
    ];
    let named = |line: &str| {
        let (call, before) = calls.into_iter().find(|(call, _)| line.contains(call))?;
        let quoted = line.split_once(call)?.1.split('"').skip(1).step_by(2).nth(before)?;
        Some(quoted.to_owned())
    };
    code.lines().filter_map(named).collect()
}

/// Calls `show` for all sources of the crates, without files of tests.
fn sources(folder: &Path, show: &mut dyn FnMut(&str)) {
    let entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("it").path()).collect();
    for path in entries {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            "tests" | "tests.rs" | "examples" | "target" => {}
            _ if path.is_dir() => sources(&path, show),
            _ if name.ends_with(".rs") => show(&fs::read_to_string(&path).expect("text")),
            _ => {}
        }
    }
}

/// Whatever fails, and whenever: a mail that was answered with 250 must be delivered.
#[test]
fn what_was_acknowledged_before_a_panic_is_delivered() {
    for task in ["throttle", "delivery", "submission listener"] {
        let site = Site::new("");
        let mut command = site.command(&["up", "--demo-user"]);
        command.env("WEIR_PLANT_PANIC", task);
        let up = Site::start(command);
        let restarted = || {
            let status = site.status();
            let gates = status["gates"].as_array().expect("gates").clone();
            gates.iter().any(|one| one["gate"] == "mail" && one["state"] == "up" && one["restarts"].as_u64() >= Some(1))
        };
        let mut acknowledged = 0;
        while !restarted() {
            let Some(mut client) = Client::login_now(&up.plain, "demo", &up.password()) else { continue };
            for _ in 0..20 {
                acknowledged += usize::from(client.mail("demo@localhost", &["ann@localhost"], "x").starts_with("250"));
            }
        }
        assert!(acknowledged > 0, "{task}");
        site.arrived("ann@localhost", acknowledged);
    }
}
