//! Tests of `weir scan`: verdicts on files, from the real binary with its own workers.

use crate::control::gate::{Client, Site, id_in, wait_for};
use crate::harness::weir;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_peers::{Clamd, PlannedClamd, Rspamd};
use weir_scan::eicar::eicar;

fn file(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn files_and_messages_get_a_verdict_with_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let clean = file(folder.path(), "clean.eml", b"Subject: hi\r\n\r\nhello\r\n");
    let scan = |path: &Path| weir(&[Path::new("scan"), path]);
    let said = scan(&clean).ok();
    assert!(said.contains("clean.eml: would pass\n  yara          clean\n  attachments   clean\n"), "{said}");

    let eicar = file(folder.path(), "eicar.txt", eicar().as_bytes());
    let run = scan(&eicar);
    assert!(run.stdout.contains("infected: EICAR_test_file  in eicar.txt"), "{run:?}");
    run.refused(&["1 of 1 would not pass"]);

    let named = file(folder.path(), "invoice.pdf.exe", b"hello");
    let run = scan(&named);
    assert!(run.stdout.contains("forbidden: a second extension .exe: invoice.pdf.exe  in invoice.pdf.exe"), "{run:?}");
}

#[test]
fn verdicts_as_json_and_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let clean = file(folder.path(), "clean.eml", b"Subject: hi\r\n\r\nhello\r\n");
    let eicar = file(folder.path(), "eicar.txt", eicar().as_bytes());
    let run = weir(&[Path::new("scan"), Path::new("--json"), &clean, &eicar]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(report["files"][0]["passes"], true);
    assert_eq!(report["files"][1]["verdict"]["findings"][0]["outcome"]["infected"]["name"], "EICAR_test_file");
    weir(&[Path::new("scan"), &folder.path().join("none")]).refused(&["none cannot be scanned"]);
    weir(&["scan"]).refused(&["<FILE>"]);
    weir(&["scan-worker"]).refused(&["this verb is for Weir itself"]);
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).unwrap();
    file(&rules, "bad.yar", b"rule");
    let config = file(folder.path(), "weir.toml", format!("[scan.yara]\nfolder = {rules:?}\n").as_bytes());
    weir(&[Path::new("scan"), Path::new("-c"), &config, &clean]).refused(&["rules in bad.yar do not compile"]);
}

/// Sends a message with this text, and waits until it is quarantined or delivered. Returns the reason if it is quarantined.
fn scanned(site: &Site, inbound: &str, to: &str, text: &str) -> Option<String> {
    let mut client = Client::greeted(inbound);
    client.say("MAIL FROM:<you@example.org>");
    client.say(&format!("RCPT TO:<{to}>"));
    client.say("DATA");
    let said = client.say(&format!("Subject: x\r\n\r\n{text}\r\n."));
    assert!(said.starts_with("250"), "{said}");
    let maildir = site.data().join("mail").join(to).join("Maildir/new");
    wait_for("a verdict", || {
        let list = site.json(&["quarantine", "list"]);
        let entries = list["entries"].as_array().cloned().unwrap_or_default();
        let kept = entries.iter().find(|entry| entry.to_string().contains(to));
        let reason = kept.and_then(|entry| entry["reason"].as_str()).map(str::to_owned);
        let delivered = std::fs::read_dir(&maildir).is_ok_and(|mut files| files.next().is_some());
        if delivered { Some(None) } else { reason.map(Some) }
    })
}

#[test]
fn what_waits_for_a_scanner_is_one_number_everywhere() {
    let mut clamd = Clamd::start();
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n[scan]\nenabled = true\n\
         retry_for = \"1h\"\n[scan.clamav]\naddresses = [\"unix:{}\"]\n",
        clamd.socket().display()
    ));
    let up = site.up();
    clamd.kill();
    let mut client = Client::greeted(&up.listener("inbound"));
    for number in 0..9 {
        let said = client.mail("you@example.org", &["ann@demo.test"], &format!("letter {number}"));
        assert!(said.starts_with("250"), "{said}");
    }
    let console = format!("http://{}", up.listener("console"));
    let admin = crate::console::visitor::Visitor::log_in(&console, &[], ("admin", &up.admin_password()));
    // Now and then one of the messages is being tried, and then it does not count as waiting.
    wait_for("the same number in all places", || {
        let queued = site.json(&["queue", "list"])["total"] == 9;
        let feeds = site.weir(&["feeds", "status"]).ok().contains("Waiting for the scan: 9 messages");
        let status = site.weir(&["status"]).stdout.contains("9 mails wait");
        let page = admin.get("/feeds").contains("9 messages wait, nothing passes unscanned");
        (queued && feeds && status && page).then_some(())
    });
}

