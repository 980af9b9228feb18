//! Judges a sample by its behaviour: a table of rules, each with its points (docs/lab.md has the same table with the reasons).
//!
//! Points are added up: from [`SUSPICIOUS`] on a sample is suspicious, from [`MALICIOUS`] on malicious. What honest installers do adds up
//! to less than the second threshold. Only two rules reach it alone: ransomware and mining. Each rule counts once, however often it
//! applies. Cost: linear in what is listed, which is bounded.

use crate::job::Level;
use crate::report::is_foreign;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use weir_guest::behaviour::{Act, Behaviour, FileChange, Network, Process};
use weir_guest::secret::{self, Secret};

/// From this number of points on a sample is suspicious.
pub(super) const SUSPICIOUS: u32 = 4;
/// From this number of points on it is malicious.
pub(super) const MALICIOUS: u32 = 10;

/// A rule that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: &'static str,
    pub(super) points: u32,
    /// What it matches.
    pub(super) evidence: String,
}

/// Returns points and evidence, if the rule matches.
type Look = fn(&Happenings<'_>) -> Option<(u32, String)>;

/// All rules. A new one is a row here, a row of the table in docs/lab.md, and a case in the tests.
const RULES: &[(&str, Look)] = &[
    ("encrypts", encrypts),
    ("stays", stays),
    ("takes-orders", takes_orders),
    ("mines", mines),
    ("loads-module", |seen| seen.act("loads", |_| true).map(|_| (8, "a module for the kernel".into()))),
    ("scans", scans),
    ("floods", floods),
    ("tunnels", tunnels),
    ("says-in-names", covert::says_in_names),
    ("abuses-services", covert::abuses_services),
    ("pretends", pretends),
    ("stops-guards", stops_guards),
    ("makes-setuid", |seen| seen.act("setuid", |_| true).map(|path| (6, path))),
    ("writes-devices", |seen| seen.act("device", |_| true).map(|path| (6, path))),
    ("reads-memory", |seen| seen.reads(Secret::Memory).map(|path| (6, path))),
    ("sniffs", covert::sniffs),
    ("runs-fetched", runs_fetched),
    ("runs-from-memory", runs_from_memory),
    ("reads-passwords", |seen| seen.reads(Secret::Passwords).map(|path| (5, path))),
    ("reads-keys", |seen| seen.reads(Secret::Keys).map(|path| (5, path))),
    ("changes-many", changes_many),
    ("traces-others", |seen| seen.act("traces", |whom| whom != "itself").map(|whom| (5, format!("process {whom}")))),
    ("reboots", |seen| seen.act("reboots", |_| true).map(|_| (5, "the machine".into()))),
    ("spams", spams),
    ("redirects", redirects),
    ("kills-others", kills_others),
    ("wipes-traces", wipes_traces),
    ("asks-cloud", covert::asks_cloud),
    ("chats", chats),
    ("forks-without-end", forks_without_end),
    ("runs-written", runs_written),
    ("plants-page", covert::plants_page),
    ("deletes-itself", deletes_itself),
    ("preloads", |seen| seen.act("preloads", |_| true).map(|what| (3, what))),
    ("hinders-tracing", |seen| seen.act("traces", |whom| whom == "itself").map(|_| (3, "it traces itself".into()))),
    ("raw-address", raw_address),
    ("backdates", covert::backdates),
    ("waits", waits),
    ("listens", listens),
    ("lies-low", lies_low),
];

/// The names of all rules.
#[cfg(test)]
pub(super) fn rule_names() -> impl Iterator<Item = &'static str> {
    RULES.iter().chain(windows::RULES).map(|(name, _)| *name)
}

/// The rules that match, the most serious first.
pub(super) fn hits(behaviour: &Behaviour) -> Vec<Hit> {
    let seen = Happenings::new(behaviour);
    let hit = |&(rule, look): &(&'static str, Look)| {
        look(&seen).map(|(points, evidence)| Hit {
            rule,
            points,
            evidence: evidence.chars().take(EVIDENCE_MAX).collect(),
        })
    };
    let rules = if behaviour.system == "windows" { windows::RULES } else { RULES };
    let mut hits: Vec<Hit> = rules.iter().filter_map(hit).collect();
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.points));
    hits
}

