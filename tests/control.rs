//! Tests of `weir up` and the commands around it, as an operator uses them.

mod family;
pub(crate) mod gate;

use crate::harness::weir;
use gate::{Client, Sink, Site, id_in, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_peers::Postgres;

#[test]
fn a_first_start_is_enough_to_send_a_mail() {
    let site = Site::new("");
    let up = site.up();
    let password = up.password();
    for (server, how) in [(&up.plain, "-tls"), (&up.tls, "--tls-on-connect")] {
        let sent = Command::new("swaks")
            .args(["--server", server, how, "--auth-user", "demo", "--auth-password", &password])
            .args(["--from", "demo@localhost", "--to", "ann@localhost", "--header", "Subject: hello"])
            .output()
            .expect("swaks is not installed: run `make setup`");
        let said = String::from_utf8_lossy(&sent.stdout);
        assert!(sent.status.success() && said.contains("accepted, on its way to 1 recipient"), "{said}");
    }
    let mail = fs::read_to_string(&site.arrived("ann@localhost", 2)[0]).expect("text");
    assert!(mail.contains("Subject: hello") && mail.contains("by mail.example (Weir) with ESMTPSA id"), "{mail}");

    let status = site.status();
    assert_eq!((&status["running"], &status["gate"]["pid"]), (&true.into(), &up.pid().into()));
    assert_eq!(status["gate"]["listeners"][0]["address"], up.plain);
    assert_eq!(status["gate"]["counters"]["messages"], 2);
    let printed = site.weir(&["status", "--long"]).ok();
    assert!(
        printed.contains("running since") && printed.contains(&up.plain) && printed.contains("2 messages accepted")
    );
    let short = site.weir(&["status"]).ok();
    assert!(short.ends_with("\nAll is well.\n") && short.lines().count() <= 12, "{short}");
    for part in ["mail", "scan", "web", "lab", "backup", "certificates", "disk"] {
        assert!(short.contains(&format!("\n  {part} ")), "{part} in\n{short}");
    }

    let second = site.weir(&["up"]);
    assert_eq!(second.code, Some(1));
    let owner = format!("error: another weir (pid {}) owns ", up.pid());
    assert!(second.stderr.starts_with(&owner) && second.stderr.lines().count() == 1, "{}", second.stderr);

    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
    assert!(!site.data().join("control.sock").exists());
    let at_rest = site.weir(&["status"]);
    assert!(at_rest.code == Some(4) && at_rest.stdout.contains("is not running"), "{}", at_rest.stdout);
    let again = site.up();
    assert!(!again.said.contains(", password "), "the demo user is made once:\n{}", again.said);
}

#[test]
fn a_report_to_a_sender_whom_nobody_checked_counts_against_who_caused_it() {
    let site = Site::with_submission("identity = \"client-address\"\n", "");
    let up = site.up();
    let mut client = Client::greeted(&up.plain);
    for line in ["MAIL FROM:<victim@localhost>", "RCPT TO:<ann@localhost> NOTIFY=SUCCESS", "DATA"] {
        assert!(client.say(line).starts_with(['2', '3']), "{line}");
    }
    let said = client.say("Subject: buy this\r\n\r\nhello\r\n.");
    assert!(said.contains("accepted, on its way to 1 recipient"), "it takes the only slack: {said}");
    site.arrived("ann@localhost", 1);
    let waits = wait_for("the report to wait", || {
        let list = site.json(&["held", "list"]);
        list["messages"].as_array().filter(|messages| !messages.is_empty()).map(|messages| messages[0].clone())
    });
    assert_eq!((&waits["user"], &waits["sender"]), (&"127.0.0.1".into(), &"".into()), "{waits}");
    assert_eq!(waits["recipients"][0]["address"], "victim@localhost");
    site.weir(&["held", "release", "--all"]).ok();
    let report = fs::read_to_string(&site.arrived("victim@localhost", 1)[0]).expect("text");
    assert!(report.contains("Subject: Your mail was delivered") && !report.contains("\nhello"), "{report}");
}

#[test]
fn a_machine_that_trusts_no_authority_will_do() {
    let inbound = "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test maildir\"]\nrecipients = \"any\"\n";
    let site = Site::new(inbound);
    let mut command = site.command(&["up", "--demo"]);
    command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
    let up = Site::start(command);
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    assert!(client.mail("demo@localhost", &["ann@localhost"], "hello").contains("accepted"));
    site.arrived("ann@localhost", 1);
}

#[test]
fn a_worm_is_stopped_and_people_decide() {
    let site = Site::new("");
    let up = site.up();
    let password = up.password();
    let mut worm = Client::login(&up.plain, "demo", &password).expect("a login");
    let mut replies = Vec::new();
    for mail in 0..22 {
        let to = format!("new{mail}@localhost");
        replies.push(worm.mail("demo@localhost", &[&to], &format!("mail {mail}")));
    }
    assert!(replies[0].contains("accepted, on its way"), "{}", replies[0]);
    assert!(replies[1].contains("held: 1 of 1 recipient waits in the delay queue"), "{}", replies[1]);
    assert!(replies[21].contains("you are stopped"), "{}", replies[21]);
    assert!(worm.reply().starts_with("421 4.7.0 the account is stopped"), "the session ends after its answer");
    let refused = Client::login(&up.plain, "demo", &password).err().expect("no login");
    assert!(refused.starts_with("535 5.7.1 the account is stopped: 21 recipients wait"), "{refused}");

    // Whether there is a notice about the delay before the one about the stop depends on how fast the notices are written.
    wait_for("the notice of the stop", || {
        let notices = site.arrived("demo-contact@localhost", 1);
        let notices: String = notices.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        notices.contains("Subject: Mail from demo is stopped: 21 recipients wait for you").then_some(())
    });

    let list = site.json(&["held", "list"]);
    assert_eq!((&list["recipients"], &list["messages"][0]["stopped"]), (&21.into(), &true.into()));
    assert_eq!(site.json(&["user", "show", "demo"])["state"], "stopped");
    let (first, second, third) = (id_in(&replies[1]), id_in(&replies[2]), id_in(&replies[3]));
    let page = site.weir(&["held", "show", &first]).ok();
    for part in ["more than 20 recipients waited", "new1@localhost", "weir held release", "| Subject: mail 1"] {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }

    let said = site.weir(&["held", "release", &first]).ok();
    assert_eq!(said, format!("Message {first} to 1 recipient goes now.\n"));
    site.arrived("new1@localhost", 1);
    let said = site.weir(&["held", "release", "--to", "new2@localhost", "--trust"]).ok();
    assert!(said.contains(&second) && said.contains("Trusted from now on: new2@localhost."), "{said}");
    site.arrived("new2@localhost", 1);
    site.weir(&["held", "delete", &third]).ok();
    wait_for("the deleted file to go", || (!site.data().join(format!("held/{third}.eml")).exists()).then_some(()));
    site.weir(&["held", "delete", "--user", "demo"]).refused(&["Delete 18 messages for 18 recipients", "--yes"]);

    // From now on, what each person did is in the history of the account.
    wait_for("the stop in its history", || {
        let stops = site.json(&["user", "show", "demo"])["stops"].clone();
        let said = stops[0]["outcome"].as_str()?;
        (said.starts_with("mail released by cli:") && said.contains(", mail deleted by cli:")).then_some(())
    });

    // After a kill, the stop and the mail must still be there, whether a process runs or not.
    up.kill();
    let questions: [&[&str]; 4] = [&["held", "list"], &["user", "list"], &["user", "show", "demo"], &["audit", "demo"]];
    let at_rest: Vec<Value> = questions.iter().map(|question| site.json(question)).collect();
    assert_eq!(at_rest[0]["recipients"], 18);
    let up = site.up();
    let running: Vec<Value> = questions.iter().map(|question| site.json(question)).collect();
    assert_eq!(at_rest, running);
    assert!(Client::login(&up.plain, "demo", &password).is_err());

    let said = site.weir(&["user", "unlock", "demo"]).ok();
    assert!(
        said.contains("the throttle's stop is ended")
            && said.contains("Still waiting, and sent one by one: mail to 18 recipients"),
        "{said}"
    );
    let mut client = Client::login(&up.plain, "demo", &password).expect("a login");
    let reply = client.mail("demo@localhost", &["new2@localhost"], "to a trusted recipient");
    assert!(reply.contains("accepted, on its way"), "{reply}");
    let reply = client.mail("demo@localhost", &["new2@localhost", "stranger@localhost"], "to both");
    assert!(reply.contains("held: 1 of 2 recipients waits"), "the stranger is judged as if alone: {reply}");
    site.arrived("new2@localhost", 3);

    let done = site.json(&["held", "release", "--user", "demo"]);
    assert_eq!(done["recipients"], 19);
    site.arrived("new21@localhost", 1);
    site.arrived("stranger@localhost", 1);
    assert_eq!(site.weir(&["held", "list"]).ok(), "Nothing is held.\n");
    let trail = site.weir(&["audit", "demo"]).ok();
    for action in ["held.release", "held.trust", "held.delete", "user.unlock", "user.add"] {
        assert!(trail.contains(action), "{action} is missing in:\n{trail}");
    }
}

#[test]
fn users_are_managed_with_and_without_a_running_gate() {
    let site = Site::new("");
    drop(site.up());
    let added = site.weir_with(
        &[
            "user",
            "add",
            "ann",
            "--address",
            "ann@example.org",
            "--contact",
            "ann@elsewhere.example",
            "--password-stdin",
        ],
        "correct horse\n",
    );
    assert!(added.ok().contains("ann may now send as ann@example.org (profile person)."));
    site.weir_with(&["user", "add", "ann", "--address", "x@y.z", "--password-stdin"], "correct horse\n")
        .refused(&["there is already a user ann", "hint"]);
    site.weir_with(&["user", "add", "bob", "--password-stdin"], "correct horse\n")
        .refused(&["could not send as anybody"]);
    site.weir_with(&["user", "add", "bob@example.org", "--password-stdin"], "short\n")
        .refused(&["at least 8 characters"]);
    site.weir_with(&["user", "add", "bob@example.org", "--password-stdin"], "")
        .refused(&["no password on standard input"]);
    site.weir(&["user", "show", "nobody"]).refused(&["there is no user nobody", "hint"]);
    site.weir(&["user", "set", "ann"]).refused(&["nothing to change"]);
    site.weir(&["user", "set", "ann", "--stop-at", "0"]).refused(&["stop_at must be"]);
    site.weir(&["user", "set", "ann", "--rate", "5"]).refused(&["--rate", "1/min"]);
    let set = ["user", "set", "ann", "--profile", "application", "--stop-at", "77", "--rate", "5/min"];
    let shown = site.weir(&set).ok();
    assert!(shown.contains("rate 5/min") && shown.contains("stop above 77") && shown.contains("slack 60"), "{shown}");
    assert!(shown.contains("of which own  rate, stop_at"), "{shown}");

    let up = site.up();
    let made = site.json(&["user", "passwd", "ann", "--generate"]);
    let password = made["password"].as_str().expect("a password");
    let mut client = Client::login(&up.plain, "ann", password).expect("the new password counts");
    assert_eq!(site.json(&["user", "show", "ann"])["sessions"], 1);
    let reply = client.mail("eve@example.org", &["bob@example.org"], "forged");
    assert!(reply.starts_with("553 5.7.1 eve@example.org is not an address of the login ann"), "{reply}");
    let locked = site.weir(&["user", "lock", "ann", "--reason", "a leak"]).ok();
    assert!(locked.contains("ann is locked (a leak); 1 session ended."), "{locked}");
    assert_eq!(client.reply(), "421 4.7.0 the account is locked: a leak");
    let refused = Client::login(&up.plain, "ann", password).err().expect("no login");
    assert_eq!(refused, "535 5.7.1 the account is locked: a leak");
    up.kill();
    let up = site.up();
    assert!(Client::login(&up.plain, "ann", password).is_err(), "a lock survives");
    assert!(site.weir(&["user", "unlock", "ann"]).ok().contains("the lock is ended"));
    Client::login(&up.plain, "ann", password).expect("a login");
    let table = site.weir(&["user", "list"]).ok();
    assert!(
        table.starts_with("USER") && table.contains("ann@elsewhere.example") && table.contains("2 users."),
        "{table}"
    );
}

#[test]
fn what_a_thief_has_sent_and_has_not_left_yet_is_deleted_with_what_is_held() {
    let site = Site::new("[throttle]\nrate = \"1/day\"\nmulti_rate = \"1/day\"\n");
    let up = site.up();
    // With a file in place of the folder of Maildirs, nothing can be delivered.
    fs::write(site.data().join("mail"), "in the way").expect("a file");
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let queued = id_in(&client.mail("demo@localhost", &["ann@localhost"], "pay here"));
    let held = client.mail("demo@localhost", &["bob@localhost"], "pay here");
    assert!(held.contains("held: 1 of 1"), "{held}");
    let deferred = || site.json(&["find", &queued])["messages"][0]["state"] == "deferred";
    wait_for("the attempt to fail", || deferred().then_some(()));
    let said = site.weir(&["user", "secure", "demo", "--generate", "--yes"]).ok();
    assert!(said.contains("1 held recipient of 1 message, and 1 message that waited for delivery"), "{said}");
    // The notices wait too, because nothing can be delivered.
    let waits = || site.weir(&["queue", "list"]).ok().contains(&queued);
    wait_for("the queue without it", || (!waits()).then_some(()));
    assert_eq!(site.json(&["find", &queued])["messages"][0]["state"], "deleted");
    assert!(site.weir(&["trace", &queued]).ok().contains("deleted from the delivery queue"));
    let audit = site.weir(&["audit"]).ok();
    assert!(audit.contains("queue.delete"), "{audit}");
    fs::remove_file(site.data().join("mail")).expect("it was there");
    up.kill();
    let _up = site.up();
    assert!(!waits(), "it does not come back");
}

#[test]
fn outgoing_mail_that_cannot_go_is_listed_and_retried() {
    let site = Site::new("");
    let data = site.data();
    let up = site.up();
    // With a file in place of the folder of Maildirs, nothing can be delivered.
    fs::write(data.join("mail"), "in the way").expect("a file");
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let id = id_in(&client.mail("demo@localhost", &["ann@localhost"], "hello"));
    let waits = || site.json(&["queue", "list"])["total"] == 1;
    wait_for("the attempt to fail", || {
        let list = site.json(&["queue", "list"]);
        list["messages"][0]["recipients"][0]["last_answer"].as_str().is_some_and(|said| !said.is_empty()).then_some(())
    });
    assert!(site.weir(&["queue", "list"]).ok().contains(&id));
    assert!(site.weir(&["queue", "list", "--domain", "elsewhere.example"]).ok().contains("Nothing waits"));
    up.kill();
    assert!(waits(), "at rest");
    let up = site.up();
    wait_for("the letter to be taken up", || waits().then_some(()));
    // It is retried while it still cannot be delivered: otherwise Weir would retry it by itself, and on a slow machine nothing would be
    // left to retry.
    assert!(site.weir(&["queue", "retry", &id]).ok().contains("tried again now"));
    fs::remove_file(data.join("mail")).expect("it was there");
    site.arrived("ann@localhost", 1);
    wait_for("the queue to be empty", || (site.json(&["queue", "list"])["total"] == 0).then_some(()));
    site.weir(&["queue", "delete", &id]).refused(&["does not wait for delivery", "hint"]);
    drop(up);
}

#[test]
fn a_backup_under_load_holds_everything_that_was_acknowledged() {
    let site = Site::new("[limits]\nconnections_per_user = 100\n");
    let up = site.up();
    fs::write(site.data().join("mail"), "in the way, so that everything stays").expect("a file");
    for (name, profile) in [("bulk", "exempt"), ("slow", "person")] {
        let address = format!("{name}@localhost");
        site.weir_with(
            &["user", "add", name, "--address", &address, "--profile", profile, "--password-stdin"],
            "correct horse\n",
        )
        .ok();
    }
    let (sent, held) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    let stop = AtomicBool::new(false);
    let backup = site.home().join("backup");
    let (before, held_before) = std::thread::scope(|scope| {
        for thread in 0..3 {
            let (up, sent, stop) = (&up, &sent, &stop);
            scope.spawn(move || {
                let mut client = Client::login(&up.plain, "bulk", "correct horse").expect("a login");
                for mail in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let to = format!("to{thread}-{mail}@localhost");
                    let id = id_in(&client.mail("bulk@localhost", &[&to], "bulk"));
                    sent.lock().expect("no panic").insert(id);
                }
            });
        }
        let mut client = Client::login(&up.plain, "slow", "correct horse").expect("a login");
        for mail in 0..11 {
            let reply = client.mail("slow@localhost", &[&format!("new{mail}@localhost")], "slow");
            let list = if reply.contains("held:") { &held } else { &sent };
            list.lock().expect("no panic").insert(id_in(&reply));
        }
        wait_for("some load", || (sent.lock().expect("no panic").len() > 100).then_some(()));
        let before = (sent.lock().expect("no panic").clone(), held.lock().expect("no panic").clone());
        let done = site.json(&["backup", backup.to_str().expect("a plain path")]);
        stop.store(true, Ordering::SeqCst);
        assert_eq!((&done["records"], &done["note"]), (&true.into(), &"".into()));
        before
    });
    assert_eq!(held_before.len(), 10);
    site.weir(&["backup", backup.to_str().expect("a plain path")]).refused(&["is not empty", "hint"]);
    site.weir(&["backup", site.data().join("x").to_str().expect("a plain path")]).refused(&["inside the data folder"]);
    up.kill();

    let other = Site::new("");
    let restored = other.json(&["restore", backup.to_str().expect("a plain path")]);
    assert!(restored["messages"].as_u64().is_some_and(|count| count >= before.len() as u64), "{restored}");
    assert_eq!((&restored["held_recipients"], &restored["struck_out"]), (&10.into(), &0.into()));
    other.weir(&["restore", backup.to_str().expect("a plain path")]).refused(&["in use already", "hint"]);
    other.weir(&["restore", "/nowhere"]).refused(&["is no backup"]);
    let traced = other.weir(&["trace", held_before.first().expect("one of ten")]).ok();
    assert!(traced.contains("as slow: <slow@localhost> to <new"), "the diary came too: {traced}");
    let up = other.up();
    let list = other.json(&["held", "list"]);
    let ids = |list: &Value| -> BTreeSet<String> {
        let messages = list["messages"].as_array().expect("a list");
        messages.iter().map(|held| held["message"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&list), held_before);
    let delivered = wait_for("everything to be delivered", || {
        let all = maildir_names(&other.data().join("mail"));
        before.iter().all(|id| all.iter().any(|name| name.contains(id.as_str()))).then_some(all.len())
    });
    assert!(delivered >= before.len());
    other.weir(&["held", "release", "--all"]).ok();
    other.arrived("new10@localhost", 1);
    drop(up);
}

#[test]
fn the_configuration_is_in_every_backup_and_comes_back_as_a_copy() {
    let (site, other) = (Site::new("[notices]\nsilent = true\n"), Site::new(""));
    let text = fs::read(site.home().join("weir.toml")).expect("its configuration");
    let up = site.up();
    let passphrase = site.home().join("passphrase");
    fs::write(&passphrase, "correct horse battery\n").expect("a file");
    let passphrase = passphrase.to_str().expect("a plain path");
    let place = |name: &str| site.home().join(name).to_str().expect("a plain path").to_owned();
    let (open, sealed) = (place("open"), place("sealed"));
    site.weir(&["backup", &open]).ok();
    site.weir(&["backup", &sealed, "--passphrase-file", passphrase]).ok();
    drop(up);
    let kept =
        |folder: &str| fs::read(std::path::Path::new(folder).join("configuration/weir.toml")).expect("it is there");
    assert_eq!(kept(&open), text);
    assert!(kept(&sealed) != text, "it is sealed with the rest");
    // A file that an interrupted restore left behind stays as it is.
    fs::create_dir_all(other.data()).expect("a folder");
    fs::copy(site.data().join("format"), other.data().join("format")).expect("a data folder");
    fs::write(other.data().join("weir.toml.restored"), "mine").expect("a file");
    let said = other.weir(&["restore", &sealed, "--passphrase-file", passphrase]).ok();
    let copy = other.data().join("weir.toml.restored.2");
    assert!(said.contains(copy.to_str().expect("a plain path")) && said.contains("It is not used"), "{said}");
    assert_eq!(fs::read(&copy).expect("the copy"), text);
    assert_eq!(fs::read(other.data().join("weir.toml.restored")).expect("the other"), b"mine");
    let third = Site::new("");
    let copy = third.data().join("weir.toml.restored");
    assert_eq!(third.json(&["restore", &open])["configuration"].as_str(), copy.to_str());
}

#[test]
fn the_demonstration_attacks_only_a_weir_that_was_started_for_it() {
    let site = Site::new("");
    let _up = site.up();
    site.weir(&["demo"]).refused(&["was not started with --demo", "weir up --demo"]);
}

#[test]
fn two_relays_on_one_postgresql_are_one_throttle() {
    let url = Postgres::shared().database();
    let records = format!("[store]\nrecords = \"{url}\"\n");
    let (here, there) = (Site::new(&records), Site::new(&records));
    let (first, second) = (here.up(), there.up());
    assert!(!second.said.contains(", password "), "the users are shared, so the demo user is made once");
    let password = first.password();
    let mut clients = [&first, &second].map(|up| Client::login(&up.plain, "demo", &password).expect("a login"));
    let mut replies = Vec::new();
    for mail in 0..22 {
        let to = format!("new{mail}@localhost");
        replies.push(clients[mail % 2].mail("demo@localhost", &[&to], "shared"));
    }
    assert!(replies[21].contains("you are stopped") && !replies[20].contains("you are stopped"), "{replies:?}");
    assert!(Client::login(&first.plain, "demo", &password).is_err());
    let list = here.json(&["held", "list"]);
    assert_eq!((&list["recipients"], &list), (&21.into(), &there.json(&["held", "list"])));
    let relays: BTreeSet<_> =
        list["messages"].as_array().expect("a list").iter().map(|held| held["relay"].to_string()).collect();
    assert_eq!(relays.len(), 2, "each keeps its own: {relays:?}");
    here.weir(&["held", "release", "--user", "demo"]).ok();
    here.arrived("new20@localhost", 1);
    there.arrived("new21@localhost", 1);
    Client::login(&second.plain, "demo", &password).expect("nothing is left to decide");
    let to = here.home().join("backup");
    let done = here.json(&["backup", to.to_str().expect("a plain path")]);
    assert!(done["records"] == false && done["note"].as_str().is_some_and(|note| note.contains("pg_dump")), "{done}");
}

/// The names of all files below a folder.
fn maildir_names(folder: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => names.extend(maildir_names(&path)),
            path => names.push(path.display().to_string()),
        }
    }
    names
}

