//! Tests of what pages and the terminal show, and that they agree: the settings in force, the safe choice first, until when something is
//! kept, hashes that can be copied, and lists that update themselves.

use super::visitor::Visitor;
use super::{INBOUND, attacks_by_mail, outbreak};
use crate::control::gate::{Site, Up, wait_for};

fn admin(up: &Up) -> Visitor {
    let password = up.admin_password();
    Visitor::log_in(&format!("http://{}", up.listener("console")), &[], ("admin", &password))
}

/// The text between these two.
#[track_caller]
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from:?} is missing in:\n{text}"));
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

/// The row of a setting on a page.
#[track_caller]
fn setting<'p>(page: &'p str, name: &str) -> &'p str {
    between(page, &format!("<tr id=\"{name}\">"), "</tr>")
}

#[test]
fn settings_are_shown_as_they_are_in_a_demonstration_and_after_a_reload() {
    let site = Site::new(&format!("{INBOUND}[throttle]\nrate = \"1/day\"\n"));
    let up = site.up_with(&["--demo"]);
    let admin = admin(&up);
    let page = admin.get("/settings");
    assert!(page.contains("This Weir was started with <code>--demo</code>, which sets"), "{page}");
    let scanned = setting(&page, "scan.enabled");
    assert!(scanned.contains("<code>true</code>") && scanned.contains("set by <code>--demo</code>"), "{scanned}");
    let file = site.home().join("weir.toml");
    let before = std::fs::read_to_string(&file).expect("a configuration");
    let line = before.lines().position(|line| line == "rate = \"1/day\"").expect("a line") + 1;
    let rate = setting(&page, "throttle.rate");
    assert!(rate.contains("1/day") && rate.contains(&format!("weir.toml, line {line}<")), "{rate}");

    let after = before.replace("rate = \"1/day\"", "rate = \"10/s\"").replace("mail.example", "other.example");
    std::fs::write(&file, after).expect("a configuration");
    let said = site.weir(&["reload"]).ok();
    assert!(said.contains("only after a restart: submission.hostname"), "{said}");
    let page = admin.get("/settings");
    let rate = setting(&page, "throttle.rate");
    assert!(rate.contains("10/s") && !rate.contains("1/day"), "{rate}");
    // A setting that waits for a restart is shown with the value in force, and with a note.
    let name = setting(&page, "submission.hostname");
    assert!(name.contains("mail.example") && name.contains("the file has another value: restart to use it"), "{name}");
    let scanned = setting(&page, "scan.enabled");
    assert!(scanned.contains("<code>true</code>") && scanned.contains("set by <code>--demo</code>"), "{scanned}");
    assert!(!scanned.contains("the file has another value"), "{scanned}");
}

/// The labels of buttons that stand out: those with the class `main`.
fn prominent(part: &str) -> Vec<&str> {
    let is_main = |piece: &&str| piece.split('"').next().is_some_and(|class| class.split(' ').any(|one| one == "main"));
    let pieces = part.split("class=\"").skip(1).filter(is_main);
    pieces.filter_map(|piece| piece.split_once('>')?.1.split('<').next()).collect()
}

#[test]
fn the_safe_act_stands_out_and_what_is_kept_says_until_when() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    outbreak(&up);
    attacks_by_mail(&site, &up);
    let admin = admin(&up);
    let page = admin.get("/throttle/users/demo");
    let acts = between(&page, "<h2>What you can do</h2>", "</section>");
    let safe = ["This was not demo: secure the account…", "Lock, new password, delete what is held"];
    assert_eq!(prominent(acts), safe, "{acts}");
    assert!(acts.contains("<button>Unlock: demo may send"), "{acts}");
    assert!(between(&page, "<h2>Now</h2>", "<h2>What you can do</h2>").contains("<h2>Evidence</h2>"), "{page}");

    let entries = site.json(&["quarantine", "list"])["entries"].as_array().expect("a list").clone();
    let kinds: Vec<&str> = entries.iter().filter_map(|entry| entry["queue"].as_str()).collect();
    assert!(kinds.contains(&"virus") && kinds.contains(&"ext"), "{kinds:?}");
    let list = admin.get("/quarantine");
    for entry in &entries {
        let [message, since, until] = ["message", "since", "until"].map(|name| entry[name].as_str().expect("text"));
        assert!(until > since, "{entry}");
        let page = admin.get(&format!("/quarantine/{message}"));
        let acts = between(&page, "<h2>What you can do</h2>", "</section>");
        assert_eq!(prominent(acts), ["Delete…"], "{acts}");
        let ends = format!("<time datetime=\"{until}\"");
        assert!(between(&page, "<h2>Until when</h2>", "</p>").contains(&ends), "{ends} is missing in:\n{page}");
        assert!(list.contains(&ends), "{ends} is missing in:\n{list}");
        let day = until.split('T').next().expect("a day");
        let told = site.weir(&["quarantine", "show", message]).ok();
        assert!(told.lines().any(|line| line.trim().starts_with(&format!("until       {day}"))), "{told}");
    }
}

