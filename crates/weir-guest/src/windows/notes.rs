//! What Wine's trace says of a sample, put together: its processes, who touched which file, and what it asked of Windows. Bounded.

use super::trace_line::{Said, TraceLine};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use weir_guest::behaviour::{Act, LISTED_MAX, Process, TEXT_MAX};
use weir_guest::windows_paths;

/// Files whose writers are remembered.
const TOUCHED_MAX: usize = 8192;

/// Everything of one sample.
#[derive(Debug, Default)]
pub(crate) struct TraceNotes {
    /// Those that were started, in order.
    pub(crate) processes: Vec<Process>,
    pub(crate) acts: Vec<Act>,
    pub(crate) shown: Vec<String>,
    pub(crate) modules: Vec<String>,
    /// Who called an address.
    pub(crate) called: Vec<(u32, std::net::SocketAddr)>,
    /// Renamed files, by their names in Windows.
    pub(crate) renamed: Vec<(u32, String, String)>,
    pub(crate) left_out: u64,
    /// How many seconds all sleeps together were to be.
    slept_s: u64,
    known_acts: HashSet<Act>,
    /// The first who opened a file to change it, by its name in small letters.
    writers: HashMap<String, u32>,
    /// What a thread is about to start.
    starting: HashMap<u32, (u32, String, String)>,
    missing: BTreeSet<String>,
    /// Where a process has its libraries, and which are Wine's: by that it is known who calls.
    places: HashMap<u32, BTreeMap<u64, bool>>,
}

/// Programs that Wine starts by itself.
const WINES_OWN: [&str; 10] = [
    "rpcss.exe",
    // Looks at whoever has crashed.
    "winedbg.exe",
    "winedevice.exe",
    "plugplay.exe",
    "svchost.exe",
    "conhost.exe",
    "services.exe",
    "wineboot.exe",
    "winemenubuilder.exe",
    "explorer.exe",
];

/// Whether this is one that Wine keeps running for all.
pub(crate) fn is_wines_own(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let path = path.strip_prefix("\\??\\").unwrap_or(&path);
    let name = path.rsplit('\\').next().unwrap_or_default();
    WINES_OWN.contains(&name) && (path == name || path.starts_with("c:\\windows\\"))
}

/// A library that this guest has put beside Wine's, because those want it.
fn is_guests_own(path: &str) -> bool {
    ["C:\\windows\\system32\\zlib1.dll", "C:\\windows\\syswow64\\zlib1.dll"]
        .iter()
        .any(|own| path.eq_ignore_ascii_case(own))
}

impl TraceNotes {
    /// Takes note of a line. It may come from any program, also from one that was there before.
    pub(crate) fn note(&mut self, line: TraceLine) {
        let TraceLine { pid, thread, said } = line;
        match said {
            Said::Starts { app, command } => {
                self.not_started(thread);
                self.starting.insert(thread, (pid, app, command));
            }
            Said::Started(child) => self.started(thread, child),
            Said::Loads { path, is_wines, base } => {
                self.loaded(pid, &path);
                if self.places.len() < LISTED_MAX {
                    self.places.entry(pid).or_default().insert(base, is_wines);
                }
                if !is_wines
                    && !is_guests_own(&path)
                    && self.modules.len() < LISTED_MAX
                    && !self.modules.contains(&path)
                {
                    self.modules.push(path);
                }
            }
            Said::Opens { path, writes } if writes => self.wrote(pid, &path),
            Said::Opens { path, .. } => {
                if windows_paths::secret(&path).is_some() {
                    self.act(pid, "reads", &path);
                }
            }
            Said::Copies(from, to) => {
                if windows_paths::secret(&from).is_some() {
                    self.act(pid, "reads", &from);
                }
                self.wrote(pid, &to);
            }
            Said::Deletes(path) => self.wrote(pid, &path),
            Said::Renames(from, to) => {
                self.wrote(pid, &to);
                if self.renamed.len() < LISTED_MAX {
                    self.renamed.push((pid, from, to));
                }
            }
            Said::Shows(text) => {
                if self.shown.len() < LISTED_MAX && self.is_ours(pid) {
                    self.shown.push(text.chars().take(TEXT_MAX).collect());
                }
            }
            Said::Connects(to) => {
                if self.called.len() < LISTED_MAX {
                    self.called.push((pid, to));
                }
            }
            Said::Calls { name, arguments, from } => {
                // Wine's own libraries ask all the time; that is not the sample's doing.
                if name == "ExitProcess" || !self.is_by_wine(pid, from) {
                    self.calls(pid, &name, &arguments);
                }
            }
        }
    }

    /// It was asked to wait for so long.
    pub(crate) fn sleeps(&mut self, seconds: u64) {
        self.slept_s = self.slept_s.saturating_add(seconds);
    }

    /// All sleeps together, which may have been as long as each other.
    pub(crate) fn slept(&self) -> Option<Act> {
        (self.slept_s > 0).then(|| Act { pid: 0, what: "sleeps".into(), detail: format!("{} s", self.slept_s) })
    }

