//! The registry as Wine keeps it on disk: text files, one for the machine and one for the user. The differences afterwards show what was
//! done to it, whatever a sample claims or hides.

use std::collections::BTreeMap;
use weir_guest::behaviour::{LISTED_MAX, RegistryChange, TEXT_MAX};

/// Keys with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hive(BTreeMap<String, BTreeMap<String, String>>);

/// What Wine writes down by itself while programs run, by the beginning of the key, without its root.
const WINES_OWN: [&str; 13] = [
    // The colours of the first console window.
    "Console",
    "Software\\Wine\\",
    "Software\\Microsoft\\Windows\\CurrentVersion\\Fonts",
    "Software\\Microsoft\\Windows NT\\CurrentVersion\\Fonts",
    "System\\CurrentControlSet\\Control\\Class\\",
    "Software\\Microsoft\\Windows\\CurrentVersion\\Explorer\\",
    "Software\\Microsoft\\Windows\\CurrentVersion\\Internet Settings",
    "Software\\Microsoft\\SystemCertificates\\",
    "Software\\Microsoft\\RPC",
    "System\\CurrentControlSet\\Control\\Video",
    "System\\CurrentControlSet\\Enum\\",
    "System\\CurrentControlSet\\Control\\DeviceClasses",
    "Volatile Environment",
];
/// Among those, what Wine sets once and a sample may change: where the user's folders are, one of which is started at every logon.
const NOT_WINES_OWN: &str = "\\explorer\\user shell folders";

impl Hive {
    /// Reads one. `root` is `HKLM` or `HKCU`.
    pub(crate) fn read(text: &str, root: &str) -> Hive {
        let (mut hive, mut key) = (Hive::default(), None);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.rsplit_once(']').map_or(rest, |(name, _)| name).replace("\\\\", "\\");
                let name = format!("{root}\\{name}");
                hive.0.entry(name.clone()).or_default();
                key = Some(name);
                continue;
            }
            let Some(values) = key.as_ref().and_then(|key| hive.0.get_mut(key)) else { continue };
            let Some((name, data)) = value(line) else { continue };
            let mut data = data.to_owned();
            while data.ends_with('\\') {
                data.pop();
                let Some(next) = lines.next() else { break };
                data.push_str(next.trim_start());
            }
            values.insert(name, data.chars().take(TEXT_MAX).collect());
        }
        hive
    }

    /// What is different in a later one: at most so many changes as are listed, and how many more there were.
    pub(crate) fn changes(&self, later: &Hive) -> (Vec<RegistryChange>, u64) {
        let (mut found, mut more) = (Vec::new(), 0);
        let mut note = |key: &str, name: &str, what: &str, data: &str| {
            if is_wines_own(key) {
                return;
            }
            if found.len() < LISTED_MAX {
                let (key, name) = (key.to_owned(), name.to_owned());
                found.push(RegistryChange { key, name, what: what.to_owned(), data: data.to_owned(), at_ms: None });
            } else {
                more += 1;
            }
        };
        let none = BTreeMap::new();
        for (key, values) in &later.0 {
            let before = self.0.get(key).unwrap_or(&none);
            for (name, data) in values.iter().filter(|(name, data)| before.get(*name) != Some(*data)) {
                note(key, name, "set", data);
            }
            for name in before.keys().filter(|name| !values.contains_key(*name)) {
                note(key, name, "deleted", "");
            }
        }
        for key in self.0.keys().filter(|key| !later.0.contains_key(*key)) {
            note(key, "", "deleted-key", "");
        }
        (found, more)
    }
}

fn is_wines_own(key: &str) -> bool {
    let rest = key.get(5..).unwrap_or_default();
    WINES_OWN.iter().any(|own| rest.starts_with(own)) && !rest.to_ascii_lowercase().ends_with(NOT_WINES_OWN)
}

