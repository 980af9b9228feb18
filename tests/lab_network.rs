//! Tests of labs with several machines, each in a network namespace of its own, with a real PostgreSQL.
//!
//! This needs root, `ip` of iproute2 and `nft`. On a machine without them, these tests fail with a sentence that says so.

mod cables;
mod faults;
mod history;
mod machine;
mod outside;
mod strangers;
mod workers;

use crate::control::gate::wait_for;
use cables::Cables;
use machine::{Configured, Machine};
use serde_json::json;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_peers::Postgres;

/// Two labs at the same time would only slow each other down.
static ONE_LAB: Mutex<()> = Mutex::new(());

#[test]
fn five_machines_elect_the_right_leader_and_the_next_when_its_cable_is_pulled() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let cables = Cables::new(5);
    let postgres = Postgres::start_on(&cables.bridge());
    let records = postgres.database();
    // Number, priority, index, role. 3 and 4 differ only in their addresses; 5 would be the best, but may not lead.
    let ranks =
        [(20, 50, "eligible"), (10, 5, "eligible"), (10, 9, "eligible"), (10, 9, "eligible"), (0, 99, "dispatcher")];
    let mut machines: Vec<Machine> = (1..=5)
        .map(|number| {
            Machine::new(&cables, number, &records, Configured { index: ranks[number - 1].1, ..Configured::with("") })
        })
        .collect();
    machines[0].weir(&["up"]).refused(&["belongs to no lab", "weir lab init"]);
    machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "20"]).ok();
    machines[1].weir(&["lab", "init", "--name", "n2"]).refused(&["hold a lab already"]);
    machines[0].up();
    machines[0].led_by("n1");
    for number in 2..=5 {
        let (priority, _, role) = ranks[number - 1];
        let invited = machines[0].json(&["lab", "invite", "--role", role, "--priority", &priority.to_string()]);
        // Some join with the code, which finds the lab in the network; others with the token.
        let with = if number % 2 == 0 { "code" } else { "token" };
        let token = invited[with].as_str().expect("a token").to_owned();
        let name = format!("n{number}");
        machines[number - 1].weir(&["lab", "join", &token, "--name", &name]).ok();
        if number == 2 {
            machines[2].weir(&["lab", "join", &token, "--name", "thief"]).refused(&["was used"]);
            let unknown = "00000-00000-00000-00000";
            machines[2].weir(&["lab", "join", unknown, "--name", "thief"]).refused(&["no lab in this network answers"]);
        }
        machines[number - 1].up();
    }

    // The order is: priority, then the weakest machine, then the lowest address.
    for machine in &machines {
        machine.led_by("n3");
    }
    // A new priority forces an election. For a machine that never leads, it is refused.
    machines[0].weir(&["lab", "priority", "n5", "1"]).refused(&["n5", "it never leads"]);
    machines[0].weir(&["lab", "priority", "nobody", "1"]).refused(&["no machine nobody"]);
    machines[4].weir(&["lab", "priority", "n4", "1"]).refused(&["only eligible ones can"]);
    machines[0].weir(&["lab", "priority", "n4", "1"]).ok();
    for machine in &machines {
        machine.led_by("n4");
    }
    let nodes = machines[1].json(&["lab", "nodes"]);
    assert_eq!((&nodes[3]["priority"], &nodes[3]["leads"]), (&json!(1), &json!(true)), "{nodes}");
    machines[2].weir(&["lab", "priority", "n4", "10"]).ok();
    for machine in &machines {
        machine.led_by("n3");
    }
    let page = machines[0].analysed("#!/bin/sh\necho one\n");
    assert_eq!(page["state"], "done", "{page}");
    assert_ne!(page["attempts"][0]["node"], "n3", "the leader does not analyse");

    cables.unplug(3);
    let without = machines[0].led_by("n4");
    assert!(without < Duration::from_secs(60), "{without:?}");
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
    // It does not have to wait for the end of the lease, which takes eight seconds.
    assert!(handed_over < Duration::from_secs(8), "{handed_over:?}");
    machines[1].kill();
    machines[4].led_by("n1");
    assert_eq!(machines[4].analysed("#!/bin/sh\necho four\n")["attempts"][0]["node"], "n5");

    // Every epoch had one leader, and the dispatcher never led.
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

    machines[4].weir(&["lab", "drain", "n5"]).ok();
    machines[0].weir(&["lab", "drain", "nobody"]).refused(&["no machine nobody"]);
    // The leader reads every second which machines are drained.
    std::thread::sleep(Duration::from_secs(3));
    let number = machines[0].submit("#!/bin/sh\necho five\n");
    wait_for("a reason", || {
        machines[4].weir(&["lab", "why", &number]).ok().contains("no machine is plugged in").then_some(())
    });
    machines[0].weir(&["lab", "drain", "--undo", "n5"]).ok();
    wait_for("the sample", || (machines[0].json(&["lab", "report", &number])["state"] == "done").then_some(()));
    history::holds(&records);
}

