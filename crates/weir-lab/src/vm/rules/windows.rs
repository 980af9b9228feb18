//! The rules for samples that are run by Wine. Those about the network and about files of the user are the same as for Linux; the others
//! are about what only Windows has (docs/lab-windows.md has the table with the reasons).

use super::{
    Happenings, Look, changes_many, chats, encrypts, forks_without_end, listens, mines, raw_address, scans, waits,
};
use std::collections::{BTreeMap, BTreeSet};
use weir_guest::behaviour::{FileChange, Process};
use weir_guest::secret::Secret;
use weir_guest::windows_paths;

/// All rules. A new one is a row here, a row of the table in docs/lab-windows.md, a technique, and a case in the tests.
pub(super) const RULES: &[(&str, Look)] = &[
    ("encrypts", encrypts),
    ("mines", mines),
    ("removes-backups", removes_backups),
    ("injects", injects),
    ("stays-in-windows", stays),
    ("takes-windows-orders", takes_orders),
    ("writes-devices", |seen| seen.act("device", |_| true).map(|path| (6, path))),
    ("logs-keys", |seen| seen.act("hooks-keys", |_| true).map(|how| (6, how))),
    ("steals", steals),
    ("stops-windows-guards", stops_guards),
    ("scans", scans),
    ("runs-fetched", runs_fetched),
    ("lolbin", lolbin),
    ("changes-many", changes_many),
    ("drops-and-runs", drops_and_runs),
    ("pretends-to-be-windows", pretends),
    ("deletes-itself", deletes_itself),
    ("chats", chats),
    ("reboots", |seen| seen.act("reboots", |_| true).map(|_| (5, "the machine".into()))),
    ("kills-windows", |seen| seen.act("kills-windows", |_| true).map(|what| (6, what))),
    ("changes-wallpaper", |seen| seen.act("wallpaper", |_| true).map(|path| (4, path))),
    ("forks-without-end", forks_without_end),
    ("looks-for-analysts", looks_for_analysts),
    ("raw-address", raw_address),
    ("waits", waits),
    ("listens", listens),
];

/// The command line of a process in lower case.
fn command(process: &Process) -> String {
    process.arguments.join(" ").to_ascii_lowercase()
}

/// The name of its program in lower case, without `.exe`.
fn program(process: &Process) -> String {
    let name = process.path.rsplit('\\').next().unwrap_or_default().to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}

/// The first process for which this is true, with its command line as it was.
fn process(seen: &Happenings<'_>, fits: impl Fn(&str, &str) -> bool) -> Option<String> {
    let found = seen.behaviour.processes.iter().find(|process| fits(&program(process), &command(process)));
    found.map(|process| process.arguments.join(" "))
}

/// Copies that Windows keeps of files, and recovery after a failed start: only ransomware removes or disables them.
fn removes_backups(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let removes = |name: &str, command: &str| {
        let has = |word: &str| command.contains(word);
        match name {
            "vssadmin" => has("delete") || has("resize"),
            "wbadmin" => has("delete"),
            "bcdedit" => has("recoveryenabled") || has("ignoreallfailures"),
            "diskshadow" => has("delete") || has("/s"),
            "wmic" | "powershell" => has("shadowcopy") && has("delete"),
            _ => false,
        }
    };
    // This also counts if a shell was told to, and the program itself did not start.
    let asked = |command: &str| {
        command.contains("vssadmin delete")
            || command.contains("shadowcopy delete")
            || command.contains("wbadmin delete")
    };
    process(seen, |name, command| removes(name, command) || asked(command)).map(|command| (8, command))
}

/// It writes into another process and makes it run what was written.
fn injects(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let (writes, runs) = (seen.act("writes-memory", |_| true), seen.act("remote-thread", |_| true));
    match (writes, runs) {
        (Some(writes), Some(runs)) => Some((10, format!("{writes} and {runs}"))),
        (Some(one), None) | (None, Some(one)) => Some((5, one)),
        (None, None) => None,
    }
}

/// The points of the strongest way, and two for each further one, up to eight. A program that starts itself is more serious than one whose file was there before.
fn stays(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let mut ways: BTreeMap<&str, u32> = BTreeMap::new();
    for way in &seen.behaviour.persistence {
        let points = match way.what.as_str() {
            "debugger" | "appinit" | "winlogon" => 8,
            "run-key" | "startup" | "task" => 5,
            _ => 4,
        };
        ways.insert(way.what.as_str(), points);
    }
    // A task that it tried to create counts as well.
    if process(seen, |name, command| name == "schtasks" && command.contains("/create")).is_some() {
        ways.entry("task").or_insert(5);
    }
    if process(seen, |name, command| name == "sc" && command.contains(" create ")).is_some() {
        ways.entry("service").or_insert(4);
    }
    let strongest = ways.values().copied().max()?;
    let further = 2 * (ways.len() as u32 - 1);
    Some(((strongest + further).min(8), ways.into_keys().collect::<Vec<_>>().join(", ")))
}