/// `"name"=data` or `@=data`.
fn value(line: &str) -> Option<(String, &str)> {
    if let Some(data) = line.strip_prefix("@=") {
        return Some((String::new(), data));
    }
    let body = line.strip_prefix('"')?;
    let mut escaped = false;
    let end = body.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })?;
    Some((body[..end].replace("\\\\", "\\").replace("\\\"", "\""), body[end + 1..].strip_prefix('=')?))
}

/// The way of staying that a change of the registry is, if it is one.
pub(crate) fn way(change: &RegistryChange) -> Option<&'static str> {
    let key = change.key.to_ascii_lowercase();
    let has = |part: &str| key.contains(part);
    let name = change.name.to_ascii_lowercase();
    match () {
        () if change.what != "set" => None,
        () if has("\\currentversion\\run") || has("\\policies\\explorer\\run") => Some("run-key"),
        () if has("\\currentversion\\winlogon") && ["shell", "userinit", "notify"].contains(&name.as_str()) => {
            Some("winlogon")
        }
        () if has("image file execution options") && name == "debugger" => Some("debugger"),
        () if has("\\explorer\\user shell folders") && name.ends_with("startup") => Some("startup"),
        () if name == "appinit_dlls" => Some("appinit"),
        () if has("\\services\\") && ["imagepath", "servicedll"].contains(&name.as_str()) => Some("service"),
        () if has("\\schedule\\taskcache\\") => Some("task"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "WINE REGISTRY Version 2\n;; relative\n\n[Software\\\\A] 17\n#time=1\n@=\"own\"\n\"x\"=hex:00,\\\n  01\n\"gone\"=dword:1\n\n\
                          [Software\\\\Wine\\\\Debug] 1\n\"a\"=\"1\"\n[Software\\\\Old] 2\n";

    #[test]
    fn what_is_different_is_told_and_wines_own_is_not() {
        let after = "[Software\\\\A] 18\n@=\"own\"\n\"x\"=hex:00,02\n[Software\\\\Microsoft\\\\Windows\\\\CurrentVersion\\\\Run] 3\n\
                     \"up\\\"date\"=\"C:\\\\x.exe\"\n[Software\\\\Wine\\\\Debug] 1\n\"a\"=\"2\"\n";
        let (changes, more) = Hive::read(BEFORE, "HKCU").changes(&Hive::read(after, "HKCU"));
        let told: Vec<_> =
            changes.iter().map(|c| (c.key.as_str(), c.name.as_str(), c.what.as_str(), c.data.as_str())).collect();
        assert_eq!(
            told,
            [
                ("HKCU\\Software\\A", "x", "set", "hex:00,02"),
                ("HKCU\\Software\\A", "gone", "deleted", ""),
                ("HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Run", "up\"date", "set", "\"C:\\\\x.exe\""),
                ("HKCU\\Software\\Old", "", "deleted-key", ""),
            ]
        );
        assert_eq!(more, 0);
        assert_eq!(changes.iter().filter_map(way).collect::<Vec<_>>(), ["run-key"]);
    }

    #[test]
    fn another_startup_folder_is_a_way_to_stay_although_wine_writes_beside_it() {
        let key = "Software\\\\Microsoft\\\\Windows\\\\CurrentVersion\\\\Explorer";
        let after =
            format!("[{key}\\\\User Shell Folders] 1\n\"Startup\"=\"C:\\\\x\"\n[{key}\\\\FileExts] 1\n\"a\"=\"1\"\n");
        let (changes, _) = Hive::default().changes(&Hive::read(&after, "HKCU"));
        assert_eq!(changes.iter().map(way).collect::<Vec<_>>(), [Some("startup")]);
    }

    #[test]
    fn half_a_hive_is_read_as_far_as_it_goes() {
        for cut in 0..BEFORE.len() {
            let _ = Hive::read(&BEFORE[..cut], "HKCU");
        }
        let many: String = (0..LISTED_MAX + 5).map(|n| format!("[K{n}] 1\n\"a\"=\"1\"\n")).collect();
        assert_eq!(Hive::default().changes(&Hive::read(&many, "HKCU")).1, 5);
    }
}