#[test]
fn what_cannot_be_reached_says_so_in_a_sentence() {
    let site = Site::new("");
    site.weir(&["status"]).refused(&["there is no data folder at", "`weir up` creates one", "--data"]);
    assert!(!site.data().exists(), "a verb makes no folder by accident");
    fs::create_dir(site.data()).expect("a folder");
    site.weir(&["status"]).refused(&["there is no data folder at"]);
    fs::write(site.data().join("thesis.tex"), "years of work").expect("a file");
    for verb in [&["status"][..], &["up"]] {
        site.weir(verb).refused(&["is not a Weir data folder: it holds `thesis.tex`"]);
    }
    fs::remove_file(site.data().join("thesis.tex")).expect("it was there");

    let up = site.up();
    up.signal("STOP");
    site.weir(&["status"]).refused(&["does not answer", "hint"]);
    up.signal("CONT");
    site.weir(&["status"]).ok();

    let taken = up.plain.clone();
    let other = Site::new("");
    fs::write(other.home().join("weir.toml"), format!("[submission]\nlisten = [\"{taken}\"]\n")).expect("a file");
    let refused = other.weir(&["up"]);
    let said =
        format!("error: cannot listen on {taken}: the port is in use; stop what uses it, or set submission.listen");
    assert!(refused.stderr.starts_with(&said) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    fs::write(other.home().join("weir.toml"), "[submission]\ncertificate = \"/nowhere.pem\"\nkey = \"/nowhere.pem\"\n")
        .expect("a file");
    other.weir(&["up"]).refused(&["cannot read /nowhere.pem"]);
    fs::write(other.home().join("weir.toml"), "[store]\nrecords = \"postgres:///x?host=/nowhere\"\n").expect("a file");
    other.weir(&["up"]).refused(&["the records cannot be opened"]);
    drop(up);

    fs::write(site.data().join("format"), "weir data folder, format 9\n").expect("a file");
    for verb in [&["status"][..], &["up"]] {
        site.weir(verb).refused(&["a newer Weir wrote", "format 9"]);
    }
    fs::set_permissions(site.data(), fs::Permissions::from_mode(0o000)).expect("it is ours");
    let run = powerless(&site);
    fs::set_permissions(site.data(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    assert!(run.contains("you are not allowed to look into") && run.contains("hint"), "{run}");
}

/// What `weir status` prints for a user whom the permissions of the folder keep out, even if the test runs as root.
fn powerless(site: &Site) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    let plain = site.command(&["status"]);
    command.arg(plain.get_program()).args(plain.get_args());
    let tried = command.stdin(Stdio::null()).output().expect("setpriv runs");
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    // If we are not root, capabilities cannot be dropped and need not be.
    if said.starts_with("setpriv:") { site.weir(&["status"]).stderr } else { said }
}

#[test]
fn certificates_are_read_again_on_hangup() {
    let site = Site::new("");
    let up = site.up();
    let leaf = || {
        let shown = Command::new("openssl")
            .args(["s_client", "-connect", &up.tls, "-showcerts"])
            .stdin(Stdio::null())
            .output()
            .expect("openssl is not installed: run `make setup`");
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let (_, after) = text.split_once("BEGIN CERTIFICATE").expect("a certificate");
        after.split("END CERTIFICATE").next().expect("its end").to_owned()
    };
    let first = leaf();
    let other = Site::new("");
    drop(other.up());
    for file in ["cert.pem", "key.pem"] {
        fs::copy(other.data().join("tls").join(file), site.data().join("tls").join(file)).expect("a copy");
    }
    up.signal("HUP");
    wait_for("the new certificate", || (leaf() != first).then_some(()));
}

#[test]
fn keys_are_made_and_sign_what_goes_to_a_smarthost() {
    let sink = Sink::new();
    let site = Site::new("");
    let route = format!("[delivery]\nway = \"smarthost\"\nhosts = [\"{}\"]\n", sink.address);
    let configuration =
        fs::read_to_string(site.home().join("weir.toml")).expect("text").replace("[delivery]\n", &route);
    fs::write(site.home().join("weir.toml"), configuration).expect("a file");
    let up = site.up();
    assert!(up.said.contains(&format!("smarthost {}", sink.address)), "{}", up.said);
    assert!(site.weir(&["dkim", "list"]).ok().starts_with("There are no keys"));
    let made = site.weir(&["dkim", "add", "LOCALHOST", "--kind", "ed25519", "--selector", "s1"]).ok();
    assert!(made.contains("s1._domainkey.localhost. IN TXT ( \"v=DKIM1; k=ed25519; p="), "{made}");
    site.weir(&["dkim", "add", "localhost", "--kind", "ed25519", "--selector", "s1"]).refused(&["hint"]);
    site.weir(&["dkim", "add", "../x", "--kind", "ed25519"]).refused(&["hint"]);
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    client.mail("demo@localhost", &["ann@elsewhere.example"], "signed");
    let text = sink.text();
    assert!(text.starts_with("DKIM-Signature:") && text.contains("d=localhost") && text.contains("s=s1"), "{text}");
    drop(up);
    let second = site.json(&["dkim", "add", "localhost", "--kind", "ed25519", "--selector", "s2"]);
    assert_eq!((&second["selector"], &second["signs"]), (&"s2".into(), &true.into()));
    let keys = site.json(&["dkim", "list"]);
    assert_eq!((&keys[0]["signs"], &keys[1]["signs"]), (&false.into(), &true.into()));
}

#[test]
fn held_mail_says_what_it_brings_along() {
    let site = Site::new("");
    let up = site.up();
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    client.mail("demo@localhost", &["first@elsewhere.example"], "the slack is spent");
    let invoice = "From: demo@localhost\r\nSubject: an invoice\r\nMIME-Version: 1.0\r\n\
        Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\n\
        Content-Type: application/pdf; name=invoice.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjc=\r\n--b--";
    let said = client.text("demo@localhost", &["second@elsewhere.example"], invoice);
    assert!(said.contains("held: 1 of 1"), "{said}");
    let list = site.json(&["held", "list"]);
    let message = list["messages"][0]["message"].as_str().expect("an id");
    let shown = site.weir(&["held", "show", message]).ok();
    let (_, brought) = shown.split_once("\nIts attachments\n").unwrap_or_else(|| panic!("{shown}"));
    let line = brought.lines().next().unwrap_or_default();
    assert!(line.contains("invoice.pdf") && line.contains("application/pdf, 8 "), "{shown}");
    let brought = site.json(&["held", "show", message])["attachments"].clone();
    let invoice = serde_json::json!([{ "name": "invoice.pdf", "media_type": "application/pdf", "size_bytes": 8 }]);
    assert_eq!(brought, invoice);
}

#[test]
fn nothing_selected_is_nothing_done() {
    let site = Site::new("");
    drop(site.up());
    site.weir(&["held", "release"]).refused(&["which held mail is meant?", "hint"]);
    site.weir(&["held", "delete"]).refused(&["which held mail is meant?"]);
    site.weir(&["queue", "delete"]).refused(&["which outgoing mail is meant?"]);
    site.weir(&["held", "release", "nonsense"]).refused(&["not a message id"]);
    site.weir(&["held", "show", "0dh3k9w2m1c8t0qzx4pn"]).refused(&["nothing of message 0dh3k9w2m1c8t0qzx4pn is held"]);
    site.weir(&["held", "release", "--all", "--user", "ann"]).refused(&["cannot be used with"]);
    weir(&["held", "learned", "--days", "0"]).refused(&["--days"]);
    assert!(site.weir(&["held", "learned"]).ok().starts_with("Nothing was learned in the last 30 days."));
}
