//! Mail that becomes much larger when it is unpacked. Each ends in the quarantine for limits, or is refused at once, and meanwhile honest
//! mail flows. The processes that open it stay within their memory.

use super::honest::{Honest, PASSWORD, mallory};
use crate::attachment::attached;
use crate::control::gate::{Client, Site, wait_for};
use crate::harness::children;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::time::{Duration, Instant};
use weir_analysis::fixtures::zip;
use weir_peers::PlannedClamd;

const FROM: &str = "mallory@localhost";
/// A worker may use a gigabyte of address space; less of that is really in memory.
const WORKER_MOST_MIB: u64 = 800;

#[test]
fn bombs_end_in_quarantine_and_others_are_served() {
    let site = Site::new("[scan]\nenabled = true\n");
    let up = site.up();
    mallory(&site);
    let honest = Honest::begin(&site, &up);
    let mut client = Client::login(&up.plain, "mallory", PASSWORD).expect("logged in");
    let headers = format!("From: {FROM}\r\n{}\r\nhello\r\n", "X-Long: yes\r\n".repeat(1_000_000));
    let said = client.text(FROM, &["victim@localhost"], &headers);
    assert!(said.starts_with('5'), "a header without end is not taken: {said}");

    let mut client = Client::login(&up.plain, "mallory", PASSWORD).expect("logged in");
    let bombs = bombs();
    let begun = Instant::now();
    for (name, text, _) in &bombs {
        let said = client.text(FROM, &["victim@localhost"], &format!("From: {FROM}\r\nSubject: {name}\r\n{text}"));
        assert!(said.starts_with("250"), "{name}: {said}");
    }
    // This is long enough for a slow machine. A bomb that was really unpacked would take far longer.
    let list = loop {
        let list = site.json(&["quarantine", "list"]);
        if list["entries"].as_array().map(Vec::len) == Some(bombs.len()) {
            break list;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "not all are there: {list}");
        std::thread::sleep(Duration::from_millis(100));
    };
    eprintln!("{} bombs were taken apart after {:?}", bombs.len(), begun.elapsed());
    for (name, _, words) in &bombs {
        let entries = list["entries"].as_array().expect("a list");
        let entry = entries.iter().find(|entry| entry["subject"] == *name).expect("each of them");
        let reason = entry["reason"].as_str().unwrap_or_default();
        assert!(entry["queue"] == "limit" && reason.contains(words), "{name}: {entry}");
    }
    for most in children(up.pid()).into_iter().filter_map(most_mib) {
        assert!(most < WORKER_MOST_MIB, "a worker had {most} MiB in memory");
    }
    honest.end(&site, &up, "bombs", 300);
    assert!(!site.data().join("mail/victim@localhost").exists(), "no bomb is delivered");
}

/// A bomb would keep a clamd busy for minutes, and there is only one worker for large mail. Our own walk recognises the bomb before clamd
/// gets it, so mail behind it waits only for ordinary scans. Scans are counted, because times would mean nothing on a busy machine.
#[test]
fn large_mail_of_others_waits_for_no_bomb() {
    let clamd = PlannedClamd::start(Duration::from_millis(50), Duration::from_nanos(100));
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\nauthenticate = false\n\
         [scan]\nenabled = true\nlimits = [\"4KiB\"]\nstrategy = \"size\"\nauto_tune = false\n\
         [scan.clamav]\naddresses = [\"127.0.0.1:{}\"]\nself_test = false\n",
        clamd.port()
    ));
    let up = site.up();
    let mut client = Client::greeted(&up.listener("inbound"));
    let (bombs, before) = (bombs(), clamd.scans());
    let bombs: Vec<_> = bombs.iter().filter(|(name, ..)| ["42.zip", "parts", "nested"].contains(name)).collect();
    for (number, (name, text, _)) in bombs.iter().enumerate() {
        let said = client.text("x@a.example", &["victim@demo.test"], &format!("Subject: {name}\r\n{text}"));
        assert!(said.starts_with("250"), "{name}: {said}");
        let large = format!("Subject: large {number}\r\n\r\n{}", "a line of a large message\r\n".repeat(2000));
        let said = client.text("ann@a.example", &["ann@demo.test"], &large);
        assert!(said.starts_with("250"), "{said}");
    }
    site.arrived("ann@demo.test", bombs.len());
    wait_for("the bombs", || {
        let list = site.json(&["quarantine", "list"]);
        (list["entries"].as_array().map(Vec::len) == Some(bombs.len())).then_some(())
    });
    assert_eq!(clamd.scans() - before, bombs.len(), "clamd sees large mail, and no bomb");
}

/// The most memory that a worker ever used; none if it has ended.
fn most_mib(worker: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
}

/// The names of the bombs, the rest of each message, and the finding that is expected.
fn bombs() -> Vec<(&'static str, String, &'static str)> {
    let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(40_000);
    let parts = "--b\r\n\r\nx\r\n".repeat(100_000);
    let multipart = "Content-Type: multipart/mixed; boundary=b\r\n\r\n";
    let header = format!("--b\r\n{}\r\nhello\r\n--b--\r\n", "X-Long: yes\r\n".repeat(300_000));
    vec![
        ("42.zip", attached("42.zip", &zip_in_zip()), "not scanned"),
        ("zeros", attached("zeros.gz", &gigabyte_of_zeros()), "not scanned"),
        ("nested", nested, "more than 64 messages inside each other"),
        ("parts", format!("{multipart}{parts}"), "more than 10000 parts"),
        ("header", format!("{multipart}{header}"), "a header of more than 1024 KiB"),
    ]
}

fn gigabyte_of_zeros() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![0; 1 << 20];
    (0..1024).for_each(|_| encoder.write_all(&piece).expect("memory"));
    encoder.finish().expect("memory")
}

/// Made like 42.zip: sixteen archives of sixteen archives, five levels deep, around a large file of zeros.
fn zip_in_zip() -> Vec<u8> {
    let mut archive = zip(&[("0.dat", &vec![0; 4 << 20])]);
    for _ in 0..5 {
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"];
        archive = zip(&names.map(|name| (name, &archive[..])));
    }
    archive
}
