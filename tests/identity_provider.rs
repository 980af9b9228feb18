//! Tests of people who sign in at the console through an OpenID Connect provider: a real one (oidc-provider), and one that lies.

use crate::console::browser::Browser as Chromium;
use crate::console::visitor::Visitor;
use crate::control::gate::{Site, Up};
use crate::postfix_doors::recipe;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use weir_peers::{TestAuthority, TestIdentityProvider};

/// The values in the recipe of the page that this test replaces.
const ISSUER: &str = "https://id.example.org/realms/staff";
const SECRET_FILE: &str = "/etc/weir/oidc-secret";
const CALLBACK: &str = "/login/oidc/callback";

/// A site where people may sign in through this provider.
fn site(provider: &TestIdentityProvider, authority: &TestAuthority, more: &str) -> (Site, Up, String) {
    let site = Site::new("");
    let secret = site.home().join("secret");
    std::fs::write(&secret, format!("{}\n", TestIdentityProvider::SECRET)).expect("a file");
    let text = std::fs::read_to_string(site.home().join("weir.toml")).expect("settings");
    let recipe = recipe("People of your identity provider (OpenID Connect)", "toml");
    for written in [ISSUER, SECRET_FILE] {
        assert!(recipe.contains(written), "{written} is not in the recipe");
    }
    let recipe = recipe.replace(ISSUER, &provider.issuer()).replace(SECRET_FILE, &secret.display().to_string());
    let here = format!("ca_file = \"{}\"\n{more}", authority.certificate().display());
    std::fs::write(site.home().join("weir.toml"), format!("{text}{recipe}{here}")).expect("settings");
    let up = site.up();
    let base = format!("http://{}", up.listener("console"));
    (site, up, base)
}

/// A browser: curl with its cookies, which it keeps apart by host and path. Each browser has an address of its own, because failed logins
/// make an address wait.
struct Browser {
    home: tempfile::TempDir,
    from: String,
    authority: PathBuf,
}

/// A page that the browser shows.
struct Page {
    status: u16,
    address: String,
    /// The address to which it was redirected, if it does not follow redirects.
    location: String,
    text: String,
}

impl Browser {
    fn new(authority: &TestAuthority) -> Browser {
        static BEGUN: AtomicU8 = AtomicU8::new(2);
        let from = format!("127.0.7.{}", BEGUN.fetch_add(1, Ordering::Relaxed));
        Browser { home: tempfile::tempdir().expect("a folder"), from, authority: authority.certificate() }
    }

    /// Opens an address and follows redirects.
    fn open(&self, address: &str) -> Page {
        self.ask(&["-L", address])
    }

    /// Opens an address without following redirects.
    fn look(&self, address: &str) -> Page {
        self.ask(&[address])
    }

    /// Sends a form to the address of this page.
    fn send(&self, page: &Page, fields: &[&str]) -> Page {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["--data-urlencode", field]).collect();
        self.ask(&[&["-L", page.address.as_str()], &fields[..]].concat())
    }

    fn ask(&self, arguments: &[&str]) -> Page {
        let jar = self.home.path().join("cookies");
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "60", "-w", "\n%{http_code} %{url_effective} %{redirect_url}", "--cacert"]);
        curl.arg(&self.authority)
            .args(["--interface", &self.from])
            .arg("-b")
            .arg(&jar)
            .arg("-c")
            .arg(&jar)
            .args(arguments);
        let said = String::from_utf8_lossy(&curl.output().expect("curl runs").stdout).into_owned();
        let (text, end) = said.rsplit_once('\n').expect("a last line");
        let mut words = end.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let status = word().parse().expect("a status");
        Page { status, address: word(), location: word(), text: text.to_owned() }
    }

    /// Logs in on the real provider's own pages. Returns the page of the console that follows.
    #[track_caller]
    fn sign_in(&self, base: &str, name: &str, next: &str) -> Page {
        let login = self.open(&format!("{base}/login/oidc?next={next}"));
        assert!(login.address.contains("/interaction/"), "{} {} {}", login.status, login.address, login.text);
        let consent = self.send(&login, &["prompt=login", &format!("login={name}"), "password=any"]);
        assert!(consent.address.contains("/interaction/"), "{} {} {}", consent.status, consent.address, consent.text);
        self.send(&consent, &["prompt=consent"])
    }

    /// Begins a sign-in. Returns what would be sent to the provider.
    #[track_caller]
    fn begin(&self, base: &str) -> Begun {
        let begun = self.look(&format!("{base}/login/oidc?next=%2Faudit"));
        assert_eq!(begun.status, 303, "{}", begun.text);
        let query = begun.location.split_once('?').expect("a query").1.to_owned();
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            pair.unwrap_or_else(|| panic!("no {name} in {query}")).to_owned()
        };
        assert_eq!(value("code_challenge_method"), "S256");
        assert_eq!(value("code_challenge").len(), 43);
        Begun { state: value("state"), nonce: value("nonce") }
    }
}

