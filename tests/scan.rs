//! Tests of the scan gate and its quarantines, as an operator uses them.

use crate::attachment::attached;
use crate::control::gate::{Client, Site, id_in, wait_for};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use std::fs;
use weir_analysis::fixtures::zip;
use weir_scan::eicar::eicar;

/// Puts a message into the quarantine of a site that is not running, as the scan would have done.
fn quarantine(site: &Site, id: &str, queue: &str, to: &[&str]) {
    let folder = site.data().join("quarantine");
    let recipients: Vec<_> = to.iter().map(|to| json!({ "address": to, "notify": null, "orcpt": null })).collect();
    let letter = json!({
        "at": 1_794_715_200_000_000_000_u64, "origin": "Submitted", "owner": "demo", "source": "192.0.2.7",
        "subject": "an invoice", "from": "demo@localhost", "eight_bit": false, "utf8": false, "ret_full": null,
        "envid": null, "to": recipients, "added": "X-Before: kept\r\n",
    });
    fs::write(folder.join(format!("{id}.json")), letter.to_string()).expect("a letter");
    fs::write(folder.join(format!("{id}.eml")), "From: demo@localhost\r\nSubject: an invoice\r\n\r\nhello\r\n")
        .expect("a body");
    let verdict = r#"{"findings":[{"scanner":"yara","outcome":{"infected":{"name":"Eicar"}},"place":"","took":{"secs":0,"nanos":1}}]}"#;
    fs::write(folder.join(format!("{id}.verdict")), verdict).expect("a verdict");
    let relay = fs::read_to_string(site.data().join("relay")).expect("a relay").trim().to_owned();
    let url = format!("sqlite://{}", site.data().join("records.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut records = SqliteConnection::connect(&url).await.expect("the records");
        for (place, to) in to.iter().enumerate() {
            sqlx::query(
                "insert into quarantine (message, place, relay, queue, fate, recipient, sender, subject, source, owner, origin,
                 size, at, reason, decided_by) values ($1, $2, $3, $4, 'held', $5, 'demo@localhost', 'an invoice',
                 '192.0.2.7', 'demo', 'submitted', 62, 1794715200000000000, 'infected: Eicar (yara)', '')",
            )
            .bind(id)
            .bind(place as i64)
            .bind(&relay)
            .bind(queue)
            .bind(to)
            .execute(&mut records)
            .await
            .expect("a row");
        }
        records.close().await.expect("in order");
    });
}

const IDS: [&str; 3] = ["38exdmxn6hex5qydvved", "38exdmxn6hex5qydvvef", "38exdmxn6hex5qydvveg"];

