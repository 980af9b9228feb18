//! Tests of `weir replay` on mail that a real Postfix wrote.

mod postfix;

use crate::harness::weir;
use postfix::Postfix;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Sends all mail of these tests: ann's day, eve's worm, and one mail of dora's with every difficulty.
fn send_everything(postfix: &Postfix) {
    let mut ann = postfix.session("submit", "ann@example.org");
    ann.send("ann@example.org", &["bob@example.org"], "Fri, 1 Mar 2024 09:00:00 +0000");
    ann.send("ann@example.org", &["bob@Example.ORG"], "Fri, 1 Mar 2024 10:00:30 +0100");
    ann.send("ann@example.org", &["carl@example.org"], "Fri, 1 Mar 2024 09:00:40 +0000");
    let many = ["bob@example.org", "carl@example.org", "team@example.org", "club@lists.example.org"];
    ann.send("ann@example.org", &many, "Fri, 1 Mar 2024 10:00:00 +0000");
    let mut eve = postfix.session("smtp-in", "eve@example.org");
    for second in 0..30 {
        let to = format!("w{second}@example.org");
        eve.send("eve@example.org", &[&to], &format!("Fri, 1 Mar 2024 12:00:{second:02} +0000"));
    }
    let to = ["bob@example.org", "later@slow.example.org", "gone@lists.example.org"];
    let mail =
        format!("From: dora@example.org\nTo: {}\nDate: Fri, 1 Mar 2024 11:00:00 +0000\n\nhello\n", to.join(", "));
    postfix.sendmail("dora@example.org", &to, &mail);
    postfix.wait_for("status=deferred", 1);
    postfix.wait_for("status=bounced", 1);
    postfix.wait_for(": removed", 4 + 1 + 30 + 1);
    postfix.run("postqueue", &["-f"]);
    postfix.wait_for("status=deferred", 2);
    postfix.run("postsuper", &["-r", "ALL"]);
    postfix.wait_for("orig_id=", 1);
    postfix.wait_for("status=deferred", 3);
}

#[test]
fn log_mbox_and_maildir_of_a_real_postfix_tell_the_same() {
    let postfix = Postfix::start();
    send_everything(&postfix);
    let path = |name: &str| postfix.path(name).display().to_string();
    let log = json(&["replay", "--json", "--ignore", "archive@example.org", &path("mail.log")]);
    let mbox = json(&["replay", "--json", &path("boxes/sent.mbox")]);
    let maildir = json(&["replay", "--json", "--kind", "maildir", &path("boxes/sent")]);
    for found in [&log, &mbox, &maildir] {
        check_counts(found);
        check_eve(&found["users"]["eve@example.org"]);
    }
    // The dates in the mails are exact, so the delays are too. The log has the times at which the test ran.
    for found in [&mbox, &maildir] {
        check_dates(found);
    }
    assert_eq!(log["skipped"]["bounce"]["count"], 1, "dora's bounce");
    assert_eq!(log["skipped"]["queued_again"]["count"], 1, "what club forwarded");
    assert_eq!(mbox["skipped"]["queued_again"]["count"], 1, "dora's mail is archived again when queued again");
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&weir(args).ok()).unwrap()
}

fn check_counts(found: &Value) {
    let sent =
        |user: &str| (found["users"][user]["sent_mails"].as_u64(), found["users"][user]["sent_recipients"].as_u64());
    assert_eq!(sent("ann@example.org"), (Some(4), Some(7)), "{found:#}");
    assert_eq!(sent("eve@example.org"), (Some(30), Some(30)), "{found:#}");
    assert_eq!(sent("dora@example.org"), (Some(1), Some(3)), "{found:#}");
    assert_eq!(found["users"].as_object().map(|users| users.len()), Some(3), "{found:#}");
}

/// One mail is sent because of the slack, twenty wait, and the twenty-second is one too many.
fn check_eve(eve: &Value) {
    let numbers =
        ["sent_at_once", "released", "held", "passed", "mails", "refused"].map(|key| eve[key].as_u64().unwrap());
    assert_eq!(numbers, [1, 0, 21, 1, 22, 8], "{eve:#}");
    assert_eq!(eve["stopped_by"]["to"], "w21@example.org");
    assert_eq!(eve["stopped_by"]["recipients"], 1);
}

fn check_dates(found: &Value) {
    let (ann, eve) = (&found["users"]["ann@example.org"], &found["users"]["eve@example.org"]);
    // carl's first mail comes 40 s after the one that took the slack, so it is sent at the end of the first minute.
    assert_eq!((ann["delayed_percent"].as_f64(), ann["mean_delay_of_delayed_s"].as_f64()), (Some(25.0), Some(20.0)));
    assert_eq!((ann["mean_delay_s"].as_f64(), ann["longest_delay_s"].as_f64()), (Some(5.0), Some(20.0)));
    assert_eq!((&ann["stopped_at_s"], &ann["stopped_by"]), (&Value::Null, &Value::Null));
    assert_eq!((&ann["first_at"], &ann["last_at"]), (&"2024-03-01T09:00:00Z".into(), &"2024-03-01T10:00:00Z".into()));
    assert_eq!((&eve["stopped_at"], eve["stopped_at_s"].as_f64()), (&"2024-03-01T12:00:21Z".into(), Some(10_821.0)));
    assert_eq!(
        (&found["first_at"], &found["last_at"]),
        (&"2024-03-01T09:00:00Z".into(), &"2024-03-01T12:00:29Z".into())
    );
}