struct Begun {
    state: String,
    nonce: String,
}

impl Begun {
    /// The code that tells the lying provider what to say.
    fn code(&self, lie: &str, name: &str, groups: &str) -> String {
        let asked = format!(r#"{{"lie":"{lie}","nonce":"{}","name":"{name}","groups":[{groups}]}}"#, self.nonce);
        let alphabet: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*b"-_").collect();
        let six = |chunk: &[u8]| {
            let bits = chunk.iter().fold(0_u32, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - chunk.len()));
            let letters = (0..=chunk.len()).map(|at| char::from(alphabet[(bits >> (18 - 6 * at) & 63) as usize]));
            letters.collect::<String>()
        };
        asked.as_bytes().chunks(3).map(six).collect()
    }
}

#[test]
fn people_of_a_real_provider_sign_in_with_the_role_of_their_groups() {
    let authority = TestAuthority::new();
    let mut provider = TestIdentityProvider::new(&authority);
    let (site, up, base) = site(&provider, &authority, "");
    let admin = up.admin_password();

    // While the provider is not running, the page says so, and local accounts work.
    let ann = Browser::new(&authority);
    let away = ann.open(&format!("{base}/login/oidc"));
    assert_eq!(away.status, 503, "{}", away.text);
    assert!(away.text.contains("Nobody can log in with localhost:") && away.text.contains("name=\"password\""));
    assert!(Visitor::log_in(&base, &[], ("admin", &admin)).get("/settings").contains("sign_in.oidc"));

    provider.start(&format!("{base}{CALLBACK}"), "RS256");
    // Weir remembers for a moment that the provider was away.
    crate::control::gate::wait_for("a provider that answers", || {
        (Browser::new(&authority).look(&format!("{base}/login/oidc")).status == 303).then_some(())
    });
    let welcome = ann.sign_in(&base, "ann", "%2Faudit");
    assert_eq!(welcome.status, 200, "{}", welcome.text);
    assert!(welcome.text.contains("You are logged in as ann") && welcome.text.contains("href=\"/audit\""));
    assert!(ann.open(&format!("{base}/settings")).text.contains("sign_in.oidc"), "an administrator");

    // The code and the state of a sign-in can be used only once, and only in the browser that began it.
    let again = ann.look(&welcome.address);
    assert_eq!(again.status, 403, "{}", again.text);
    assert!(again.text.contains("was not begun in this browser, was used already, or took too long"));
    let other = Browser::new(&authority);
    assert_eq!(other.look(&welcome.address).status, 403);
    assert!(!other.open(&format!("{base}/audit")).text.contains("console.login"), "nobody");

    let bob = Browser::new(&authority);
    assert!(bob.sign_in(&base, "bob", "").text.contains("You are logged in as bob"));
    let audit = bob.open(&format!("{base}/audit"));
    assert!(audit.text.contains("console.login"), "an operator: {}", audit.text);
    assert_eq!(bob.open(&format!("{base}/settings")).status, 403);

    // People in no group are refused; so is somebody with the name of a local account, whatever the provider says about them.
    let cat = Browser::new(&authority).sign_in(&base, "cat", "");
    assert!(cat.status == 403 && cat.text.contains("Cat is in no group that may sign in here"), "{}", cat.text);
    let claimed = Browser::new(&authority);
    let refused = claimed.sign_in(&base, "admin", "");
    assert!(refused.status == 403 && refused.text.contains("There is a local account with the name admin"));
    assert!(!claimed.open(&format!("{base}/settings")).text.contains("sign_in.oidc"));

    // Nobody is redirected to another site.
    for next in ["https:%2F%2Fevil.example%2F", "%2F%2Fevil.example", "%2F%5Cevil.example"] {
        let landed = Browser::new(&authority).sign_in(&base, "bob", next);
        assert!(landed.status == 200 && !landed.text.contains("evil.example"), "{next}: {}", landed.text);
    }
    let trail = site.json(&["audit"]);
    let lines = trail.as_array().expect("lines").iter();
    let lines: Vec<String> = lines.map(|line| format!("{} {}", line["actor"], line["detail"])).collect();
    let of = |who: &str, what: &str| lines.iter().any(|line| line.contains(who) && line.contains(what));
    assert!(of("console:ann", "as admin from 127.0.7.") && of("console:bob", "as operator from 127.0.7."), "{lines:?}");
    assert!(of("console:ann", " by localhost:"), "{lines:?}");
    assert!(of("console:cat", "is in no group") && of("console:admin", "the name is a local account's"), "{lines:?}");

    // A browser does not send the session's cookie with requests that another site caused. The sign-in must work all the same.
    let chromium = Chromium::start();
    chromium.goto(&format!("{base}/audit"));
    chromium.link("Log in with localhost").click();
    chromium.find("input[name=login]").write("bob");
    chromium.find("input[name=password]").write("any");
    chromium.find("button.login-submit").click();
    chromium.find("input[value=consent]");
    chromium.find("button.login-submit").click();
    chromium.says("Log out");
    assert_eq!(chromium.url(), format!("{base}/audit"));

    // The provider changes its keys. The new ones have the names of the old ones, so Weir must fetch them again.
    provider.start(&format!("{base}{CALLBACK}"), "ES256");
    let back = crate::control::gate::wait_for("the new keys", || {
        let page = Browser::new(&authority).sign_in(&base, "ann", "");
        (page.status == 200).then_some(page)
    });
    assert!(back.text.contains("You are logged in as ann"));

    // The provider hangs: the page says so in time, and people who are signed in stay so.
    provider.freeze();
    let bob_begins = Browser::new(&authority).begin(&base);
    assert!(!bob_begins.state.is_empty(), "what it says of itself is remembered");
    assert!(ann.open(&format!("{base}/settings")).text.contains("sign_in.oidc"));
    provider.stop();
    assert!(Visitor::log_in(&base, &[], ("admin", &admin)).get("/settings").contains("sign_in.oidc"));
}