#[test]
fn a_feed_is_bound_to_a_clamd_of_its_own() {
    let [mut here, mut there] = [Clamd::start(), Clamd::start()];
    here.learn("Known.Here", "the first text that is bad");
    there.learn("Known.There", "the second text that is bad");
    here.restart();
    there.restart();
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         [scan]\nenabled = true\nlimits = [\"4KiB\"]\nstrategy = \"size\"\nauto_tune = false\n\
         [scan.clamav]\naddresses = [\"unix:{}\"]\n[scan.feeds]\nclamav = [[], [\"127.0.0.1:{}\"]]\n",
        here.socket().display(),
        there.port()
    ));
    let up = site.up();
    let inbound = up.listener("inbound");
    let both = "the first text that is bad\r\nthe second text that is bad\r\n";
    let large = format!("{both}{}", "a line of a large message\r\n".repeat(1000));
    let reason = |to: &str, text: &str| scanned(&site, &inbound, to, text);
    assert_eq!(reason("ann@demo.test", "hello"), None);
    let small = reason("bob@demo.test", both).expect("quarantined");
    assert!(small.contains("Known.Here"), "the first feed asks the common clamd: {small}");
    let other = reason("eve@demo.test", &large).expect("quarantined");
    assert!(other.contains("Known.There"), "the second feed asks its own: {other}");
    let status = site.json(&["feeds", "status"]);
    let up_now = |status: &serde_json::Value| {
        let scanners = status["scanners"].as_array().cloned().unwrap_or_default();
        scanners.iter().filter(|scanner| scanner["scanner"] == "clamav" && scanner["up"] == true).count()
    };
    assert_eq!(up_now(&status), 2, "{status}");
    let services = status["services"].as_array().expect("times");
    let of = |feed: Option<u64>| services.iter().any(|of| of["scanner"] == "clamav" && of["feed"].as_u64() == feed);
    assert!(of(None) && of(Some(2)), "each has its own times: {status}");
    let printed = site.weir(&["feeds", "status"]).ok();
    assert!(printed.contains("TIME OF") && printed.contains("others"), "{printed}");
    assert!(printed.contains("SCANNER") && printed.contains(&format!("127.0.0.1:{}", there.port())), "{printed}");
    // The machine of this scanner is gone, so the common scanner is asked, and the operator can see that.
    there.kill();
    let other = reason("dan@demo.test", &format!("{large}again")).expect("quarantined");
    assert!(other.contains("Known.Here"), "{other}");
    assert_eq!(reason("fay@demo.test", &format!("clean{}", "a line\r\n".repeat(2000))), None);
    // A check that began before the scanner was gone may end after it.
    wait_for("one that is down", || (up_now(&site.json(&["feeds", "status"])) == 1).then_some(()));
}

#[test]
fn the_same_mail_to_many_is_scanned_once() {
    let clamd = PlannedClamd::start(Duration::from_millis(30), Duration::from_nanos(1_500));
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         [scan]\nenabled = true\n[scan.clamav]\naddresses = [\"127.0.0.1:{}\"]\nself_test = false\n",
        clamd.port()
    ));
    let up = site.up();
    let inbound = up.listener("inbound");
    // Answers are cached only when it is known which signatures gave them.
    wait_for("clamd's version", || {
        let status = site.json(&["feeds", "status"]);
        let scanners = status["scanners"].as_array().cloned().unwrap_or_default();
        scanners.iter().any(|scanner| scanner["scanner"] == "clamav" && scanner["up"] == true).then_some(())
    });
    let before = clamd.scans();
    for to in ["ann@demo.test", "bob@demo.test", "eve@demo.test"] {
        assert_eq!(scanned(&site, &inbound, to, "hello, all of you"), None);
    }
    assert_eq!(clamd.scans() - before, 1);
    assert_eq!(scanned(&site, &inbound, "dan@demo.test", "hello, Dan"), None);
    assert_eq!(clamd.scans() - before, 2);
}

#[test]
fn what_rspamd_asks_for_is_done_with_mail_that_was_taken() {
    let rspamd = Rspamd::start();
    let site = Site::new(&format!(
        "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n\
         [scan]\nenabled = true\n[scan.rspamd]\naddress = [\"unix:{}\"]\n",
        rspamd.socket().display()
    ));
    let up = site.up();
    let mut client = Client::greeted(&up.listener("inbound"));
    let mut send = |to: &str, wish: &str| {
        let wish = if wish.is_empty() { String::new() } else { format!("X-Wish: {wish}\r\n") };
        let text =
            format!("From: you@example.org\r\nSubject: notes\r\n{wish}Message-ID: <1@example.org>\r\n\r\nhello\r\n");
        id_in(&client.text("you@example.org", &[to], &text))
    };
    send("ann@demo.test", "");
    send("bob@demo.test", "add header");
    send("eve@demo.test", "rewrite subject");
    send("dan@demo.test", "reject");
    let later = send("fay@demo.test", "soft reject");
    let arrived = |to: &str| std::fs::read_to_string(&site.arrived(to, 1)[0]).expect("text");
    let plain = arrived("ann@demo.test");
    assert!(plain.contains("\nX-Spamd-Bar: ") && !plain.contains("X-Spam-Flag"), "{plain}");
    let marked = arrived("bob@demo.test");
    assert!(marked.contains("\nX-Spam-Flag: YES\n") && marked.contains("\nX-Spamd-Bar: "), "{marked}");
    let renamed = arrived("eve@demo.test");
    let subjects: Vec<&str> = renamed.lines().filter(|line| line.starts_with("Subject:")).collect();
    assert_eq!(subjects, ["Subject: *** SPAM *** notes"], "{renamed}");
    let kept = wait_for("the quarantine", || {
        let list = site.json(&["quarantine", "list"]);
        list["entries"].as_array().and_then(|entries| entries.first().cloned())
    });
    assert!(kept.to_string().contains("dan@demo.test") && kept.to_string().contains("\"spam\""), "{kept}");
    wait_for("what is put off", || {
        let said = site.weir(&["trace", &later]).stdout;
        said.contains("the spam filter wants it later: as the message wishes").then_some(())
    });
}
