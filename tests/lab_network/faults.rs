//! Network faults with real processes: a network in two halves, a leader that reaches only the database, one-way links, lost packets.

use super::ONE_LAB;
use super::cables::Cables;
use super::history;
use super::machine::{Configured, Machine};
use std::sync::PoisonError;
use std::time::Duration;
use weir_peers::Postgres;

const MACHINES: usize = 4;

/// How often each fault is tried.
fn rounds() -> usize {
    if std::env::var("WEIR_FAULTS").as_deref() == Ok("full") { 10 } else { 1 }
}

#[test]
fn a_bad_network_loses_no_sample_and_never_has_two_leaders() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let (cables, shared) = (Cables::new(MACHINES), tempfile::tempdir().expect("a folder"));
    let postgres = Postgres::start_on(&cables.bridge());
    let (records, more) = (postgres.database(), format!("samples = {:?}\n", shared.path()));
    let mut machines: Vec<Machine> =
        (1..=MACHINES).map(|number| Machine::new(&cables, number, &records, Configured::with(&more))).collect();
    machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "1"]).ok();
    machines[0].up();
    for number in 2..=MACHINES {
        let invited = machines[0].json(&["lab", "invite", "--priority", &number.to_string()]);
        let token = invited["token"].as_str().expect("a token").to_owned();
        machines[number - 1].weir(&["lab", "join", &token, "--name", &format!("n{number}")]).ok();
        machines[number - 1].up();
    }
    machines[3].led_by("n1");
    let mut handed_in = 0;
    for round in 0..rounds() {
        let mut work = |machine: usize, what: &str| {
            handed_in += 1;
            machines[machine].submit(&format!("{what} {round}"))
        };

        // Two halves, both of which reach the database: the better one leads.
        for number in [1, 2] {
            cables.deafen(number, &[3, 4]);
        }
        for number in [3, 4] {
            cables.deafen(number, &[1, 2]);
        }
        let sample = work(3, "halves");
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(machines[1].ended(&sample)["state"], "done");
        cables.mend();

        // The leader reaches only the database: it gives up, and another machine leads.
        for number in 2..=MACHINES {
            cables.deafen(number, &[1]);
            cables.deafen(1, &[number]);
        }
        machines[3].led_by("n2");
        let sample = work(0, "only the database");
        assert_eq!(machines[2].ended(&sample)["state"], "done");
        cables.mend();
        machines[3].led_by("n1");

        // One-way: the second best machine receives nothing from the leader, but the leader receives its messages.
        cables.deafen(2, &[1]);
        let sample = work(1, "one way");
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(machines[2].ended(&sample)["state"], "done");
        cables.mend();

        // Three of ten packets are lost.
        cables.lose(30);
        let samples: Vec<String> = (0..4).map(|i| work(i, &format!("loss {i}"))).collect();
        std::thread::sleep(Duration::from_secs(5));
        cables.mend();
        for sample in &samples {
            assert_eq!(machines[3].ended(sample)["state"], "done");
        }
        machines[3].led_by("n1");
    }
    history::holds(&records);
    assert_eq!(history::count(&records, "select count(*) from lab_samples where state <> 'done'"), 0, "lost");
    assert_eq!(history::count(&records, "select count(*) from lab_samples"), handed_in);
}