/// The level for a number of points.
pub(super) fn level(points: u32) -> Level {
    match points {
        MALICIOUS.. => Level::Malicious,
        SUSPICIOUS.. => Level::Suspicious,
        _ => Level::Info,
    }
}

const EVIDENCE_MAX: usize = 120;
/// The most octets of names of files that are kept. A report lists a bounded number of files, but each rename gives one file another name, of up to
/// 4 KiB.
const NAMES_MAX: usize = 16 << 20;
/// An honest program does not sleep for this long.
const LONG_SLEEP_S: u64 = 120;
/// This many files of others are many.
const MANY_FILES: usize = 8;
/// This many addresses on one port are a scan.
const MANY_ADDRESSES: usize = 20;
/// This many datagrams to different places are a flood.
const MANY_DATAGRAMS: usize = 50;
/// The length of a part of a name that nobody types, and how many of them count.
const LONG_LABEL: usize = 30;
const MANY_NAMES: usize = 6;
/// This many recipients of mail are spam.
const MANY_RECIPIENTS: usize = 5;
/// An honest program does not have this many processes.
const MANY_PROCESSES: usize = 150;

/// Programs that execute what they are given.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "python", "python3", "perl"];
/// Programs that protect a machine.
const GUARDS: [&str; 16] = [
    "clamd",
    "clamav",
    "freshclam",
    "auditd",
    "syslog",
    "rsyslogd",
    "fail2ban",
    "apparmor",
    "selinux",
    "tcpdump",
    "strace",
    "gdb",
    "wireshark",
    "falco",
    "osquery",
    "aliyun",
];
/// Parts of the names of mining pools.
const POOLS: [&str; 10] = [
    "minexmr",
    "supportxmr",
    "nanopool",
    "hashvault",
    "moneroocean",
    "2miners",
    "nicehash",
    "xmrpool",
    "f2pool",
    "c3pool",
];
/// Ports that mining pools use, and hardly anything else does.
const POOL_PORTS: [u16; 5] = [3333, 14433, 14444, 45560, 45700];

/// What happened, prepared for several rules.
struct Happenings<'a> {
    behaviour: &'a Behaviour,
    /// Files that the sample wrote or renamed, by every name that they had, and which process did.
    written: BTreeMap<String, u32>,
    /// Processes that called another machine.
    callers: BTreeSet<u32>,
}

impl<'a> Happenings<'a> {
    fn new(behaviour: &'a Behaviour) -> Happenings<'a> {
        let (mut written, mut callers) = (BTreeMap::<String, u32>::new(), BTreeSet::new());
        let mut octets = 0;
        for (at, file) in behaviour.files.iter().enumerate() {
            // If it is renamed, it is of the process that wrote it under its old name.
            let who = written.get(&file.path).copied().filter(|_| file.what == "renamed").unwrap_or(file.pid);
            for name in behaviour.names(at).into_iter().flatten() {
                if octets + name.len() <= NAMES_MAX && !written.contains_key(&name) {
                    octets += name.len();
                    written.insert(name, who);
                }
            }
        }
        callers.extend(
            behaviour.network.iter().filter(|call| call.what != "listen" && call.pid != 0).map(|call| call.pid),
        );
        Happenings { behaviour, written, callers }
    }

    fn acts(&self, what: &'a str) -> impl Iterator<Item = &'a Act> + use<'a> {
        self.behaviour.acts.iter().filter(move |act| act.what == what)
    }

    /// The detail of the first act of this kind that matches.
    fn act(&self, what: &'a str, fits: fn(&str) -> bool) -> Option<String> {
        self.acts(what).find(|act| fits(&act.detail)).map(|act| act.detail.clone())
    }

    fn reads(&self, kept: Secret) -> Option<String> {
        let is_kept = |act: &&Act| secret::of(&act.detail).or_else(|| secret::moved(&act.detail)) == Some(kept);
        self.acts("reads").find(is_kept).map(|act| act.detail.clone())
    }

    /// What the sample ran or tried to run, other than itself.
    fn programs(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let run = self.behaviour.processes.iter().flat_map(|process| [Some(process.path.as_str()), script(process)]);
        let own = self.own();
        let more = self.acts("fails-to-run").chain(self.acts("becomes")).map(|act| act.detail.as_str());
        run.flatten().chain(more).filter(move |path| !own.contains(path))
    }

    /// Documents of the user that the sample did not create and that are gone or changed.
    fn documents(&self) -> BTreeSet<&'a str> {
        // A program that renames documents and leaves their content alone is tidying up.
        let ending = |path: &str| path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        let is_tidied = |file: &FileChange| {
            file.what == "renamed" && !file.random && file.to.as_deref().and_then(ending) == ending(&file.path)
        };
        let is_document = |file: &&FileChange| {
            file.existed
                && !is_tidied(file)
                && ["/home/", "/root/", "/srv/", "/mnt/", "/media/", "/opt/", "C:\\users\\"]
                    .iter()
                    .any(|top| file.path.starts_with(top))
                && !["/.", "\\AppData\\"].iter().any(|part| file.path.contains(part))
        };
        self.behaviour.files.iter().filter(is_document).map(|file| file.path.as_str()).collect()
    }