#[test]
fn what_a_lying_provider_or_a_forged_answer_says_lets_nobody_in() {
    let authority = TestAuthority::new();
    let mut provider = TestIdentityProvider::new(&authority);
    provider.start_lying();
    let (site, up, base) = site(&provider, &authority, "timeout = \"1s\"\n");
    let callback = |begun: &Begun, code: &str| format!("{base}{CALLBACK}?state={}&code={code}", begun.state);
    let in_as = |browser: &Browser| browser.open(&format!("{base}/audit")).text.contains("console.login");

    let honest = Browser::new(&authority);
    let begun = honest.begin(&base);
    let page = honest.look(&callback(&begun, &begun.code("", "dan", "\"helpdesk\"")));
    assert!(page.status == 200 && in_as(&honest), "what follows fails because of the lie alone: {}", page.text);

    let lies = [
        "issuer",
        "audience",
        "audiences",
        "nonce",
        "no nonce",
        "expired",
        "early",
        "other key",
        "unknown key",
        "none",
        "secret",
        "refusal",
    ];
    for lie in lies {
        let browser = Browser::new(&authority);
        let begun = browser.begin(&base);
        let page = browser.look(&callback(&begun, &begun.code(lie, "eve", "\"weir-admins\"")));
        assert!(page.status == 403 && !in_as(&browser), "{lie}: {} {}", page.status, page.text);
        assert!(
            page.text.contains("name=\"password\"") && !page.text.contains("<script>alert"),
            "{lie}: {}",
            page.text
        );
    }
    // Failures that say nothing about people are not counted against them.
    for lie in ["silent", "endless", "redirect", "no groups"] {
        let browser = Browser::new(&authority);
        let begun = browser.begin(&base);
        let page = browser.look(&callback(&begun, &begun.code(lie, "eve", "\"weir-admins\"")));
        assert!(matches!(page.status, 403 | 503) && !in_as(&browser), "{lie}: {} {}", page.status, page.text);
    }
    // Forged answers: no state, somebody else's state, two states, no sign-in begun, an error with markup.
    let other = Browser::new(&authority);
    let theirs = other.begin(&base);
    for forged in [
        format!("{base}{CALLBACK}"),
        format!("{base}{CALLBACK}?code=x"),
        callback(&theirs, &theirs.code("", "eve", "\"weir-admins\"")),
        format!("{base}{CALLBACK}?state={}&state=x&code=y", theirs.state),
        format!("{base}{CALLBACK}?state=%00&code=%ff&iss=x"),
        format!("{base}{CALLBACK}?error=%3Cscript%3Ealert(1)%3C/script%3E&state={}", theirs.state),
    ] {
        let browser = Browser::new(&authority);
        let page = browser.look(&forged);
        assert!(page.status == 403 && !in_as(&browser), "{forged}: {} {}", page.status, page.text);
        assert!(!page.text.contains("<script>alert"), "{}", page.text);
    }
    let trail = site.weir(&["audit"]).ok();
    assert!(trail.contains("console.login.failed") && !trail.contains("console:eve"), "{trail}");

    // Another person with the same name does not get the session of the first one, which ends.
    assert!(in_as(&honest));
    let second = Browser::new(&authority);
    let begun = second.begin(&base);
    second.look(&callback(&begun, &begun.code("other subject", "dan", "\"helpdesk\"")));
    assert!(in_as(&second) && !in_as(&honest));
    // A browser that fails again and again has to wait; others and local accounts do not.
    let failing = Browser::new(&authority);
    let statuses: Vec<u16> = (0..6).map(|_| failing.look(&format!("{base}{CALLBACK}?state=x&code=y")).status).collect();
    assert_eq!(statuses, [403, 403, 403, 403, 403, 429]);
    let admin = up.admin_password();
    assert!(Visitor::log_in(&base, &[], ("admin", &admin)).get("/audit").contains("console.login"));
}