#[test]
fn the_page_of_the_feeds_knows_what_the_terminal_knows() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    attacks_by_mail(&site, &up);
    let admin = admin(&up);
    // Weir's own notices are scanned too, and some may still be on their way.
    let (feeds, page) = wait_for("the same figures in both places", || {
        let (feeds, page) = (site.json(&["feeds", "status"]), admin.get("/feeds"));
        let counts =
            [("came", "arrived"), ("passed", "passed"), ("quarantined", "quarantined"), ("attempts failed", "failed")];
        let same = |(name, field): &(&str, &str)| {
            page.contains(&format!("<dt>{name}</dt><dd>{}</dd>", feeds["counts"][*field]))
        };
        counts.iter().all(same).then_some((feeds, page))
    });
    assert!(feeds["counts"]["quarantined"].as_u64() >= Some(3), "{feeds}");
    let told = site.weir(&["feeds", "status"]).ok();
    let rows = |part: &str| part.matches("<tr><td").count();
    let lists = [("The feeds</h2>", "feeds"), ("What a scan takes</h2>", "services"), ("Scanners</h2>", "scanners")];
    for (heading, field) in lists {
        let list = feeds[field].as_array().expect("a list");
        if list.is_empty() {
            assert!(!page.contains(heading), "{field}: {page}");
            continue;
        }
        let part = between(&page, heading, "</section>");
        assert_eq!(rows(part), list.len(), "{field}: {part}");
        for scanner in list.iter().filter_map(|one| one["scanner"].as_str()) {
            assert!(part.contains(scanner) && told.contains(scanner), "{field}: {scanner} in\n{part}\n{told}");
        }
    }
}

#[test]
fn a_hash_is_whole_wherever_it_is_shown_and_times_are_dates() {
    let site = Site::new(&format!("{INBOUND}[lab]\nenabled = true\nslots = 1\n[scan]\nenabled = true\n"));
    let up = site.up();
    wait_for("a leader", || site.json(&["lab", "status"])["leader"].as_str().map(str::to_owned));
    let file = site.home().join("notes.txt");
    std::fs::write(&file, "only a text\n").expect("a sample");
    site.weir(&["lab", "submit", file.to_str().expect("text")]).ok();
    let sample = wait_for("the end of the sample", || {
        let sample = site.json(&["lab", "list"])[0].clone();
        sample["ended_at"].is_string().then_some(sample)
    });
    for name in ["arrived_at", "ended_at"] {
        let at = sample[name].as_str().expect("a date");
        assert!(at.len() >= 20 && at.as_bytes()[10] == b'T' && at.ends_with('Z'), "{name}: {at}");
    }
    let hash = sample["hash"].as_str().expect("a hash");
    assert_eq!(hash.len(), 64);
    site.weir(&["scan", "rules", "add", "--sha256", hash, "--about", "a test"]).ok();
    for verb in [&["lab", "list"][..], &["lab", "report", "1"], &["scan", "rules", "list"]] {
        let told = site.weir(verb).ok();
        assert!(told.contains(hash), "{verb:?}: {told}");
    }
    let admin = admin(&up);
    for path in ["/lab", "/lab/samples/1", "/rules"] {
        let page = admin.get(path);
        assert!(page.contains(hash), "{path}: {page}");
    }
}

#[test]
fn pages_with_lists_that_change_are_kept_current() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    outbreak(&up);
    let admin = admin(&up);
    let held = site.json(&["held", "list"])["messages"][0]["message"].as_str().expect("an id").to_owned();
    let (mail, way) = (format!("/throttle/held/{held}"), format!("/trace/{held}"));
    let pages = [
        "/",
        "/incidents",
        "/throttle",
        "/throttle/users/demo",
        "/quarantine",
        "/senders",
        "/queue",
        "/bans",
        "/feeds",
    ];
    for path in pages.into_iter().chain(["/web", "/lab", "/rules", "/audit", mail.as_str(), way.as_str()]) {
        let page = admin.get(path);
        assert!(page.contains("<body data-live=\"page\">"), "{path} is as it was when it was opened:\n{page}");
    }
    // Changes that are made elsewhere arrive through the stream of a page that is already open.
    let mut streams = ["%2Fsenders", "%2Frules", "%2Fbans"].map(|page| admin.live(&format!("/live?page={page}")));
    streams.iter_mut().for_each(|stream| drop(stream.until("part-1")));
    let hash = "ab".repeat(32);
    site.weir(&["senders", "block", "late.example"]).ok();
    site.weir(&["scan", "rules", "add", "--sha256", &hash]).ok();
    site.weir(&["bans", "add", "198.51.100.7"]).ok();
    for (stream, words) in streams.iter_mut().zip(["late.example", hash.as_str(), "198.51.100.7"]) {
        stream.until(words);
    }
}