/// The first lines that Wine's shell prints were sent to somebody outside, so that shell is controlled from there.
fn takes_orders(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let says = |said: &str| {
        said.contains("Microsoft Windows") || said.contains("C:\\users\\") || said.contains("C:\\windows\\")
    };
    let talks = seen.behaviour.network.iter().find(|call| call.what == "talk" && says(&call.detail));
    talks.map(|call| call.to.clone()).or_else(|| seen.act("takes-orders", |_| true)).map(|to| (8, to))
}

/// Passwords of browsers, wallets, keys. A browser's own tools read one of them, but not several.
fn steals(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_secret = |path: &&str| matches!(windows_paths::secret(path), Some(Secret::Keys | Secret::Passwords));
    let all: BTreeSet<&str> = seen.acts("reads").map(|act| act.detail.as_str()).filter(is_secret).collect();
    let programs = |path: &str| path.rsplit('\\').nth(2).unwrap_or_default().to_owned();
    let owners: BTreeSet<String> = all.iter().map(|path| programs(path)).collect();
    let unprotects = seen.act("unprotects", |_| true).is_some();
    let first = all.first()?;
    let points = 5 + 3 * u32::from(owners.len() > 1) + 3 * u32::from(unprotects);
    Some((points, format!("{} files, such as {first}", all.len())))
}

fn stops_guards(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let guards =
        ["windefend", "defender", "msmpeng", "securityhealth", "mpssvc", "wscsvc", "sense", "avp", "avast", "clam"];
    let stops = |name: &str, command: &str| {
        let guard = || guards.iter().any(|guard| command.contains(guard));
        match name {
            "taskkill" => guard(),
            "net" | "net1" | "sc" => {
                ["stop", "delete", "config", "disabled"].iter().any(|word| command.contains(word)) && guard()
            }
            "netsh" => command.contains("firewall") && (command.contains("off") || command.contains("disable")),
            "wevtutil" => command.contains(" cl ") || command.contains("clear-log"),
            "powershell" => command.contains("set-mppreference") || command.contains("add-mppreference"),
            "reg" => command.contains("disableantispyware") || command.contains("disablerealtimemonitoring"),
            _ => false,
        }
    };
    let by_key = |name: &str| {
        ["disableantispyware", "disablerealtimemonitoring", "disabletaskmgr", "enablelua"]
            .contains(&name.to_ascii_lowercase().as_str())
    };
    let set = seen.behaviour.registry.iter().find(|change| change.what == "set" && by_key(&change.name));
    let set = || set.map(|change| format!("{}\\{}", change.key, change.name));
    process(seen, stops).or_else(set).map(|evidence| (6, evidence))
}

fn runs_fetched(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let fetched = |path: &str| {
        let wrote = |file: &&FileChange| file.path.eq_ignore_ascii_case(path);
        seen.behaviour.files.iter().find(wrote).is_some_and(|file| seen.callers.contains(&file.pid))
    };
    let run = seen.behaviour.processes.iter().skip(1).find(|process| files(process).any(|path| fetched(&path)));
    let run = run.map(|process| (6, process.arguments.join(" ")));
    run.or_else(|| seen.act("second-stage", |_| true).map(|link| (6, link)))
}

/// Programs of Windows that execute what their arguments name; others only do something with it.
const LOADERS: [&str; 8] = ["wscript", "cscript", "rundll32", "regsvr32", "mshta", "msiexec", "powershell", "pwsh"];

