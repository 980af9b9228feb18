//! The gate with its scan switched on, killed under load together with its workers. Nothing may be lost, and nothing may be delivered
//! unscanned.

use super::load::Sender;
use super::site::{DELIVERIES, Life, Site};
use super::{BATCH, Books, World, number, say};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

/// No more than the scan of a development build can handle.
const SENDERS: [Sender; 4] = [
    Sender { user: "bulk", sessions: 2, recipients: 1, pause: Duration::from_millis(25), infected: false },
    Sender { user: "crowd", sessions: 1, recipients: 6, pause: Duration::from_millis(60), infected: false },
    Sender { user: "slow", sessions: 1, recipients: 3, pause: Duration::from_millis(150), infected: false },
    Sender { user: "sick", sessions: 1, recipients: 3, pause: Duration::from_millis(50), infected: true },
];

/// A scan that a kill interrupts counts as an attempt. The messages must not be given up because of the kills of this test.
const SCAN: &str = "[scan]\nenabled = true\nattempts = 100\n";

#[test]
fn scanned_mail_survives_kills_of_the_gate_and_of_its_workers() {
    let kills = number("WEIR_KILLS", 5);
    let mut world = World::with("kills with the scan on", None, SCAN, &SENDERS);
    let mut ended = 0;
    world.kill_often(kills, |world, life| {
        for _ in 0..world.rng.between(2, 12) {
            std::thread::sleep(Duration::from_millis(world.rng.between(20, 250)));
            ended += usize::from(world.rng.chance(0.5) && end_a_worker(life, world.rng.between(0, 7)));
        }
    });
    let (sink, mut kept) = (world.sink.clone(), 0);
    let verdict = world.settle_and(|site, books| kept = look_through_the_quarantine(site, books));
    say(&format!("kills with the scan on: {ended} workers ended besides; {kept} recipients of infected mail kept"));
    verdict.demand(DELIVERIES + BATCH, kills as usize * (DELIVERIES + BATCH));
    let unscanned = sink.taken().iter().filter(|taken| !taken.scanned).count();
    assert_eq!(unscanned, 0, "mail was delivered unscanned");
    assert!(kept > 0 && verdict.acknowledged > kept, "{kept} of {}", verdict.acknowledged);
}

/// Kills one of the processes that open mail.
fn end_a_worker(life: &Life, which: u64) -> bool {
    let workers = life.workers();
    let Some(worker) = workers.get(which as usize % workers.len().max(1)) else { return false };
    // It may have ended by itself meanwhile.
    let sent = Command::new("kill").args(["-9", &worker.to_string()]).stderr(Stdio::null()).status();
    sent.is_ok_and(|status| status.success())
}

/// Checks that all infected mail that was acknowledged is in the quarantine for viruses, once for each recipient, and that nothing else is
/// quarantined.
#[track_caller]
fn look_through_the_quarantine(site: &Site, books: &Books) -> usize {
    let mut kept = BTreeSet::new();
    loop {
        let list = site.json(&["quarantine", "list"]);
        let entries = list["entries"].as_array().expect("a list");
        for entry in entries {
            assert_eq!((&entry["queue"], &entry["user"]), (&"virus".into(), &"sick".into()), "{entry}");
            for to in entry["recipients"].as_array().expect("a list") {
                let to = to.as_str().expect("an address").to_owned();
                assert!(kept.insert(to), "kept twice: {entry}");
            }
        }
        if entries.is_empty() {
            break;
        }
        // A list has a limited number of rows, so what was seen is deleted.
        let ids: Vec<&str> = entries.iter().filter_map(|entry| entry["message"].as_str()).collect();
        site.weir(&[&["quarantine", "delete", "--yes"], &ids[..]].concat()).ok();
    }
    let infected = books.infected();
    let lost: Vec<&String> = infected.difference(&kept).collect();
    assert!(lost.is_empty(), "{} recipients of infected mail are nowhere: {:?}", lost.len(), lost.first());
    kept.len()
}