    /// Who first opened a file to change it; 0 if nobody was heard to.
    pub(crate) fn writer(&self, path: &str) -> u32 {
        self.writers.get(&path.to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// Whether a process is this file, or was told of it.
    pub(crate) fn runs(&self, path: &str) -> bool {
        let path = path.to_ascii_lowercase();
        let names = |process: &Process| {
            process.path.eq_ignore_ascii_case(&path)
                || process.arguments.iter().any(|word| word.to_ascii_lowercase().contains(&path))
        };
        self.processes.iter().any(names)
    }

    /// What was looked for to be started and was not there.
    pub(crate) fn missing(&mut self) -> BTreeSet<String> {
        let threads: Vec<u32> = self.starting.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.not_started(thread));
        std::mem::take(&mut self.missing)
    }

    fn is_ours(&self, pid: u32) -> bool {
        self.processes.iter().any(|process| process.pid == pid)
    }

    fn is_by_wine(&self, pid: u32, from: u64) -> bool {
        let place = self.places.get(&pid).and_then(|places| places.range(..=from).next_back());
        place.is_some_and(|(_, is_wines)| *is_wines)
    }

    fn wrote(&mut self, pid: u32, path: &str) {
        if self.writers.len() < TOUCHED_MAX {
            self.writers.entry(path.to_ascii_lowercase()).or_insert(pid);
        }
    }

    fn started(&mut self, thread: u32, child: u32) {
        let Some((parent, app, command)) = self.starting.remove(&thread) else { return };
        let arguments = words(&command);
        let path = if app.is_empty() { arguments.first().cloned().unwrap_or_default() } else { app };
        if !is_wines_own(&path) {
            self.process(Process { pid: child, parent, path, arguments, ..Process::default() });
        }
    }

    /// The first library that a process loads is its program: so those are known that were started in other ways.
    fn loaded(&mut self, pid: u32, path: &str) {
        let is_program = path.to_ascii_lowercase().ends_with(".exe");
        match self.processes.iter_mut().find(|process| process.pid == pid) {
            Some(process) if is_program && !process.path.contains(':') => path.clone_into(&mut process.path),
            None if is_program && !is_wines_own(path) => {
                let arguments = vec![path.to_owned()];
                self.process(Process { pid, path: path.to_owned(), arguments, ..Process::default() });
            }
            _ => {}
        }
    }

    fn process(&mut self, process: Process) {
        if self.processes.len() < LISTED_MAX {
            self.processes.push(process);
        } else {
            self.left_out += 1;
        }
    }

    /// What this thread wanted to start did not start.
    fn not_started(&mut self, thread: u32) {
        let Some((_, app, command)) = self.starting.remove(&thread) else { return };
        let path = if app.is_empty() { words(&command).into_iter().next().unwrap_or_default() } else { app };
        let name = path.rsplit('\\').next().unwrap_or_default().to_owned();
        if !name.is_empty() && self.missing.len() < LISTED_MAX {
            self.missing.insert(name);
        }
    }

    fn calls(&mut self, pid: u32, name: &str, arguments: &[String]) {
        let at = |place: usize| arguments.get(place).map_or("", String::as_str);
        // The process itself is -1.
        let is_own = |handle: &str| handle.is_empty() || handle.bytes().all(|digit| digit.eq_ignore_ascii_case(&b'f'));
        match name {
            "ExitProcess" => {
                let code = u32::from_str_radix(at(0), 16).unwrap_or(0);
                if let Some(process) = self.processes.iter_mut().rev().find(|process| process.pid == pid) {
                    process.ended = format!("exit {code}");
                }
            }
            _ if !self.is_ours(pid) => {}
            "WriteProcessMemory" | "VirtualAllocEx" if !is_own(at(0)) => self.act(pid, "writes-memory", name),
            "CreateRemoteThread" | "CreateRemoteThreadEx" if !is_own(at(0)) => self.act(pid, "remote-thread", name),
            "NtUnmapViewOfSection" if !is_own(at(0)) => self.act(pid, "remote-thread", name),
            "QueueUserAPC" | "SetThreadContext" => self.act(pid, "remote-thread", name),
            // The keyboard is 2, and 13 for all programs at once.
            "SetWindowsHookExA" | "SetWindowsHookExW" if ["00000002", "0000000d"].contains(&at(0)) => {
                self.act(pid, "hooks-keys", name);
            }
            "GetAsyncKeyState" => self.act(pid, "hooks-keys", name),
            "CreateMutexA" | "CreateMutexW" if !at(2).is_empty() && !is_number(at(2)) => self.act(pid, "mutex", at(2)),
            "IsDebuggerPresent" | "CheckRemoteDebuggerPresent" | "GetSystemFirmwareTable" | "GlobalMemoryStatusEx" => {
                self.act(pid, "looks", name);
            }
            "GetProcAddress" if at(1).starts_with("wine_") => self.act(pid, "looks", at(1)),
            "RegOpenKeyExA" | "RegOpenKeyExW" if windows_paths::tells_the_machine(at(1)) => {
                self.act(pid, "looks", at(1));
            }
            "FindWindowA" | "FindWindowW" if !is_number(at(0)) => self.act(pid, "looks", at(0)),
            "CreateToolhelp32Snapshot" => self.act(pid, "lists-processes", ""),
            "CryptUnprotectData" => self.act(pid, "unprotects", ""),
            "TerminateProcess" if !is_own(at(0)) => self.act(pid, "kills", "another process"),
            "ExitWindowsEx" => self.act(pid, "reboots", ""),
            // The picture behind everything.
            "SystemParametersInfoW" if at(0) == "00000014" && at(3) != "00000000" => self.act(pid, "wallpaper", at(2)),
            _ => {}
        }
    }

    fn act(&mut self, pid: u32, what: &str, detail: &str) {
        let act = Act { pid, what: what.to_owned(), detail: detail.chars().take(TEXT_MAX).collect() };
        if self.acts.len() >= LISTED_MAX {
            self.left_out += 1;
        } else if self.known_acts.insert(act.clone()) {
            self.acts.push(act);
        }
    }
}

/// An argument that is no text.
fn is_number(argument: &str) -> bool {
    argument.len() >= 8 && argument.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The words of a command as programs of Windows read them: quotes keep spaces.
pub(crate) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for letter in command.chars() {
        match letter {
            '"' => (quoted, begun) = (!quoted, true),
            ' ' | '\t' if !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => {
                begun = true;
                word.push(letter);
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::trace_line::read;
    use super::*;

    fn notes(lines: &[&str]) -> TraceNotes {
        let mut notes = TraceNotes::default();
        lines.iter().filter_map(|line| read(line)).for_each(|line| notes.note(line));
        notes
    }

    #[test]
    fn processes_files_and_calls_are_put_together() {
        let mut notes = notes(&[
            "0024:0028:trace:loaddll:build_module Loaded L\"C:\\\\users\\\\anna\\\\a.exe\" at 1: native",
            "0024:0028:trace:file:CreateFileW L\"C:\\\\Temp\\\\B.exe\" GENERIC_WRITE creation 2 attributes 0x80",
            "0024:0028:trace:process:CreateProcessInternalW app (null) cmdline L\"c:\\\\temp\\\\b.exe /s\"",
            "0024:0028:trace:process:CreateProcessInternalW started process pid 0030 tid 0034",
            "0024:0028:trace:process:CreateProcessInternalW app (null) cmdline L\"vssadmin.exe delete\"",
            "0030:0034:Call KERNEL32.WriteProcessMemory(00000044,00410000,0061fe00,00000010,00000000) ret=00401234",
            "0030:0034:Call KERNEL32.VirtualAllocEx(ffffffff,00410000,0061fe00,00000010,00000000) ret=00401234",
            "0030:0034:Call KERNEL32.ExitProcess(00000003) ret=00401234",
            "0008:0009:Call KERNEL32.GetAsyncKeyState(00000041) ret=00401234",
        ]);
        let ran: Vec<_> =
            notes.processes.iter().map(|p| (p.pid, p.parent, p.path.as_str(), p.ended.as_str())).collect();
        assert_eq!(ran, [(0x24, 0, "C:\\users\\anna\\a.exe", ""), (0x30, 0x24, "c:\\temp\\b.exe", "exit 3")]);
        assert_eq!(notes.writer("C:\\TEMP\\b.EXE"), 0x24);
        assert!(notes.runs("C:\\Temp\\B.exe") && !notes.runs("C:\\Temp\\c.exe"));
        assert_eq!(notes.missing().into_iter().collect::<Vec<_>>(), ["vssadmin.exe"]);
        let acts: Vec<_> = notes.acts.iter().map(|act| (act.pid, act.what.as_str())).collect();
        assert_eq!(acts, [(0x30, "writes-memory")], "only of the sample's own, and of others");
    }

    #[test]
    fn a_flood_needs_bounded_memory() {
        let mut notes = TraceNotes::default();
        for number in 0..TOUCHED_MAX + 100 {
            let text = format!("0024:{:04x}:trace:file:DeleteFileW L\"C:\\\\{number}\"", number % 0xffff);
            read(&text).into_iter().for_each(|line| notes.note(line));
            notes.act(0, "mutex", &number.to_string());
            notes.sleeps(60);
        }
        assert_eq!((notes.writers.len(), notes.acts.len()), (TOUCHED_MAX, LISTED_MAX));
        assert_eq!(notes.slept().map(|act| act.detail), Some(format!("{} s", 60 * (TOUCHED_MAX + 100))));
        assert!(notes.left_out > 0);
        assert_eq!(words("\"a b\" c  \"\""), ["a b", "c", ""]);
        assert!(is_wines_own("\\??\\C:\\windows\\system32\\conhost.exe"));
        assert!(is_wines_own("C:\\windows\\system32\\conhost.exe") && !is_wines_own("C:\\users\\anna\\conhost.exe"));
    }
}
