//! Tests that the present program opens a data folder that release 0.1.0 wrote, and finds everything in it.
//!
//! The folders are in `fixtures/release-0.1.0`, beside the script that made them. Whoever changes a format must keep these tests passing.

use crate::control::gate::{Client, Site, Up, wait_for};
use crate::harness::weir;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_peers::Postgres;

const PASSWORD: &str = "a fixture of 0.1.0";

#[test]
fn a_folder_of_release_0_1_0_with_sqlite_is_taken_over_whole() {
    let site = unpacked("sqlite", "");
    everything_is_there(&site);
    everything_goes_on(&site);
}

#[test]
fn a_folder_of_release_0_1_0_with_postgresql_is_taken_over_whole() {
    let url = Postgres::shared().database();
    let loaded = Command::new("psql")
        .args(["-q", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(fixture("postgresql.sql"))
        .arg(&url)
        .output();
    let loaded = loaded.expect("psql runs");
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let site = unpacked("postgresql", &url);
    everything_is_there(&site);
    everything_goes_on(&site);
}

#[test]
fn a_backup_holds_what_every_gate_has_and_a_changed_octet_is_found() {
    let site = unpacked("sqlite", "");
    let (backup, other) = (site.home().join("backup"), Site::new(""));
    for file in ["weir.toml", "token"] {
        std::fs::copy(site.home().join(file), other.home().join(file)).expect("a file of the fixture");
    }
    let to = backup.to_str().expect("a plain path");
    site.json(&["find", "--login", "worm"]);
    site.weir(&["backup", to]).ok();
    assert!(weir(&["backup", "verify", to]).ok().contains("is intact"));

    let secret = backup.join("web/secret");
    let right = std::fs::read(&secret).expect("the web gate's secret is in the backup");
    let mut wrong = right.clone();
    wrong[0] ^= 1;
    std::fs::write(&secret, wrong).expect("it is ours");
    weir(&["backup", "verify", to]).refused(&["1 difference"]);
    other.weir(&["restore", to]).refused(&["web/secret has changed", "take another backup"]);
    std::fs::write(&secret, right).expect("it is ours");

    other.weir(&["restore", to]).ok();
    everything_is_there(&other);
    for folder in ["held", "quarantine", "keys", "tls", "lab/samples", "lab/analysis"] {
        same(&site.data().join(folder), &other.data().join(folder));
    }
    for file in ["web/secret", "web/history.json"] {
        let read = |site: &Site| std::fs::read(site.data().join(file)).expect("a file");
        assert_eq!(read(&site), read(&other), "{file}");
    }
    everything_goes_on(&other);
}

#[test]
fn a_sealed_backup_is_opened_by_its_passphrase_alone_and_everything_comes_back() {
    let site = unpacked("sqlite", "");
    let past = site.data().join("past.db");
    // Figures are written at each full minute; this row is from long before.
    let row = "pragma journal_mode = wal; create table if not exists past (relay text not null, step bigint not null, at bigint not null, figures text not null, \
               primary key (relay, step, at)); insert into past values ('once', 60, 1, 'long ago')";
    sqlite(&past, row);
    site.json(&["find", "--login", "worm"]);
    let messages = "select count(*) from tracked";
    let tracked = sqlite(&site.data().join("tracking.db"), messages);
    assert_ne!(tracked, "0");

    let (backups, right, wrong) = (site.home().join("backups"), site.home().join("right"), site.home().join("wrong"));
    std::fs::write(&right, "correct horse battery\n").expect("a file");
    std::fs::write(&wrong, "correct horse staple\n").expect("a file");
    let [into, right, wrong] = [&backups, &right, &wrong].map(|path| path.to_str().expect("a plain path"));
    let again = |extra: &[&str]| {
        wait_for("the next second", || {
            let made = site.weir(&[&["backup", "--into", into, "--json"], extra].concat());
            (made.code == Some(0)).then(|| serde_json::from_str::<Value>(&made.stdout).expect("JSON"))
        })
    };
    let first = again(&["--passphrase-file", right]);
    let second = again(&["--passphrase-file", right]);
    assert_eq!(second["since"], first["folder"], "{second}");
    assert!(!site.data().join("backup.tmp").exists(), "nothing open is left behind");
    let to = field(&second, "folder");

    // Nothing that was mail, a name or a key may be readable in the backup, and what did not change is stored only once.
    let found = Command::new("grep").args(["-rliE", "worm|stranger0|BEGIN .*KEY|SQLite format", &to]).output();
    assert_eq!(String::from_utf8_lossy(&found.expect("grep runs").stdout), "");
    let sample = first_file(&Path::new(&field(&first, "folder")).join("held"));
    let same_file = |folder: &str| std::fs::metadata(Path::new(folder).join("held").join(&sample)).expect("a file");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(same_file(&to).ino(), same_file(&field(&first, "folder")).ino());

    weir(&["backup", "verify", &to]).ok();
    weir(&["backup", "verify", &to, "--passphrase-file", right]).ok();
    weir(&["backup", "verify", &to, "--passphrase-file", wrong]).refused(&["the passphrase is wrong"]);
    let other = Site::new("");
    for file in ["weir.toml", "token"] {
        std::fs::copy(site.home().join(file), other.home().join(file)).expect("a file of the fixture");
    }
    other.weir(&["restore", &to]).refused(&["sealed by a passphrase", "--passphrase-file"]);
    other.weir(&["restore", &to, "--passphrase-file", wrong]).refused(&["the passphrase is wrong"]);
    assert!(!other.data().exists(), "a wrong passphrase changes nothing");

    // Somebody who can write to the backup, and knows how the sums are made, still cannot leave a file out.
    let manifest = Path::new(&to).join("backup.json");
    let kept = [
        (manifest.clone(), std::fs::read(&manifest)),
        (Path::new(&to).join("web/secret"), std::fs::read(Path::new(&to).join("web/secret"))),
        (Path::new(&to).join("SHA256SUMS"), std::fs::read(Path::new(&to).join("SHA256SUMS"))),
    ];
    let forge = "rm web/secret && sed -i '/web\\/secret/d' SHA256SUMS && \
                 sed -i \"s/\\\"sums\\\": .*/\\\"sums\\\": \\\"$(sha256sum SHA256SUMS | cut -d' ' -f1)\\\",/\" backup.json";
    assert!(Command::new("sh").args(["-c", forge]).current_dir(&to).status().expect("a shell").success());
    weir(&["backup", "verify", &to]).ok();
    other.weir(&["restore", &to, "--passphrase-file", right]).refused(&["does not know the passphrase"]);
    for (path, content) in kept {
        std::fs::write(path, content.expect("a file")).expect("it is ours");
    }

    other.weir(&["restore", &to, "--passphrase-file", right]).ok();
    everything_is_there(&other);
    // Empty folders, such as those of lab/analysis, are made again when they are needed.
    for folder in ["held", "quarantine", "keys", "tls", "lab/samples"] {
        same(&site.data().join(folder), &other.data().join(folder));
    }
    assert_eq!(sqlite(&other.data().join("past.db"), "select figures from past where relay = 'once'"), "long ago");
    assert_eq!(sqlite(&other.data().join("tracking.db"), messages), tracked);
    everything_goes_on(&other);

    // The setting seals backups that a timer makes, and a backup that is not sealed never shares files with one that is.
    let file = site.home().join("weir.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let text = text.replacen("[store]", &format!("[store]\nbackup_passphrase_file = {right:?}"), 1);
    std::fs::write(&file, text).expect("it is ours");
    assert_eq!(again(&[])["format"], 3);
    let audit = site.weir(&["audit"]).ok();
    assert!(audit.contains(", sealed"), "{audit}");
}

/// The output of a statement, from SQLite's own program.
fn sqlite(file: &Path, sql: &str) -> String {
    let said = Command::new("sqlite3").arg(file).arg(sql).output().expect("sqlite3 runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

fn first_file(folder: &Path) -> std::ffi::OsString {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names.swap_remove(0)
}

#[test]
fn what_a_newer_weir_has_changed_is_refused_in_clear_words_and_left() {
    let site = unpacked("sqlite", "");
    let format = site.data().join("format");
    let right = std::fs::read_to_string(&format).expect("the format");
    std::fs::write(&format, "weir data folder, format 99\n").expect("it is ours");
    site.weir(&["up"]).refused(&["a newer Weir wrote", "format 99", "install that Weir again"]);
    assert_eq!(std::fs::read_to_string(&format).expect("the format"), "weir data folder, format 99\n");
    std::fs::write(&format, right).expect("it is ours");

    site.weir(&["user", "list"]).ok();
    let newer = "import sqlite3, sys\n\
                 with sqlite3.connect(sys.argv[1]) as db: db.execute('insert into weir_schema (version) values (999)')";
    let changed = Command::new("python3").args(["-c", newer]).arg(site.data().join("records.db")).status();
    assert!(changed.expect("python3 runs").success());
    site.weir(&["user", "list"]).refused(&["the database has schema 999", "use a newer weir"]);
}

/// Checks that both folders contain the same files, except for those that were being written.
fn same(one: &Path, other: &Path) {
    let differs =
        Command::new("diff").args(["-r", "--exclude=incoming"]).args([one, other]).output().expect("diff runs");
    assert!(differs.status.success(), "{}", String::from_utf8_lossy(&differs.stdout));
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/release-0.1.0").join(name)
}

/// Unpacks a folder and its configuration, with free ports, and with delivery to Maildirs so that the mail can be seen.
fn unpacked(name: &str, records: &str) -> Site {
    let site = Site::new("");
    let archive = fixture(&format!("{name}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(site.home()).status();
    assert!(unpacked.expect("tar runs").success(), "{}", archive.display());
    let file = site.home().join("weir.toml");
    let changed = |line: &str| match line.split_once(" = ").map(|(key, _)| key) {
        Some(key @ ("listen" | "listen_tls")) => format!("{key} = [\"127.0.0.1:0\"]"),
        Some("records") => format!("records = \"{records}\""),
        Some("way") => "way = \"maildir\"".to_owned(),
        Some("hosts") => String::new(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = std::fs::read_to_string(&file).expect("a configuration").lines().map(changed).collect();
    std::fs::write(&file, lines.join("\n")).expect("it is ours");
    site
}

/// While nothing runs: nothing has been lost, and opening the folder has changed nothing.
fn everything_is_there(site: &Site) {
    let users = site.json(&["user", "list"]);
    let state = |name: &str| field(entry(&users, "name", name), "state");
    assert_eq!([state("ann"), state("bob"), state("worm")], ["active", "locked", "stopped"]);
    let ann = site.json(&["user", "show", "ann"]);
    assert_eq!(ann["trusted"][0], "friend@elsewhere.example");
    assert_eq!(ann["throttle"]["params"]["stop_at"], 7, "{ann}");

    let held = site.json(&["held", "list"]);
    assert_eq!((held["messages"].as_array().map(Vec::len), &held["recipients"]), (Some(3), &Value::from(17)), "{held}");
    let quarantine = site.json(&["quarantine", "list"]);
    let queues: Vec<String> = entries(&quarantine["entries"]).iter().map(|message| field(message, "queue")).collect();
    assert!(queues.contains(&"virus".to_owned()) && queues.contains(&"ext".to_owned()), "{quarantine}");
    let queue = site.json(&["queue", "list"]);
    assert_eq!(queue["total"], 4, "{queue}");

    let found = site.json(&["find", "--login", "worm"]);
    let sent = entries(&found["messages"]);
    assert!(!sent.is_empty() && sent.iter().all(|mail| field(mail, "from").contains('@')), "of its diary: {found}");

    assert_eq!(field(entry(&site.json(&["console", "list"]), "name", "olga"), "role"), "operator");
    assert_eq!(field(entry(&site.json(&["console", "token", "list"]), "name", "monitoring"), "scope"), "read");
    assert_eq!(field(entry(&site.json(&["dkim", "list"]), "domain", "example.org"), "selector"), "weir202611");
    assert_eq!(site.json(&["scan", "rules", "list"])[0]["about"], "a file that nobody wants");
    let audit = site.weir(&["audit"]).ok();
    for line in ["user.lock", "token.add", "dkim.add", "rule.add", "quarantine.virus"] {
        assert!(audit.contains(line), "{line} is missing in:\n{audit}");
    }
}

/// While Weir runs: waiting mail is decided and delivered, and people and programs can log in as before.
fn everything_goes_on(site: &Site) {
    let secret = || std::fs::read(site.data().join("web/secret")).expect("the web gate's secret");
    let before = secret();
    let up = site.up();
    site.arrived("stranger0@elsewhere.example", 1);
    site.arrived("victim0@elsewhere.example", 1);
    site.weir(&["held", "release", "--user", "worm"]).ok();
    site.arrived("victim29@elsewhere.example", 1);
    let quarantine = site.json(&["quarantine", "list", "--queue", "ext"]);
    let message = field(&quarantine["entries"][0], "message");
    site.weir(&["quarantine", "release", &message]).ok();
    site.arrived("ann@example.org", 1);

    assert!(Client::login(&up.plain, "ann", PASSWORD).is_ok());
    let locked = Client::login(&up.plain, "bob", PASSWORD).err().unwrap_or_default();
    assert!(locked.contains("the password was found in a leak"), "{locked}");
    assert_eq!(status_by_token(site, &up)["relay"], std::fs::read_to_string(site.data().join("relay")).unwrap().trim());
    assert_eq!(secret(), before, "visitors keep their cookies");
    assert!(site.data().join("web/history.json").exists());

    let samples = wait_for("the lab", || Some(site.json(&["lab", "list"])).filter(|list| entries(list).len() == 2));
    let verdicts: Vec<String> = entries(&samples).iter().map(|sample| field(sample, "verdict")).collect();
    assert!(verdicts.contains(&"malicious".to_owned()), "{samples}");
    let report = site.weir(&["lab", "report", "275a021b"]).ok();
    assert!(report.contains("EICAR"), "{report}");
}

/// What a monitoring program gets with the token that it was given under 0.1.0.
fn status_by_token(site: &Site, up: &Up) -> Value {
    let token = std::fs::read_to_string(site.home().join("token")).expect("a token");
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let url = format!("http://{}/api/v1/status", up.listener("console"));
    let answer =
        Command::new("curl").args(["-sS", "--max-time", "60", "-H", &bearer, &url]).output().expect("curl runs");
    serde_json::from_slice(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[track_caller]
fn entry<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    entries(list).iter().find(|entry| entry[key] == value).unwrap_or_else(|| panic!("no {value} in {list}"))
}

fn field(entry: &Value, key: &str) -> String {
    entry[key].as_str().unwrap_or_default().to_owned()
}
