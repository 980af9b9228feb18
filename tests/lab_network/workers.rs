//! Tests of workers in the lab's own network: they analyse for whichever machine leads, and nothing on them gives access to the database.

use super::ONE_LAB;
use super::cables::Cables;
use super::history;
use super::machine::{Configured, Machine};
use std::sync::PoisonError;
use std::time::Duration;
use weir_peers::Postgres;

/// The database accepts any password here. What matters is where this text can be found.
const PASSWORD: &str = "not-for-workers-5c1f09";
const WORKERS: [(usize, &str); 3] = [(3, "w3"), (4, "w4"), (5, "w5")];

/// Admits a machine to the lab of another one.
fn admit(lab: &Machine, machine: &Machine, name: &str, role: &str) {
    let invited = lab.json(&["lab", "invite", "--role", role, "--priority", "20"]);
    machine.weir(&["lab", "join", invited["token"].as_str().expect("a token"), "--name", name]).ok();
}

/// Lets the lab analyse these samples, and checks that a worker analysed each.
#[track_caller]
fn analysed_by_workers(machine: &Machine, contents: &[&str]) {
    let numbers: Vec<String> = contents.iter().map(|content| machine.submit(content)).collect();
    for number in numbers {
        let page = machine.ended(&number);
        let node = page["attempts"][0]["node"].as_str().unwrap_or_default();
        assert!(page["state"] == "done" && node.starts_with('w'), "{page}");
    }
}

#[test]
fn workers_serve_every_leader_and_have_no_password_of_the_database() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let cables = Cables::new(5);
    let postgres = Postgres::start_on(&cables.bridge());
    let records = postgres.database().replacen("weir@", &format!("weir:{PASSWORD}@"), 1);
    let mut n1 = Machine::new(&cables, 1, &records, Configured::with(""));
    let mut n2 = Machine::new(&cables, 2, &records, Configured::with(""));
    let mut workers = WORKERS.map(|(number, _)| Machine::worker(&cables, number));
    n1.weir(&["lab", "init", "--name", "n1", "--priority", "10"]).ok();
    n1.up();
    n1.led_by("n1");
    admit(&n1, &n2, "n2", "eligible");
    n2.up();
    for (worker, (_, name)) in workers.iter_mut().zip(WORKERS) {
        admit(&n1, worker, name, "worker");
        worker.up();
    }
    for machine in [&n1, &n2].into_iter().chain(&workers) {
        machine.led_by("n1");
    }
    n2.weir(&["lab", "drain", "n2"]).ok();
    // The leader reads every second which machines are drained.
    std::thread::sleep(Duration::from_secs(3));
    analysed_by_workers(&n2, &["one", "two", "three", "four", "five", "six"]);

    // The next leader uses the workers, too.
    n1.kill();
    for machine in [&n2].into_iter().chain(&workers) {
        machine.led_by("n2");
    }
    analysed_by_workers(&n2, &["seven", "eight", "nine"]);

    // Where the password is, both kinds of search find it.
    assert!(n2.files_with(PASSWORD).contains("weir.toml"), "{}", n2.files_with(PASSWORD));
    assert!(n2.remembers(PASSWORD), "its process has the password, and was not searched");
    assert!(connections(&records, &cables, 2) > 0, "it works without a connection");
    for (worker, (number, name)) in workers.iter().zip(WORKERS) {
        assert_eq!(worker.files_with(PASSWORD), "", "files of {name}");
        assert_eq!(worker.files_with(&cables.bridge()), "", "files of {name} say where the database is");
        assert!(!worker.remembers(PASSWORD), "the process of {name} has it");
        assert_eq!(connections(&records, &cables, number), 0, "{name} is connected to the database");
    }
    history::holds(&records);
}

/// How many connections this machine has to the database.
fn connections(records: &str, cables: &Cables, number: usize) -> i64 {
    let address = cables.address(number);
    history::count(records, &format!("select count(*) from pg_stat_activity where host(client_addr) = '{address}'"))
}