    /// Calls to addresses, without those to the guest's own.
    fn calls(&self) -> impl Iterator<Item = (&'a Network, SocketAddr)> + use<'a> {
        let calls = self.behaviour.network.iter().filter(|call| matches!(call.what.as_str(), "connect" | "send"));
        calls.filter_map(|call| Some((call, call.to.parse().ok()?)))
    }

    fn first(&self) -> Option<&'a Process> {
        self.behaviour.processes.first()
    }

    /// The sample's own file. Its first process may execute another program by now, so that process is used only for agents
    /// that do not say which file the sample was.
    fn own(&self) -> [&'a str; 2] {
        let first = |first: &'a Process| [first.path.as_str(), script(first).unwrap_or_default()];
        match self.behaviour.sample.as_str() {
            "" => self.first().map(first).unwrap_or_default(),
            sample => [sample, ""],
        }
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The names of a process: a script is recognised by its path and not by its interpreter, a program with many names by its first word.
fn names(process: &Process) -> [&str; 2] {
    [name_of(&process.path), process.arguments.first().map_or("", |name| name_of(name))]
}

fn is_shell(path: &str) -> bool {
    let name = name_of(path).trim_start_matches('-');
    SHELLS.contains(&name)
}

/// The file that an interpreter executes. For a program with many names the one by which it was called counts.
fn script(process: &Process) -> Option<&str> {
    let interprets = is_shell(process.arguments.first().unwrap_or(&process.path));
    process.arguments.iter().skip(1).find(|word| !word.starts_with('-')).map(String::as_str).filter(|_| interprets)
}

/// Files of others whose content looks random afterwards. An archive does too, but its name says that it is one.
fn encrypts(seen: &Happenings<'_>) -> Option<(u32, String)> {
    const ARCHIVES: [&str; 9] = [".gz", ".xz", ".bz2", ".zst", ".zip", ".7z", ".tgz", ".lz4", ".rar"];
    let documents = seen.documents();
    let is_random = |file: &&FileChange| {
        let last = file.to.as_ref().unwrap_or(&file.path);
        file.random && !ARCHIVES.iter().any(|end| last.ends_with(end))
    };
    let random: BTreeSet<&str> = seen.behaviour.files.iter().filter(is_random).map(|file| file.path.as_str()).collect();
    let many = documents.len() >= MANY_FILES && random.len() >= MANY_FILES;
    many.then(|| {
        (10, format!("{} files of the user, such as {}", documents.len(), documents.iter().next().unwrap_or(&"")))
    })
}

/// The same without checking their content.
fn changes_many(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let documents = seen.documents();
    let many = documents.len() >= MANY_FILES && encrypts(seen).is_none();
    many.then(|| {
        (5, format!("{} files of the user, such as {}", documents.len(), documents.iter().next().unwrap_or(&"")))
    })
}

/// The points of the strongest way, and two for each further one, up to eight.
fn stays(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let mut ways: BTreeMap<&str, u32> = BTreeMap::new();
    for way in &seen.behaviour.persistence {
        let points = match (way.what.as_str(), name_of(&way.path)) {
            ("preload", _) => 8,
            ("ssh", "authorized_keys" | "authorized_keys2") => 7,
            ("ssh", "known_hosts" | "known_hosts.old") => continue,
            ("module" | "account", _) => 6,
            ("cron" | "rc", _) => 5,
            // Short words for long commands: what people put there themselves.
            ("shell", ".bash_aliases" | ".bash_completion") => 2,
            _ => 4,
        };
        let known = ways.entry(way.what.as_str()).or_default();
        *known = points.max(*known);
    }
    let strongest = ways.values().copied().max()?;
    let further = 2 * (ways.len() as u32 - 1);
    Some(((strongest + further).min(8), ways.into_keys().collect::<Vec<_>>().join(", ")))
}

/// A shell whose input is a connection is controlled by somebody else.
fn takes_orders(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let all = || seen.acts("takes-orders").map(|act| act.detail.as_str());
    let shell = all().find(|path| is_shell(path) || name_of(path) == "busybox").map(|path| (8, path.to_owned()));
    shell.or_else(|| all().next().map(|path| (3, path.to_owned())))
}

fn mines(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let network = &seen.behaviour.network;
    let says = |call: &&Network| {
        let words = ["mining.subscribe", "mining.authorize", "\"method\":\"login\""];
        let said: String = call.detail.chars().filter(|c| !c.is_whitespace()).collect();
        call.what == "talk" && words.iter().any(|word| said.contains(word))
    };
    let asks = |call: &&Network| {
        let name = if call.what == "dns" { call.to.to_ascii_lowercase() } else { String::new() };
        POOLS.iter().any(|pool| name.contains(pool)) || name.starts_with("xmr.") || name.starts_with("stratum.")
    };
    let says = || network.iter().find(says).map(|call| (10, call.to.clone()));
    let sure = says().or_else(|| network.iter().find(asks).map(|call| (8, call.to.clone())));
    let port = || seen.calls().find(|(_, to)| POOL_PORTS.contains(&to.port())).map(|(_, to)| (3, to.to_string()));
    sure.or_else(port)
}

fn scans(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let mut ports: BTreeMap<u16, BTreeSet<IpAddr>> = BTreeMap::new();
    for (_, to) in seen.calls().filter(|(call, _)| call.host.is_empty()) {
        ports.entry(to.port()).or_default().insert(to.ip());
    }
    let many = ports.into_iter().find(|(_, addresses)| addresses.len() >= MANY_ADDRESSES);
    many.map(|(port, addresses)| (6, format!("{} addresses on port {port}", addresses.len())))
}

/// Datagrams to many, whatever their ports: nobody waits for this many answers.
fn floods(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let sends = seen.calls().filter(|(call, to)| call.what == "send" && is_in_the_world(to.ip()));
    let addresses: BTreeSet<SocketAddr> = sends.map(|(_, to)| to).collect();
    let count = addresses.len();
    (count >= MANY_DATAGRAMS && scans(seen).is_none()).then(|| (6, format!("datagrams to {count} addresses and more")))
}

/// Names that carry data: many long parts without a meaning, below one name.
fn tunnels(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let mut carried: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for call in seen.behaviour.network.iter().filter(|call| call.what == "dns") {
        let labels: Vec<&str> = call.to.trim_end_matches('.').split('.').collect();
        let Some((rest, domain)) = labels.len().checked_sub(2).map(|at| labels.split_at(at)) else { continue };
        if rest.iter().any(|label| label.len() >= LONG_LABEL) {
            carried.entry(domain.join(".")).or_default().insert(&call.to);
        }
    }
    let many = carried.into_iter().find(|(_, names)| names.len() >= MANY_NAMES);
    many.map(|(domain, names)| (6, format!("{} long names below {domain}", names.len())))
}

/// Mail to many, or through several servers without a name.
fn spams(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let says = |word: &'static str| {
        let fits = move |call: &&Network| {
            call.what == "talk" && call.detail.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
        };
        seen.behaviour.network.iter().filter(fits)
    };
    let recipients: BTreeSet<&str> = says("RCPT TO:").map(|call| call.detail.as_str()).collect();
    let servers: BTreeSet<&str> =
        says("MAIL FROM:").filter(|call| call.host.is_empty()).map(|call| call.to.as_str()).collect();
    let many = recipients.len() >= MANY_RECIPIENTS || servers.len() >= 2;
    many.then(|| (5, format!("mail to {} recipients by {} servers", recipients.len(), servers.len().max(1))))
}

/// An honest program does not change where names lead.
fn redirects(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_one = |path: &str| ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"].contains(&path);
    let tried = seen.act("fails-to-write", is_one);
    tried.or_else(|| seen.written.keys().find(|path| is_one(path.as_str())).cloned()).map(|path| (5, path))
}

/// A process in brackets is one of the kernel, or pretends to be one: by its arguments, or by the name of its file.
fn pretends(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let named = seen.act("named", |_| true);
    let is_bracketed = |name: &&str| name.starts_with('[') && name.ends_with(']') && name.len() > 2;
    let bracket = |process: &Process| {
        let called = process.arguments.first().map(String::as_str);
        called.into_iter().chain(names(process)).find(is_bracketed).map(str::to_owned)
    };
    named.or_else(|| seen.behaviour.processes.iter().find_map(bracket)).map(|name| (6, name))
}

fn stops_guards(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let stops = |process: &&Process| {
        let words: Vec<&str> = process.arguments.iter().map(String::as_str).collect();
        let has = |wanted: &[&str]| words.iter().skip(1).any(|word| wanted.contains(word));
        let guard = || words.iter().skip(1).any(|word| GUARDS.iter().any(|guard| word.contains(guard)));
        let stops = |name: &str| match name {
            "pkill" | "killall" => guard(),
            "systemctl" | "service" | "chkconfig" => has(&["stop", "disable", "mask", "kill", "off"]) && guard(),
            "setenforce" => has(&["0", "Permissive"]),
            "iptables" | "ip6tables" => has(&["-F", "--flush"]),
            "ufw" => has(&["disable"]),
            "auditctl" => has(&["-D", "-e0"]) || words.windows(2).any(|pair| pair == ["-e", "0"]),
            _ => false,
        };
        names(process).into_iter().any(stops)
    };
    seen.behaviour.processes.iter().find(stops).map(|process| (6, process.arguments.join(" ")))
}

fn kills_others(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let kills = seen.act("kills", |_| true).map(|act| format!("signal {}", act.replacen(' ', " to process ", 1)));
    let by_name = |process: &&Process| names(process).into_iter().any(|name| matches!(name, "pkill" | "killall"));
    // One that stops guards is counted by that rule.
    let by_name = || seen.behaviour.processes.iter().find(by_name).filter(|_| stops_guards(seen).is_none());
    let named = || by_name().map(|process| process.arguments.join(" "));
    kills.or_else(named).map(|evidence| (4, evidence))
}

fn runs_fetched(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_fetched = |path: &&str| seen.written.get(*path).is_some_and(|who| seen.callers.contains(who));
    let file = seen.programs().find(is_fetched).map(|path| (5, path.to_owned()));
    // A second stage that the agent served has reported that it ran, however it was started.
    file.or_else(|| seen.act("second-stage", |_| true).map(|url| (5, url)))
}

fn runs_written(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let path =
        seen.programs().find(|path| seen.written.contains_key(*path)).filter(|_| runs_fetched(seen).is_none())?;
    Some((3, path.to_owned()))
}

fn runs_from_memory(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let from = |path: &&str| path.starts_with("/memfd:") || path.starts_with("/dev/shm/");
    seen.programs().find(from).map(|path| (5, path.to_owned()))
}

fn wipes_traces(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_trace = |path: &str| {
        let names = [".bash_history", ".ash_history", ".zsh_history", "wtmp", "utmp", "btmp", "lastlog"];
        path.starts_with("/var/log/") || names.contains(&name_of(path))
    };
    let wipes =
        |file: &&FileChange| is_trace(&file.path) && file.existed && (file.what != "written" || file.bytes == Some(0));
    // Something replaces it.
    let replaced = |file: &&FileChange| file.to.as_deref().is_some_and(|to| name_of(to).ends_with("_history"));
    let files = || seen.behaviour.files.iter();
    let file = files().find(wipes).or_else(|| files().find(replaced)).map(|file| file.path.clone());
    file.or_else(|| seen.act("fails-to-write", |path| path.starts_with("/var/log/"))).map(|path| (4, path))
}

/// The words of IRC, by which many bots are led.
fn chats(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_irc = |call: &&Network| {
        // FTP and mail have a user too, but as one word.
        let is_user = call.detail.starts_with("USER ") && call.detail.split(' ').count() >= 5;
        let is_other = ["NICK ", "JOIN #", "PRIVMSG "].iter().any(|word| call.detail.starts_with(word));
        call.what == "talk" && (is_user || is_other)
    };
    seen.behaviour.network.iter().find(is_irc).map(|call| (4, call.to.clone()))
}

fn forks_without_end(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let count = seen.behaviour.processes.len();
    (count >= MANY_PROCESSES).then(|| (4, format!("{count} processes and more")))
}

fn deletes_itself(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let own = seen.own();
    let gone = |file: &&FileChange| file.what == "deleted" && own.contains(&file.path.as_str());
    seen.behaviour.files.iter().find(gone).map(|file| (3, file.path.clone()))
}

/// An address on the internet that no name led to.
fn raw_address(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let raw = |(call, to): &(&Network, SocketAddr)| {
        call.host.is_empty() && is_in_the_world(to.ip()) && is_foreign(to.ip()) && !matches!(to.port(), 53 | 123)
    };
    seen.calls().find(raw).map(|(_, to)| (2, to.to_string()))
}

fn is_in_the_world(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_private() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_multicast()),
    }
}