fn fixture(name: &str) -> String {
    format!("{}/../../tests/fixtures/replay/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn what_a_postfix_wrote_long_ago_reads_the_same() {
    let mbox = json(&["replay", "--json", &fixture("sent.mbox")]);
    check_counts(&mbox);
    check_eve(&mbox["users"]["eve@example.org"]);
    check_dates(&mbox);
    let log = json(&["replay", "--json", "--year", "2026", "--ignore", "archive@example.org", &fixture("mail.log")]);
    check_counts(&log);
    check_eve(&log["users"]["eve@example.org"]);
    assert_eq!(log["users"]["eve@example.org"]["stopped_at"], "2026-11-15T03:55:54Z");
    assert_eq!(log["users"]["eve@example.org"]["stopped_by"]["name"], "182FD998084");
}

#[test]
fn a_log_with_full_times_and_from_standard_input() {
    let text = fs::read_to_string(fixture("mail.log")).unwrap();
    let full = text.replace("Nov 15 ", "2025-12-31T").replace(" mail postfix", "+01:00 mail postfix");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["replay", "--json", "--ignore", "archive@example.org", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(full.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_counts(&found);
    assert_eq!(found["users"]["eve@example.org"]["stopped_at"], "2025-12-31T02:55:54Z");
    assert_eq!(found["users"]["eve@example.org"]["stopped_by"]["source"], "standard input");
}

#[test]
fn a_folder_a_user_and_one_user_for_all() {
    let root = tempfile::tempdir().unwrap();
    for (user, hour) in [("ann", 9), ("ben", 10)] {
        let folder = root.path().join(user).join("Maildir/.Sent/cur");
        fs::create_dir_all(&folder).unwrap();
        let mail =
            format!("From: me@example.org\nTo: c@example.org\nDate: Fri, 1 Mar 2024 {hour:02}:00:00 +0000\n\nhi\n");
        fs::write(folder.join("1709283600.1.host:2,S"), mail).unwrap();
    }
    let path = root.path().display().to_string();
    let users = |args: &[&str]| json(args)["users"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(users(&["replay", "--json", &path]), ["ann", "ben"]);
    assert_eq!(users(&["replay", "--json", "--user", "all of us", &path]), ["all of us"]);
}

#[test]
fn people_get_a_sentence_a_table_and_a_picture() {
    let plot = tempfile::tempdir().unwrap();
    let plot = plot.path().join("queues.svg");
    let text = weir(&["replay", "--top", "2", "--plot", plot.to_str().unwrap(), &fixture("sent.mbox")]).ok();
    for words in [
        "3 users sent 35 mails to 40 recipients between 2024-03-01 09:00:00 and 2024-03-01 12:00:29.",
        "eve@example.org would have been stopped, with 21 recipients held at the end and 8 later mails refused.",
        "2024-03-01 12:00:21, line 510 to w21@example.org",
        "… and 1 user more",
        "1 × copy of a mail that is counted already",
    ] {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.contains("stop above 20") && svg.contains("eve@example.org 21"), "{svg}");
}

/// Mails of one user, this many seconds apart, as in a mailbox of sent mail.
fn sent(user: &str, mails: usize, apart_s: usize, to: impl Fn(usize) -> String) -> String {
    let mail = |n: usize| {
        let s = 9 * 3600 + n * apart_s;
        let time = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
        format!(
            "From {user}@example.org Fri Mar  1 {time} 2024\nFrom: {user}@example.org\nTo: {}\n\
             Message-ID: <{n}.{user}@example.org>\nDate: Fri, 1 Mar 2024 {time} +0000\n\nhello\n\n",
            to(n)
        )
    };
    (0..mails).map(mail).collect()
}

/// The points of all curves of this kind in a chart: `l` is a solid line, `d` a dashed one.
fn curves(chart: &str, kind: &str) -> Vec<Vec<(f64, f64)>> {
    let begin = format!("<polyline class=\"{kind}");
    let points = |curve: &str| -> Vec<(f64, f64)> {
        let points = curve.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let point = |point: &str| {
            let (x, y) = point.split_once(',').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        points.split_whitespace().map(point).collect()
    };
    chart.split(begin.as_str()).skip(1).map(points).collect()
}

#[test]
fn the_picture_has_the_curves_of_the_papers_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plot) = (folder.path().join("sent.mbox"), folder.path().join("habits.svg"));
    // Ann writes every minute to the same two people in turn, ben every ten minutes to somebody new, dora to two at a time. Eve has written
    // too little for a curve.
    let all = [
        sent("ann", 14, 60, |n| format!("a{}@far.example", n % 2)),
        sent("ben", 12, 600, |n| format!("b{n}@far.example")),
        sent("dora", 12, 1_200, |n| format!("common@far.example, d{n}@far.example")),
        sent("eve", 5, 60, |n| format!("f{n}@far.example")),
    ];
    fs::write(&file, all.concat()).unwrap();
    weir(&["replay", "--plot", plot.to_str().unwrap(), file.to_str().unwrap()]).ok();
    let svg = fs::read_to_string(plot).unwrap();
    let charts: Vec<&str> = svg.split("<g transform=").skip(1).collect();
    let titles = [
        "Delay queues of the users who would have waited longest",
        "Figure 1, mails to one: a line a user",
        "Figure 1, mails to several: a line a user",
        "Figure 2: recipients among the last addresses",
    ];
    assert_eq!(charts.len(), titles.len(), "{svg}");
    for (chart, title) in charts.iter().zip(titles) {
        assert!(chart.contains(&format!(">{title}<")), "{title} is missing in {chart}");
    }
    let [_, one, several, figure2] = charts[..] else { panic!("{svg}") };
    let (singles, multis) = (curves(one, "l"), curves(several, "l"));
    assert_eq!((singles.len(), multis.len()), (2, 1), "a line for each with more than ten mails: {svg}");
    assert!(singles.iter().chain(&multis).all(|curve| curve.len() == 14), "{singles:?} {multis:?}");
    // In a picture, a smaller number is higher. Ann's curve is at the bottom before one minute and at the top from then on; ben's rises at
    // ten minutes.
    let rises = |curve: &[(f64, f64)]| {
        let (bottom, top) = (curve[0].1, curve[13].1);
        assert!(top < bottom && curve.iter().all(|point| point.1 == bottom || point.1 == top), "{curve:?}");
        curve.iter().position(|point| point.1 == top).unwrap()
    };
    assert_eq!((rises(&singles[0]), rises(&singles[1]), rises(&multis[0])), (3, 8, 10));
    let (means, deviations) = (curves(figure2, "l"), curves(figure2, "d"));
    assert_eq!((means.len(), deviations.len()), (2, 4), "a mean and one deviation to each side, for each kind: {svg}");
    assert!(means.iter().chain(&deviations).all(|curve| curve.len() == 11), "{means:?}");
    // Ann's two people are always among the last two addresses, ben's never are; so is the one to whom dora always writes.
    for mean in &means {
        assert!(mean[0].1 > mean[1].1 && mean[1..].iter().all(|point| point.1 == mean[1].1), "{mean:?}");
    }
}

#[test]
fn other_parameters_other_fates() {
    let mbox = fixture("sent.mbox");
    let eve = |args: &[&str]| {
        let mut all = vec!["replay", "--json", &mbox];
        all.extend(args);
        json(&all)["users"]["eve@example.org"].clone()
    };
    assert_eq!(eve(&["--stop-at", "100"])["stopped_at"], Value::Null);
    assert_eq!(eve(&["--rate", "1/s"])["stopped_at"], Value::Null, "the allowed rate is never stopped");
    assert_eq!(eve(&["--max-slack", "5"])["held"], 21);
    let reviewed = eve(&["--review", "1m"]);
    assert_eq!((reviewed["held"].as_u64(), reviewed["released"].as_u64()), (Some(0), Some(21)));
}

#[test]
fn what_cannot_be_replayed_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let refused = |args: &[&str], words: &[&str]| weir(&[&["replay"], args].concat()).refused(words);
    refused(&[], &["<FILE>"]);
    refused(&["/no/such/file"], &["/no/such/file", "hint"]);
    refused(&["/dev/zero"], &["device", "hint"]);
    refused(&[&file("mail.log.1.gz", b"\x1f\x8b\x08\0\0")], &["gzip", "zcat", "weir replay -"]);
    refused(&[&file("empty", b"")], &["no mail found", "empty file"]);
    refused(&[&file("nuls", &[0; 100_000])], &["neither an mbox nor a Postfix log", "--kind"]);
    refused(&["--kind", "mbox", &file("random", &[0x9c; 1_000_000])], &["no mail found"]);
    refused(&["--kind", "maildir", &file("plain", b"x")], &["folder"]);
    refused(&[&folder.path().display().to_string()], &["no Maildir", "cur/"]);
    refused(&["-"], &["standard input", "no mail found"]);
    let mbox = fixture("sent.mbox");
    for (option, value, word) in [
        ("--rate", "0/min", "rate"),
        ("--rate", "-1/min", "rate"),
        ("--rate", "1e300/s", "rate"),
        ("--stop-at", "0", "stop-at"),
        ("--stop-at", "1000000000000000000", "stop-at"),
        ("--working-set", "1000000000000000000", "working-set"),
        ("--max-slack", "-1", "max-slack"),
        ("--year", "1", "year"),
        ("--review", "soon", "duration"),
        ("--user", "", "user"),
        ("--plot", "/no/such/folder/x.svg", "/no/such/folder"),
        ("--plot", "x.gif", ".svg"),
    ] {
        refused(&[&format!("{option}={value}"), &mbox], &[word]);
    }
}
