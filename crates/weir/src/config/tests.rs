//! Tests of what a configuration may contain, and of the problems that are reported.

use super::*;
use weir_scan::clamd;
use weir_scan::worker::scanner::Workers;

fn problems(text: &str) -> String {
    Loaded::from_text(text, Some(Path::new("weir.toml"))).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_a_valid_configuration() {
    let loaded = Loaded::defaults();
    assert_eq!(loaded.config.throttle.person.stop_at, 20);
    assert!(loaded.settings.iter().all(Setting::is_default));
}

#[test]
fn all_problems_are_reported_at_once_with_key_and_line() {
    let said = problems("[throttle]\nrate = \"1/fortnight\"\nstop_at = 0\nworkingset = 3\n[lab]\nlease = 3\n");
    for part in [
        "weir.toml:2: throttle.rate: \"1/fortnight\" is not a rate",
        "weir.toml:3: throttle.stop_at: 0 is outside 1 … ",
        "weir.toml:4: throttle.workingset: unknown key",
        "did you mean \"working_set\"?",
        "weir.toml:6: lab.lease: ",
        "4 problems",
    ] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn a_door_that_nobody_could_use_safely_is_refused() {
    let delivery = "[delivery]\nway = \"mx\"\n";
    let milter = |more: &str| problems(&format!("{delivery}[milter]\n{more}"));
    assert!(milter("listen = [\"0.0.0.0:2626\"]").contains("none of them may ask"));
    assert!(milter("listen = [\"127.0.0.1:2626\"]\nscan = true").contains("the scan is off"));
    assert!(milter("listen = [\"127.0.0.1:2626\"]\nthrottle = false").contains("would be told nothing"));
    let folders = problems("[milter]\nlisten = [\"127.0.0.1:2626\"]");
    assert!(folders.contains("never be sent"), "{folders}");
    let policy = problems("[policy_service]\nlisten = [\"[::]:2627\"]");
    assert!(policy.contains("none of them may ask"), "{policy}");
    let off = "[submission]\nenabled = false\n[policy_service]\nlisten = [\"127.0.0.1:2627\"]";
    assert!(problems(off).contains("no mail gate here"), "{}", problems(off));
}

#[test]
fn passwords_are_not_shown() {
    let text = "[web.exchange]\nnats = [\"tls://weir:pa$$@nats.example\", \"nats://t0ken@127.0.0.1:5\"]\n";
    let loaded = Loaded::from_text(text, None).unwrap();
    let shown = as_toml(&loaded, true) + &as_markdown(&loaded);
    assert!(shown.contains("\"tls://weir:***@nats.example:4222\", \"nats://***@127.0.0.1:5\""), "{shown}");
    assert!(!shown.contains("pa$$") && !shown.contains("t0ken"));
}

#[test]
fn broken_toml_says_where() {
    let said = problems("[throttle]\nrate = \n[web\n");
    assert!(said.contains("weir.toml:2: ") && said.contains("weir.toml:3: "), "{said}");
}

#[test]
fn a_section_must_be_a_table_and_must_exist() {
    let said = problems("throttle = 3\n[trottle]\n");
    assert!(said.contains("weir.toml:1: throttle: must be a table"), "{said}");
    assert!(said.contains("did you mean \"throttle\"?"), "{said}");
}

#[test]
fn profiles_are_sections_inside_throttle() {
    let loaded = Loaded::from_text("[throttle]\nstop_at = 30\n[throttle.list]\nstop_at = 7\n", None).unwrap();
    let throttle = &loaded.config.throttle;
    assert_eq!((throttle.person.stop_at, throttle.list.stop_at, throttle.application.stop_at), (30, 7, 300));
    let said = problems("[throttle.lst]\nrate = \"1/s\"\n[throttle.list]\nrat = 1\n");
    assert!(said.contains("throttle.lst: unknown key"), "{said}");
    assert!(said.contains("throttle.list.rat: unknown key"), "{said}");
}

#[test]
fn rules_between_keys_blame_a_line() {
    let said = problems(
        "[submission]\ncertificate = \"/c.pem\"\nlisten = [\"2587\"]\nhostname = \"-a b\"\ntrusted = [\"10.0.0.0/33\"]\n",
    );
    for part in [
        "weir.toml:2: submission.certificate: certificate and key belong together",
        "weir.toml:3: submission.listen: \"2587\" is not an address with a port",
        "weir.toml:4: submission.hostname:",
        "weir.toml:5: submission.trusted: \"10.0.0.0/33\" is not a network",
    ] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn where_another_server_asks_somebody_must_hear_of_a_stop() {
    let milter = "[delivery]\nway = \"mx\"\n[milter]\nlisten = [\"127.0.0.1:2626\"]\n";
    let policy = "[policy_service]\nlisten = [\"127.0.0.1:2627\"]\n";
    let filter = "[submission]\nidentity = \"client-address\"\nreceived_from = [\"127.0.0.1/32\"]\n";
    for asked in [milter, policy, filter] {
        assert!(problems(asked).contains("nobody would be told when a user is stopped"), "{asked}");
        for heard in ["[notices]\nsilent = true\n", "[throttle]\nlearn_only = true\n"] {
            assert!(Loaded::from_text(&format!("{asked}{heard}"), None).is_ok(), "{asked}{heard}");
        }
    }
    let scan = format!("{milter}throttle = false\nscan = true\n[scan]\nenabled = true\n");
    assert!(Loaded::from_text(&scan, None).is_ok(), "a milter that only scans stops nobody");
}

#[test]
fn a_configuration_that_lets_everybody_in_or_tells_nobody_is_refused() {
    let public = "[submission]\nlisten = [\"0.0.0.0:587\"]\n";
    let said = problems(public);
    assert!(said.contains("notices.admin: nobody would be told when a user is stopped"), "{said}");
    for heard in ["admin = \"ann@example.org\"", "webhook = \"http://127.0.0.1/\"", "silent = true"] {
        let told = format!("{public}[notices]\n{heard}\n");
        assert!(Loaded::from_text(&told, None).is_ok(), "{heard}");
        let open = told.replace("[notices]", "identity = \"client-address\"\n[notices]");
        assert!(problems(&open).contains("it does not say whose machines may hand in mail"), "{open}");
        let named = open.replace("[notices]", "clients = [\"10.0.0.0/8\"]\n[notices]");
        assert!(Loaded::from_text(&named, None).is_ok(), "{named}");
        for network in ["0.0.0.0/0", "0.0.0.0/1\", \"128.0.0.0/1", "::/0"] {
            let everybody = named.replace("10.0.0.0/8", network);
            assert!(problems(&everybody).contains("clients: everybody could send mail"), "{everybody}");
            // Clients that may name the user are not asked for a password either.
            for key in ["trusted", "received_from"] {
                let named = told.replace("[notices]", &format!("{key} = [\"{network}\"]\n[notices]"));
                let said = problems(&named);
                assert!(said.contains(&format!("{key}: everybody could send mail")), "{named}\n{said}");
            }
        }
    }
}

#[test]
fn cookies_must_live_long_enough_for_visitors_to_become_known() {
    for (standing_after, cookie_lifetime) in [("14d", "30d"), ("5m", "4m"), ("5m", "14m"), ("30d", "89d")] {
        let text = format!(
            "[web]\nstanding_after = \"{standing_after}\"\n[web.identity]\ncookie_lifetime = \"{cookie_lifetime}\"\n"
        );
        let said = problems(&text);
        assert!(said.contains("web.standing_after: visitors would not become known"), "{text}\n{said}");
        let without = format!("{text}cookie = \"\"\n");
        assert!(Loaded::from_text(&without, None).is_ok(), "nobody is known by a cookie there");
    }
    assert!(problems("[web.identity]\ncookie_lifetime = \"4m\"\n").contains("web.standing_after"));
    for (standing_after, cookie_lifetime) in [("10d", "30d"), ("5m", "15m"), ("0s", "1m"), ("30d", "90d")] {
        let text = format!(
            "[web]\nstanding_after = \"{standing_after}\"\n[web.identity]\ncookie_lifetime = \"{cookie_lifetime}\"\n"
        );
        assert!(Loaded::from_text(&text, None).is_ok(), "{text}");
    }
}

#[test]
fn a_web_gate_that_believes_everybody_is_refused() {
    let check = |text: &str| Loaded::from_text(text, None).map(drop).map_err(|problems| problems.to_string());
    let refused = |text: String, part: &str| {
        let said = problems(&text);
        assert!(said.contains(part), "{part:?} is missing for {text}:\n{said}");
    };
    for world in ["0.0.0.0/0", "::/0", "0.0.0.0/1\", \"128.0.0.0/1", "2000::/3", "::ffff:0:0/96"] {
        for more in ["", "proxy_protocol = true\n", "trusted_header = \"forwarded\"\n"] {
            let open = format!("[web.identity]\n{more}trusted = [\"{world}\"]\n");
            refused(open.clone(), "web.identity.trusted: everybody would be believed");
            assert_eq!(check(&format!("{open}trust_everybody = true\n")), Ok(()), "said on purpose");
        }
        refused(format!("[web]\nknown_networks = [\"{world}\"]\n"), "web.known_networks: the known networks hold");
        let door = format!("[web.forward_auth]\nlisten = [\"0.0.0.0:9000\"]\nclients = [\"{world}\"]\n");
        refused(door, "web.forward_auth.clients: everybody could take slots");
    }
    assert_eq!(check("[web.identity]\ntrusted = [\"10.0.0.0/8\", \"fc00::/7\"]\nproxy_protocol = true\n"), Ok(()));
    refused("[web.identity]\ngroups = [\"all 0.0.0.0/0\"]\n".into(), "makes one subnet of the world");
    refused("[web.identity]\nproxy_protocol = true\n".into(), "nobody's PROXY header would be read");
    refused("[web.identity]\nipv4_prefix = 0\n".into(), "web.identity.ipv4_prefix");
    refused("[web]\ndenied_networks = [\"0.0.0.0/0\"]\n".into(), "everybody would be refused");
    assert_eq!(check("[web]\ndenied_networks = [\"0.0.0.0/0\"]\nknown_networks = [\"192.0.2.0/24\"]\n"), Ok(()));
    for upgrade in ["h2c", "H2C", "HTTP/2.0"] {
        refused(format!("[web.limits]\nupgrades = [\"websocket\", \"{upgrade}\"]\n"), "requests that nobody checks");
    }
    refused("[web]\nsign_in_cookie = \"weir\"\n".into(), "web.sign_in_cookie: this is the gate's own cookie");
    refused("[web]\nkeys_file = \"/etc/weir/keys\"\n".into(), "no header is named");
    refused("[web]\nkey_header = \"authorization\"\n".into(), "there are no keys");
    for (listen, server) in [("127.0.0.1:80", "127.0.0.1:80"), ("0.0.0.0:80", "localhost:80"), ("[::]:80", "[::1]:80")]
    {
        let circle = format!("[web]\nlisten = [\"{listen}\"]\nbackends = [\"app {server}\"]\n");
        refused(circle, "which is our own port");
    }
    assert_eq!(check("[web]\nlisten = [\"0.0.0.0:80\"]\nbackends = [\"app 10.0.0.5:80\"]\n"), Ok(()));
}

#[test]
fn a_password_goes_only_to_whom_somebody_vouches_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let login = |host: &str, more: &str| {
        let path = file.path().display();
        format!(
            "[delivery]\nway = \"smarthost\"\nhosts = [\"{host}\"]\nlogin = \"u\"\npassword_file = \"{path}\"\n{more}\n"
        )
    };
    for more in ["", "tls = \"required\"", "implicit_tls = true"] {
        let said = problems(&login("smtp.example:587", more));
        assert!(said.contains("whoever answers in the smarthost's place"), "{more}: {said}");
    }
    for (host, more) in [
        ("smtp.example:587", "tls = \"verified\""),
        ("smtp.example:25", "login_unverified = true"),
        ("127.0.0.1:25", ""),
    ] {
        assert!(Loaded::from_text(&login(host, more), None).is_ok(), "{host} {more}");
    }
    let missing = login("127.0.0.1:25", "").replace(&file.path().display().to_string(), "/no/such/file");
    assert!(problems(&missing).contains("delivery.password_file: /no/such/file cannot be read"));
}

#[test]
fn inbound_mail_is_checked_for_holes_and_circles() {
    let said = problems(
        "[inbound]\nlisten = [\"127.0.0.1:2525\"]\ndomains = [\"example.org smtp:127.0.0.1:2525\", \"Example.org\"]\n\
         recipients = \"file\"\ntrusted = [\"0.0.0.0/0\"]\nhand_back = [\"127.0.0.1:2525\"]\n",
    );
    for part in [
        "weir.toml:3: inbound.domains: \"example.org smtp:127.0.0.1:2525\" leads to our own port",
        "weir.toml:3: inbound.domains: Example.org is named twice",
        "weir.toml:4: inbound.recipients: recipients = \"file\" and recipient_file belong together",
        "weir.toml:5: inbound.trusted: a network of all addresses may relay to anywhere: an open relay",
        "weir.toml:6: inbound.hand_back: 127.0.0.1:2525 is our own port",
    ] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    let said = problems("[inbound]\ndomains = [\"example.org\", \"[192.0.2.1]\"]\n");
    assert!(said.contains("\"[192.0.2.1]\" is not a domain"), "{said}");
    let said = problems("[inbound]\ndomains = [\"example.org\"]\nhand_back = [\"127.0.0.1:10026\"]\n");
    assert!(said.contains("nothing listens for these domains") && said.contains("nobody whose mail"), "{said}");
    let said = problems("[inbound]\nlisten = [\"127.0.0.1:25\"]\n");
    assert!(said.contains("no mail would be taken"), "{said}");
    let orders = Loaded::from_text("[inbound]\nlisten = [\"127.0.0.1:25\"]\ndomains = []\n", None).unwrap();
    assert!(orders.config.inbound.is_on(), "for answers to notices alone");
}

#[test]
fn scanners_are_sections_inside_scan() {
    let loaded = Loaded::defaults();
    assert!(
        loaded.config.scanners.find::<Workers>().is_some()
            && loaded.config.scanners.find::<clamd::Settings>().is_none()
    );
    let text = "[scan.clamav]\naddresses = [\"unix:/run/clamav/clamd.ctl\"]\n[scan.attachments]\nforbid = [\".ZIP\"]\npermit = [\"iso\"]\n";
    let scanners = Loaded::from_text(text, None).unwrap().config.scanners;
    let policy = &scanners.find::<Workers>().unwrap().setup.policy;
    assert!(policy.forbidden.contains("zip") && !policy.forbidden.contains("iso"));
    assert_eq!(
        policy.closed,
        weir_scan::attachments::policy::Choice::NotScanned,
        "RAR stays closed, whoever else looks"
    );
    let said = problems("[scan.clamav]\naddresses = [\"here\"]\n[scan.workers]\nmemory = \"300MiB\"\n[scan.clam]\n");
    for part in ["\"here\" is not an address", "scan.workers.memory: less than", "scan.clam: unknown key"] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn what_waits_for_the_lab_is_named_by_sort_or_rule() {
    let usual = Loaded::defaults().config.scan_lab;
    assert!(usual.enabled && usual.policy.sorts.len() == 4 && usual.wait.as_secs() == 300);
    let text = "[scan.lab]\nsend = [\"scripts\", \"rule:mine/odd\"]\nwait = \"30s\"\non_late = \"pass\"\n";
    let lab = Loaded::from_text(text, None).unwrap().config.scan_lab;
    assert_eq!((lab.policy.sorts.len(), lab.policy.rules.contains("mine/odd")), (1, true));
    assert_eq!(lab.on_late, weir_mail::scan::OnLab::Pass);
    let said = problems("[scan.lab]\nsend = [\"scritps\"]\nmessages = 0\n");
    assert!(
        said.contains("\"scritps\" is no sort of files") && said.contains("scan.lab.messages: 0 is outside"),
        "{said}"
    );
}

#[test]
fn a_feed_can_have_scanners_of_its_own() {
    let text =
        "[scan.clamav]\naddresses = [\"here:3310\"]\n[scan.feeds]\nclamav = [[], [\"there:3310\", \"yonder:3310\"]]\n";
    let scanners = Loaded::from_text(text, None).unwrap().config.scanners;
    assert_eq!(scanners.own_feeds(), [1]);
    let feeds = &scanners.find::<clamd::Settings>().unwrap().feeds;
    assert_eq!(feeds.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2]);
    let said = problems("[scan]\nlimits = [\"4KiB\"]\n[scan.feeds]\nclamav = [[], [], [\"there:3310\"]]\n");
    for part in ["weir.toml:4: scan.feeds.clamav: 3 lists for 2 feeds", "scan.clamav.addresses is empty"] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn the_labs_classes_lie_between_run_queues() {
    use weir_core::runq::{Directory, PriorityClass, PriorityRules};
    assert_eq!(Loaded::defaults().config.lab.priority, PriorityRules::default());
    let lab = Loaded::from_text("[lab]\nidle_from = 64\nreturn_to_current = 7\n", None).unwrap().config.lab;
    let directory = |number| Directory::new(number).unwrap();
    assert_eq!([63, 64].map(|number| lab.priority.class(directory(number)) == PriorityClass::Idle), [false, true]);
    assert_eq!([7, 8].map(|number| lab.priority.returns_to_current(directory(number))), [true, false]);
    assert!(problems("[lab]\nidle_from = 66\n").contains("weir.toml:2: lab.idle_from: 66 is in the middle"));
    assert!(problems("[lab]\nreturn_to_current = 96\n").contains("weir.toml:2: lab.return_to_current: the idle"));
}

#[test]
fn the_console_stays_on_loopback() {
    let said = problems("[console]\nlisten = [\"0.0.0.0:8025\"]\n");
    assert!(said.contains("weir.toml:2: console.listen: the console speaks HTTP without TLS"), "{said}");
    assert!(Loaded::from_text("[console]\nenabled = false\nlisten = []\n", None).is_ok());
    assert!(problems("[console]\nlisten = []\n").contains("nothing would listen"));
}

#[test]
fn random_text_never_panics() {
    use proptest::prelude::*;
    proptest!(|(text in "(\\[?(throttle|throttle.list|submission|limits|inbound|delivery|notices|store|web|web.limits|web.identity|web.exchange|web.history|scan|quarantine|lab|console)\\]?|rate|limits|=|\"|[0-9]{1,30}|\\[|\\]|-|\\.|\n| |é|[[:print:]]){0,40}")| {
        if let Err(problems) = Loaded::from_text(&text, None) {
            prop_assert!(!problems.to_string().is_empty());
        }
    });
}

#[test]
fn what_show_prints_is_a_valid_configuration_that_changes_nothing() {
    let changed = Loaded::from_text("[throttle]\nstop_at = 30\n[scan]\nlimits = [\"4KiB\", \"1MiB\"]\n", None).unwrap();
    for all in [false, true] {
        let text = as_toml(&changed, all);
        let again = Loaded::from_text(&text, None).unwrap_or_else(|p| panic!("{p}\n{text}"));
        let values = |loaded: &Loaded| loaded.settings.iter().map(|s| s.value.clone()).collect::<Vec<_>>();
        assert_eq!(values(&changed), values(&again), "{text}");
    }
}