/// Sleeps that together are longer than a watch: the agent shortens them and reports how long they were.
fn waits(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let seconds = |act: &Act| act.detail.strip_suffix(" s").and_then(|number| number.parse::<u64>().ok());
    let all = seen.acts("sleeps").filter_map(seconds).fold(0, u64::saturating_add);
    // If it has not ended by then, it may do anything afterwards.
    let points = if seen.behaviour.ended.starts_with("watched ") { 4 } else { 2 };
    (all >= LONG_SLEEP_S).then(|| (points, format!("{all} s")))
}

fn listens(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let open =
        |call: &&Network| call.what == "listen" && call.to.parse::<SocketAddr>().is_ok_and(|at| !at.ip().is_loopback());
    // A port that stays open after the process that started it has ended.
    let stays_open = |call: &&Network| open(call) && leaves_parent(seen, call.pid);
    let network = || seen.behaviour.network.iter();
    let door = network().find(stays_open).map(|call| (4, format!("{}, behind the back of its parent", call.to)));
    door.or_else(|| network().find(open).map(|call| (1, call.to.clone())))
}

/// Whether a process made a session of its own and its parent has ended.
fn leaves_parent(seen: &Happenings<'_>, pid: u32) -> bool {
    let process = |pid: u32| seen.behaviour.processes.iter().find(|process| process.pid == pid);
    let parent = process(pid).and_then(|own| process(own.parent));
    parent.is_some_and(|parent| !parent.ended.is_empty()) && seen.acts("session").any(|act| act.pid == pid)
}

/// It continues after its parent has ended, or checks whether it is watched.
fn lies_low(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let left = |act: &&Act| leaves_parent(seen, act.pid);
    let daemon = seen.acts("session").find(left).map(|act| format!("process {} left its parent", act.pid));
    let looks = || seen.reads(Secret::Tracer).or_else(|| seen.reads(Secret::Machine));
    daemon.or_else(looks).map(|evidence| (1, evidence))
}

mod covert;
mod windows;

#[cfg(test)]
mod tests;
