//! Tests of a machine outside the lab, of certificates that expire during the test, and of a machine that is removed.

use super::ONE_LAB;
use super::cables::Cables;
use super::history;
use super::machine::{Configured, Machine};
use crate::control::gate::wait_for;
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use weir_peers::Postgres;

/// How long certificates are valid, and how long the lab must live with them at least.
fn lives() -> (&'static str, Duration) {
    match std::env::var("WEIR_RENEWAL").as_deref() {
        Ok("full") => ("60s", Duration::from_secs(300)),
        _ => ("30s", Duration::from_secs(45)),
    }
}

/// A zip archive with one member, made by Python.
fn zipped(name: &str, content: &str) -> Vec<u8> {
    let script = "import io,sys,zipfile\nb=io.BytesIO()\nz=zipfile.ZipFile(b,'w')\nz.writestr(sys.argv[1],sys.argv[2])\nz.close()\nsys.stdout.buffer.write(b.getvalue())";
    let made = Command::new("python3").args(["-c", script, name, content]).output().expect("python3 runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

#[test]
fn a_machine_outside_follows_the_leader_and_certificates_end_without_anybody_noticing() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let cables = Cables::with_outside(2);
    let postgres = Postgres::start_on(&cables.bridge());
    let (records, (life, all)) = (postgres.database(), lives());
    let more = format!("certificate_life = \"{life}\"\n");
    let mut n1 = Machine::new(&cables, 1, &records, Configured::with(&more));
    let mut n2 = Machine::new(&cables, 2, &records, Configured::with(&more));
    let mut far = Machine::outside(&cables, "");
    n1.weir(&["lab", "init", "--name", "n1", "--priority", "10"]).ok();
    let begun = Instant::now();
    n1.up();
    n1.led_by("n1");
    let admit = |machine: &Machine, name: &str, role: &str| {
        let invited = n1.json(&["lab", "invite", "--role", role, "--priority", "20"]);
        machine.weir(&["lab", "join", invited["token"].as_str().expect("a token"), "--name", name]).ok();
    };
    admit(&n2, "n2", "eligible");
    admit(&far, "x1", "external");
    n2.up();
    far.up();
    let first = [&n1, &n2, &far].map(Machine::certificate);

    // It learns who leads from the victory message, and works. The sample is on a machine that it does not know.
    far.led_by("n1");
    n2.led_by("n1");
    n2.weir(&["lab", "drain", "n2"]).ok();
    std::thread::sleep(Duration::from_secs(2));
    let page = n2.analysed("one");
    assert_eq!((&page["state"], &page["attempts"][0]["node"]), (&"done".into(), &"x1".into()), "{page}");
    // The files in a sample that it analysed become samples too. The leader asks it for them.
    let number = n2.submit_bytes(&zipped("inner.txt", "found outside\n"));
    let page = n2.ended(&number);
    assert_eq!(page["attempts"][0]["node"], "x1", "{page}");
    let child = wait_for("what was found in it", || {
        let listed = n2.json(&["lab", "list"]);
        let listed = listed.as_array().expect("samples").clone();
        listed.into_iter().find(|sample| sample["name"] == "inner.txt" && sample["state"] == "done")
    });
    assert_eq!(child["size"], "found outside\n".len(), "{child}");
    // Nothing on it gives access to the database.
    let told =
        Command::new("grep").args(["-rlaE", "postgres(ql)?://"]).arg(far.home.path()).output().expect("grep runs");
    assert_eq!(String::from_utf8_lossy(&told.stdout), "", "a password may be there");
    let file = far.home.path().join("mine");
    std::fs::write(&file, "x").expect("a file");
    far.weir(&["lab", "submit", file.to_str().expect("text")]).refused(&["outside the lab"]);

    // When the leader is gone, the next one tells it.
    n1.kill();
    n2.led_by("n2");
    far.led_by("n2");
    let page = n2.analysed("two");
    assert_eq!((&page["state"], &page["attempts"][0]["node"]), (&"done".into(), &"x1".into()), "{page}");

    // Nobody can connect to it any more, so it connects to the lab's entry.
    far.kill();
    cables.close_outside();
    far.configure(&format!("entry = [\"{}\"]\n", cables.address(2)));
    n1.up();
    far.up();
    n2.led_by("n1");
    far.led_by("n1");
    let page = n2.analysed("three");
    assert_eq!((&page["state"], &page["attempts"][0]["node"]), (&"done".into(), &"x1".into()), "{page}");
    let nodes = n1.json(&["lab", "nodes"]);
    assert_eq!((&nodes[2]["role"], &nodes[2]["leads"]), (&"external".into(), &false.into()), "{nodes}");

    // Certificates have expired and were renewed without interruption: old and new connections work, and the lab goes on.
    let mut round = 0;
    while begun.elapsed() < all {
        std::thread::sleep((all.saturating_sub(begun.elapsed())).min(Duration::from_secs(20)));
        round += 1;
        assert_eq!(n2.analysed(&format!("round {round}"))["state"], "done");
    }
    for (machine, first) in [&n1, &n2, &far].into_iter().zip(&first) {
        assert_ne!(machine.certificate(), *first, "renewed on the disk:\n{}", machine.said());
    }
    let renewed = n2.home.path().join("log");
    let renewed = std::fs::read_to_string(renewed).expect("a log").matches("was renewed").count();
    assert!(renewed >= 2, "{renewed} renewals in {:?}", begun.elapsed());
    assert_eq!(n1.leader().as_deref(), Some("n1"), "the same term of office all the time");

    // After it was removed, there is no machine left that could work, and every machine says so. A sample can be cancelled on any machine.
    n2.weir(&["lab", "remove", "n1"]).refused(&["n1 leads the lab"]);
    n2.weir(&["lab", "remove", "nobody"]).refused(&["no machine nobody"]);
    n2.weir(&["lab", "remove", "x1"]).ok();
    wait_for("x1 to be cut off", || {
        let number = n2.submit(&format!("without x1 {:?}", begun.elapsed()));
        std::thread::sleep(Duration::from_millis(700));
        let why = n2.weir(&["lab", "why", &number]).ok();
        let cancelled = n2.weir(&["lab", "cancel", &number]);
        why.contains("no machine is plugged in").then(|| cancelled.ok())
    });
    n2.weir(&["lab", "drain", "--undo", "n2"]).ok();
    assert_eq!(n1.analysed("four")["attempts"][0]["node"], "n2");
    history::holds(&records);
}