/// The files that a process may execute: its program, and whatever a loader or a shell should run.
fn files(process: &Process) -> impl Iterator<Item = String> {
    let words: Vec<&str> = match program(process).as_str() {
        "cmd" | "start" => commands(&process.arguments),
        name if LOADERS.contains(&name) => process.arguments.iter().skip(1).map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let named =
        words.into_iter().flat_map(|word| word.split(',').take(1)).map(|word| word.trim_matches('"').to_owned());
    std::iter::once(process.path.clone()).chain(named.collect::<Vec<_>>())
}

/// The words that a shell takes for commands: the first, and each after the end of a command. Files that are written or read are not commands.
fn commands(arguments: &[String]) -> Vec<&str> {
    let (mut found, mut is_next) = (Vec::new(), true);
    for word in arguments.iter().skip(1).map(String::as_str) {
        let small = word.to_ascii_lowercase();
        // Options, the title of a window, and commands that run what follows them.
        let is_before = word.is_empty()
            || small.starts_with('/')
            || ["start", "call", "@echo", "&", "&&", "||", "|"].contains(&small.as_str());
        if is_before {
            is_next |= ["&", "&&", "||", "|", "start", "call"].contains(&small.as_str());
            continue;
        }
        if std::mem::take(&mut is_next) {
            found.push(word);
        }
    }
    found
}

/// Programs of Windows that fetch, unpack or run what they are given: with these arguments hardly anything except malware calls them.
fn lolbin(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let misused = |name: &str, command: &str| {
        let has = |words: &[&str]| words.iter().any(|word| command.contains(word));
        match name {
            "certutil" => has(&["urlcache", "-decode", "/decode", "-decodehex"]),
            "bitsadmin" => has(&["/transfer", "/addfile"]),
            "mshta" => has(&["http", "javascript:", "vbscript:"]),
            "powershell" | "pwsh" => has(&[
                "-enc",
                " -e ",
                "-w hidden",
                "-windowstyle hidden",
                "downloadstring",
                "downloadfile",
                "iex",
                "bypass",
                "webclient",
            ]),
            "regsvr32" => has(&["/i:http", "scrobj"]),
            "rundll32" => has(&["javascript:", "\\temp\\", "\\appdata\\"]),
            "wmic" => has(&["process call create", "/node:"]),
            "curl" => has(&["http"]),
            "msiexec" => has(&["http"]),
            "cmd" => has(&["certutil -urlcache", "powershell -enc", "bitsadmin /transfer", "mshta http"]),
            "cscript" | "wscript" => has(&["\\temp\\", "\\appdata\\"]),
            _ => false,
        }
    };
    process(seen, misused).map(|command| (5, command))
}

fn drops_and_runs(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let written = |path: &str| {
        seen.behaviour.files.iter().any(|file| file.what != "deleted" && file.path.eq_ignore_ascii_case(path))
    };
    let own = &seen.behaviour.sample;
    let run = seen.behaviour.processes.iter().skip(1);
    let run = run
        .filter(|process| !process.path.eq_ignore_ascii_case(own))
        .find(|process| files(process).any(|path| written(&path)));
    let run = run.filter(|_| runs_fetched(seen).is_none());
    run.map(|process| (4, process.arguments.join(" ")))
}

/// A program of the sample that has the name of one of Windows, in another folder.
fn pretends(seen: &Happenings<'_>) -> Option<(u32, String)> {
    const NAMES: [&str; 8] = ["svchost", "explorer", "lsass", "csrss", "winlogon", "services", "taskhostw", "spoolsv"];
    let is_such = |file: &&FileChange| {
        let path = file.to.as_ref().unwrap_or(&file.path).to_ascii_lowercase();
        let name = path.rsplit('\\').next().and_then(|name| name.strip_suffix(".exe"));
        file.what != "deleted"
            && !path.starts_with("c:\\windows\\system32\\")
            && name.is_some_and(|name| NAMES.contains(&name))
    };
    seen.behaviour.files.iter().find(is_such).map(|file| (5, file.path.clone()))
}

fn deletes_itself(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let own = &seen.behaviour.sample;
    let gone = |file: &&FileChange| file.what != "written" && file.path.eq_ignore_ascii_case(own);
    seen.behaviour.files.iter().find(gone).map(|file| (4, file.path.clone()))
}

/// Checks for Wine, for a VM, or for analysts: each kind counts, but asking how large a machine is does not count alone.
fn looks_for_analysts(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_common = |what: &str| ["GlobalMemoryStatusEx", "IsDebuggerPresent"].contains(&what);
    let files = seen.acts("reads").filter(|act| windows_paths::secret(&act.detail) == Some(Secret::Machine));
    let looks: BTreeSet<&str> = seen.acts("looks").chain(files).map(|act| act.detail.as_str()).collect();
    let by_command = process(seen, |name, command| {
        let words = ["software\\wine", "vmware", "vbox", "virtualbox", "computersystem get model", "bios get"];
        ["reg", "wmic", "cmd"].contains(&name) && words.iter().any(|word| command.contains(word))
    });
    let rare = looks.iter().filter(|what| !is_common(what)).count() + usize::from(by_command.is_some());
    let points = match (rare, looks.len()) {
        (2.., _) => 5,
        (1, _) => 4,
        (0, 1..) => 1,
        (0, 0) => return None,
    };
    let first = looks.iter().find(|what| !is_common(what)).or(looks.first()).map(|what| (*what).to_owned());
    Some((points, first.or(by_command).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