#[test]
fn a_lab_in_an_ipv6_network_elects_works_and_lets_machines_join_by_a_code() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let cables = Cables::new(3);
    cables.add_ipv6();
    let postgres = Postgres::start_on(&cables.bridge());
    let records = postgres.database();
    let mut machines: Vec<Machine> = (1..=3).map(|number| Machine::in_ipv6(&cables, number, &records)).collect();
    machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "10"]).ok();
    machines[0].up();
    machines[0].led_by("n1");
    for number in 2..=3 {
        let invited = machines[0].json(&["lab", "invite", "--priority", &(10 * number).to_string()]);
        let code = invited["code"].as_str().expect("a code").to_owned();
        machines[number - 1].weir(&["lab", "join", &code, "--name", &format!("n{number}")]).ok();
        machines[number - 1].up();
    }
    for machine in &machines {
        machine.led_by("n1");
    }
    assert_eq!(machines[1].analysed("#!/bin/sh\necho one\n")["state"], "done");
    let nodes = machines[0].json(&["lab", "nodes"]);
    assert_eq!(nodes[1]["address"], json!(cables.address_ipv6(2)), "{nodes}");
    machines[0].kill();
    machines[2].led_by("n2");
    assert_eq!(machines[2].analysed("#!/bin/sh\necho two\n")["state"], "done");
    history::holds(&records);
}

/// A slow plugin, which is in the configuration of every machine.
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
        (1..=3).map(|number| Machine::new(&cables, number, &records, Configured::with(&more))).collect();
    machines[0].weir(&["lab", "init", "--name", "n1"]).ok();
    machines[0].up();
    for number in 2..=3 {
        let token = machines[0].json(&["lab", "invite"])["token"].as_str().expect("a token").to_owned();
        machines[number - 1].weir(&["lab", "join", &token, "--name", &format!("n{number}")]).ok();
        machines[number - 1].up();
    }
    machines[0].led_by("n1");

    // A machine dies in the middle of its work: another one does the work, long before THRESHOLD.
    let number = machines[0].submit("one");
    let worker = wait_for("an attempt", || {
        let page = machines[0].json(&["lab", "report", &number]);
        page["attempts"][0]["node"].as_str().map(str::to_owned)
    });
    let dead = if worker == "n2" { 1 } else { 2 };
    machines[dead].kill();
    let page = machines[0].ended(&number);
    assert_eq!(page["state"], "done", "{page}");
    assert_eq!((&page["attempts"][0]["outcome"], page["attempts"].as_array().map(Vec::len)), (&json!("lost"), Some(2)));
    machines[dead].up();

    // A leader is frozen, with work under way, until another one leads: the next leader takes over, and when the old one continues, nothing
    // is written in its name.
    let number = machines[1].submit("two");
    wait_for("an attempt", || {
        machines[1].json(&["lab", "report", &number])["attempts"][0]["node"].as_str().map(str::to_owned)
    });
    let old = machines[1].json(&["lab", "status"])["epoch"].as_i64();
    machines[0].signal("STOP");
    machines[1].led_by("n2");
    machines[0].signal("CONT");
    machines[1].led_by("n1");
    let page = machines[1].ended(&number);
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

    // The last machine that is left leads, whatever the database remembers.
    machines[0].kill();
    machines[1].kill();
    machines[2].led_by("n3");

    // The first machine, which made the lab, is gone for good. Another one admits the next machine, under a name that was known with
    // another key.
    let mut next = Machine::new(&cables, 2, &records, Configured::with(&more));
    let invited = machines[2].json(&["lab", "invite", "--priority", "200"]);
    let token = invited["token"].as_str().expect("a token").to_owned();
    next.weir(&["lab", "join", &token, "--name", "n2"]).refused(&["in the lab already"]);
    machines[2].weir(&["lab", "remove", "n2"]).ok();
    next.weir(&["lab", "join", &token, "--name", "n2"]).ok();
    next.up();
    next.led_by("n3");
    assert_eq!(next.analysed("four")["attempts"][0]["node"], "n2");
    // A leader that hears no other machine would have given up by now.
    std::thread::sleep(Duration::from_secs(6));
    machines[2].led_by("n3");
    machines[2].kill();
    next.led_by("n2");
    history::holds(&records);
}