#[test]
fn quarantined_mail_is_listed_shown_released_and_deleted() {
    let site = Site::new("[scan]\nenabled = false\n");
    // A command makes no data folder; the first start does.
    drop(site.up());
    quarantine(&site, IDS[0], "virus", &["ann@localhost", "bob@localhost"]);
    quarantine(&site, IDS[1], "spam", &["ann@localhost"]);
    quarantine(&site, IDS[2], "ext", &["eve@localhost"]);
    let list = site.json(&["quarantine", "list"]);
    assert_eq!(list["entries"].as_array().map(Vec::len), Some(3));
    let printed = site.weir(&["quarantine", "list", "--queue", "virus"]).ok();
    assert!(printed.contains(IDS[0]) && printed.contains("2 recipients") && !printed.contains(IDS[1]), "{printed}");
    let page = site.weir(&["quarantine", "show", IDS[0]]).ok();
    for part in
        ["quarantine/virus: infected: Eicar (yara)", "ann@localhost, bob@localhost", "| Subject: an invoice", "yara"]
    {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }
    site.weir(&["quarantine", "list", "--queue", "worms"]).refused(&["no quarantine \"worms\"", "virus, ext, spam"]);
    site.weir(&["quarantine", "release"]).refused(&["which quarantined mail", "hint"]);
    site.weir(&["quarantine", "show", "38exdmxn6hex5qydvvez"]).refused(&["not in quarantine"]);
    let deleted = site.weir(&["quarantine", "delete", "--queue", "ext", "--yes"]).ok();
    assert!(deleted.contains("Deleted: 1 message for 1 recipient."), "{deleted}");
    site.weir(&["quarantine", "release", IDS[0]]).refused(&["is infected: say why", "--reason"]);
    site.weir(&["quarantine", "release", "--all", "--yes", "--reason", "all is well"])
        .refused(&["a message at a time"]);
    let released = site.weir(&["quarantine", "release", IDS[0], "--reason", "the test file, as agreed"]).ok();
    assert!(released.contains("delivered when Weir runs: 1 message for 2 recipients."), "{released}");
    let _up = site.up();
    for to in ["ann@localhost", "bob@localhost"] {
        let mail = fs::read_to_string(&site.arrived(to, 1)[0]).expect("text");
        let line = "X-Weir-Scan: mail.example; released from quarantine/virus by cli:";
        assert!(mail.contains(line) && mail.contains("\nX-Before: kept\n") && mail.contains("an invoice"), "{mail}");
    }
    wait_for("the files to go", || (!site.data().join(format!("quarantine/{}.eml", IDS[0])).exists()).then_some(()));
    let trail = site.json(&["audit", IDS[0]]).to_string();
    assert!(trail.contains("quarantine.release") && trail.contains("the test file, as agreed"), "{trail}");
    assert_eq!(site.json(&["quarantine", "list"])["entries"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_comes_to_the_demonstration_is_scanned_and_each_reason_is_shown() {
    let site = Site::new("");
    let up = site.up_with(&["--demo"]);
    let mut client = Client::greeted(&up.listener("inbound"));
    let mut send = |to: &str, subject: &str, rest: &str| {
        let text = format!("From: you@example.org\r\nSubject: {subject}\r\n{rest}");
        id_in(&client.text("you@example.org", &[to], &text))
    };
    send("ann@demo.test", "clean", "\r\nhello\r\n");
    let program = b"MZ, and what a program would be";
    let bad = [
        ("eicar", attached("readme.txt", eicar().as_bytes()), "quarantine/virus: infected: EICAR_test_file"),
        (
            "program",
            attached("invoice.pdf.exe", program),
            "quarantine/ext: forbidden: a second extension .exe: invoice.pdf.exe",
        ),
        (
            "zipped",
            attached("invoice.zip", &zip(&[("invoice.pdf.exe", program)])),
            "quarantine/ext: forbidden: a second extension .exe: invoice.pdf.exe in invoice.zip > invoice.pdf.exe",
        ),
    ];
    let ids = bad.each_ref().map(|(subject, rest, _)| send("bob@demo.test", subject, rest));
    let clean = fs::read_to_string(&site.arrived("ann@demo.test", 1)[0]).expect("text");
    assert!(clean.contains("X-Weir-Scan: mail.example; clean (yara, attachments)"), "{clean}");
    wait_for("the quarantine", || {
        let list = site.json(&["quarantine", "list"]);
        (list["entries"].as_array().map(Vec::len) == Some(bad.len())).then_some(())
    });
    for (id, (subject, _, why)) in ids.iter().zip(&bad) {
        let page = site.weir(&["quarantine", "show", id]).ok();
        assert!(
            page.contains(why) && page.contains(&format!("| Subject: {subject}")),
            "{why:?} is missing in:\n{page}"
        );
    }
    assert!(!site.data().join("mail/bob@demo.test").exists(), "nothing of it arrives");
}

#[test]
fn without_the_scan_the_feeds_say_so() {
    let site = Site::new("[scan]\nenabled = false\n");
    let up = site.up();
    assert!(up.said.contains("scan         off"), "{}", up.said);
    assert!(site.weir(&["feeds", "status"]).ok().contains("Mail is not scanned"));
    site.weir(&["feeds", "tune"]).refused(&["messages have come", "hint"]);
}
