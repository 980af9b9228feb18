//! What Wine's trace says of a sample, put together: its processes, who touched which file, and what it asked of Windows. Bounded.

use super::trace_line::{Said, TraceLine};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;
use weir_guest::behaviour::{Act, LISTED_MAX, Process, TEXT_MAX};
use weir_guest::windows_paths;

/// Shorter waits are nobody's delay.
const WAIT_MS: u64 = 1000;
/// Files whose writers are remembered.
const TOUCHED_MAX: usize = 8192;
/// Messages and titles: whoever changes a title all the time must not crowd out what is graver.
const SHOWN_MAX: usize = 64;

/// Everything of one sample.
#[derive(Debug, Default)]
pub(crate) struct TraceNotes {
    /// When the sample began.
    begun: Option<Instant>,
    /// Those that were started, in order.
    pub(crate) processes: Vec<Process>,
    pub(crate) acts: Vec<Act>,
    pub(crate) shown: Vec<String>,
    pub(crate) modules: Vec<String>,
    /// Who called an address, and when.
    pub(crate) called: Vec<(u32, std::net::SocketAddr, Option<u64>)>,
    /// Renamed files, by their names in Windows.
    pub(crate) renamed: Vec<(u32, String, String)>,
    pub(crate) left_out: u64,
    /// Wine's server could not write the registry down.
    pub(crate) is_unsaved: bool,
    /// How many seconds all sleeps together were to be, and how many milliseconds were waited for what did not come.
    slept_s: u64,
    waited_ms: u64,
    /// Messages that wait for a key.
    pub(crate) messages: usize,
    known_acts: HashSet<Act>,
    /// The first who opened a file to change it, and when, by its name in small letters.
    writers: HashMap<String, (u32, Option<u64>)>,
    /// When a value of the registry was first set, by its name in small letters.
    values: HashMap<String, Option<u64>>,
    /// For how many milliseconds a thread waits at most.
    waiting: HashMap<u32, u64>,
    /// What a thread is about to start.
    starting: HashMap<u32, (u32, String, String)>,
    missing: BTreeSet<String>,
    /// Where a process has its libraries, and which are Wine's: by that it is known who calls.
    places: HashMap<u32, BTreeMap<u64, bool>>,
}

/// Programs that Wine starts by itself.
const WINES_OWN: [&str; 10] = [
    "rpcss.exe",
    // Examines a program that has crashed.
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
    /// Nothing yet, of a sample that begins now.
    pub(crate) fn begin() -> TraceNotes {
        TraceNotes { begun: Some(Instant::now()), ..TraceNotes::default() }
    }

    /// How long ago the sample began, in milliseconds.
    fn now(&self) -> Option<u64> {
        self.begun.and_then(|begun| u64::try_from(begun.elapsed().as_millis()).ok())
    }

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
            Said::Opens { path, writes } if writes => {
                if is_disk(&path) {
                    self.act(pid, "device", &path);
                }
                self.wrote(pid, &path);
            }
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
                if self.is_ours(pid) {
                    self.messages += 1;
                    self.shows(pid, &text);
                }
            }
            Said::Connects(to) => {
                if self.called.len() < LISTED_MAX {
                    self.called.push((pid, to, self.now()));
                }
            }
            Said::Returns { name, value } => self.returns(thread, &name, value),
            Said::Begins(_) => {
                if let Some(process) = self.processes.iter_mut().rev().find(|process| process.pid == pid) {
                    process.threads = process.threads.saturating_add(1);
                }
            }
            Said::Calls { name, arguments, from } => {
                // Wine's own libraries ask all the time; that is not the sample's doing.
                if name == "ExitProcess" || !self.is_by_wine(pid, from) {
                    self.waits(pid, thread, &name, &arguments);
                    self.calls(pid, &name, &arguments);
                }
            }
        }
    }

    /// It was asked to wait for so long.
    pub(crate) fn sleeps(&mut self, seconds: u64) {
        self.slept_s = self.slept_s.saturating_add(seconds);
    }

    /// All sleeps together, which may have been as long as each other. Whoever waits still wanted to.
    pub(crate) fn slept(&self) -> Option<Act> {
        let waited_ms = self.waiting.values().fold(self.waited_ms, |all, more| all.saturating_add(*more));
        let all_s = self.slept_s.saturating_add(waited_ms / 1000).saturating_add(asked_to_wait_s(&self.processes));
        (all_s > 0).then(|| Act { what: "sleeps".into(), detail: format!("{all_s} s"), ..Act::default() })
    }

    /// It waits for something, at most for so long.
    fn waits(&mut self, pid: u32, thread: u32, name: &str, arguments: &[String]) {
        let place = match name {
            "WaitForSingleObject" | "WaitForSingleObjectEx" => 1,
            "WaitForMultipleObjects" | "MsgWaitForMultipleObjects" => 3,
            "SetTimer" => 2,
            _ => return,
        };
        let time_ms = arguments.get(place).and_then(|number| u64::from_str_radix(number, 16).ok()).unwrap_or(0);
        // Without an end it is no delay, and nobody notices a short one.
        if !self.is_ours(pid) || !(WAIT_MS..u64::from(u32::MAX)).contains(&time_ms) {
            return;
        }
        if name == "SetTimer" {
            self.waited_ms = self.waited_ms.saturating_add(time_ms);
        } else if self.waiting.len() < LISTED_MAX {
            self.waiting.insert(thread, time_ms);
        }
    }

    /// What it waited for has come, or the time was over: only that was a delay.
    fn returns(&mut self, thread: u32, name: &str, value: u64) {
        const TIME_IS_OVER: u64 = 0x102;
        if name.contains("WaitFor")
            && let Some(time_ms) = self.waiting.remove(&thread).filter(|_| value == TIME_IS_OVER)
        {
            self.waited_ms = self.waited_ms.saturating_add(time_ms);
        }
    }

    /// What its user reads.
    fn shows(&mut self, pid: u32, text: &str) {
        let text: String = text.chars().take(TEXT_MAX).collect();
        if text.trim().is_empty() || self.shown.contains(&text) {
            return;
        }
        if self.shown.len() >= SHOWN_MAX {
            self.left_out += 1;
            return;
        }
        self.act(pid, "shows", &text);
        self.shown.push(text);
    }

    /// Who first opened a file to change it, and when; 0 if nobody was heard to.
    pub(crate) fn writer(&self, path: &str) -> (u32, Option<u64>) {
        self.writers.get(&path.to_ascii_lowercase()).copied().unwrap_or_default()
    }

    /// When a value of this name was first set.
    pub(crate) fn set_at(&self, name: &str) -> Option<u64> {
        self.values.get(&name.to_ascii_lowercase()).copied().flatten()
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
        let now = self.now();
        if self.writers.len() < TOUCHED_MAX {
            self.writers.entry(path.to_ascii_lowercase()).or_insert((pid, now));
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

    fn process(&mut self, mut process: Process) {
        process.at_ms = self.now();
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
            "CreateWindowExA" | "CreateWindowExW" if !is_number(at(2)) => self.shows(pid, at(2)),
            "SetWindowTextA" | "SetWindowTextW" if !is_number(at(1)) => self.shows(pid, at(1)),
            "RegSetValueExA" | "RegSetValueExW" if self.values.len() < TOUCHED_MAX => {
                let now = self.now();
                let name = if is_number(at(1)) { String::new() } else { at(1).to_ascii_lowercase() };
                self.values.entry(name).or_insert(now);
            }
            // The picture behind everything.
            "SystemParametersInfoW" if at(0) == "00000014" && at(3) != "00000000" => self.act(pid, "wallpaper", at(2)),
            _ => {}
        }
    }

    fn act(&mut self, pid: u32, what: &str, detail: &str) {
        let act = Act { pid, what: what.to_owned(), detail: detail.chars().take(TEXT_MAX).collect(), at_ms: None };
        if self.acts.len() >= LISTED_MAX {
            self.left_out += 1;
        } else if self.known_acts.insert(act.clone()) {
            let at_ms = self.now();
            self.acts.push(Act { at_ms, ..act });
        }
    }
}

/// Commands of scripts that only wait: `timeout` is a stand-in here, which does not.
fn asked_to_wait_s(processes: &[Process]) -> u64 {
    let wanted = |process: &Process| {
        let name = process.path.rsplit('\\').next().unwrap_or_default().to_ascii_lowercase();
        let words = process.arguments.iter().skip(1);
        let number = |word: &String| word.trim_start_matches("/t:").parse::<u64>().ok();
        if name == "timeout.exe" || name == "timeout" { words.filter_map(number).next() } else { None }
    };
    processes.iter().filter_map(wanted).fold(0, u64::saturating_add)
}

/// The disk itself, and not a file on it.
fn is_disk(path: &str) -> bool {
    let name = path.strip_prefix("\\\\.\\").or_else(|| path.strip_prefix("\\\\?\\")).unwrap_or_default();
    name.to_ascii_lowercase().starts_with("physicaldrive") || (name.len() == 2 && name.ends_with(':'))
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
        assert_eq!(notes.writer("C:\\TEMP\\b.EXE").0, 0x24);
        assert!(notes.runs("C:\\Temp\\B.exe") && !notes.runs("C:\\Temp\\c.exe"));
        assert_eq!(notes.missing().into_iter().collect::<Vec<_>>(), ["vssadmin.exe"]);
        let acts: Vec<_> = notes.acts.iter().map(|act| (act.pid, act.what.as_str())).collect();
        assert_eq!(acts, [(0x30, "writes-memory")], "only of the sample's own, and of others");
    }

    #[test]
    fn threads_titles_and_waits_are_told() {
        let notes = notes(&[
            "0024:0028:trace:loaddll:build_module Loaded L\"C:\\\\a.exe\" at 400000: native",
            "0024:0028:trace:loaddll:build_module Loaded L\"C:\\\\windows\\\\system32\\\\x.dll\" at 7B600000: builtin",
            "0024:0030:Starting thread proc 0000000000401550 (arg=0000)",
            "0024:0028:Call user32.CreateWindowExA(00000000,00404000 \"notes\",00404010 \"Shopping list\",10cf0000,00000032) ret=00401234",
            "0024:0028:Call user32.CreateWindowExA(00000000,00404000 \"x\",00404010 \"of Wine's own\",10cf0000,00000032) ret=7b601234",
            // Half of these waits were over because what was waited for came.
            "0024:0028:Call KERNEL32.WaitForSingleObject(00000044,000493e0) ret=00401234",
            "0024:0028:Ret  KERNEL32.WaitForSingleObject() retval=00000102 ret=00401234",
            "0024:0028:Call KERNEL32.WaitForSingleObject(00000044,000493e0) ret=00401234",
            "0024:0028:Ret  KERNEL32.WaitForSingleObject() retval=00000000 ret=00401234",
            "0024:0028:Call KERNEL32.WaitForSingleObject(00000044,ffffffff) ret=00401234",
            "0024:0028:Call user32.SetTimer(00000000,00000000,0001d4c0,00000000) ret=00401234",
            "0024:0030:Call KERNEL32.WaitForSingleObject(00000044,00002710) ret=00401234",
            "0024:0028:trace:process:CreateProcessInternalW app (null) cmdline L\"timeout.exe /t 60 /nobreak\"",
            "0024:0028:trace:process:CreateProcessInternalW started process pid 0040 tid 0044",
            "0024:0028:Call advapi32.RegSetValueExA(00000048,00404020 \"Updater\",00000000,00000001,0061f000,00000010) ret=00401234",
        ]);
        assert_eq!(notes.processes[0].threads, 1);
        assert_eq!(notes.shown, ["Shopping list"]);
        // 300 s, a timer of 120 s, ten that are not over, and a minute that a script asked for.
        assert_eq!(notes.slept().map(|act| act.detail), Some("490 s".into()));
        assert!(notes.values.contains_key("updater"));
    }

    /// The sample itself, as Wine tells that it was loaded.
    const SAMPLE: &str =
        "0024:0028:trace:loaddll:build_module Loaded L\"C:\\\\users\\\\anna\\\\a.exe\" at 0000000140000000: native";

    /// A call of each function that the guest has Wine tell of, as Wine 8 writes it, and what is noted of it.
    const TOLD: [(&str, &str); 33] = [
        (
            "kernelbase.WriteProcessMemory(00000044,00410000,0061fe00,00000010,00000000)",
            "writes-memory WriteProcessMemory",
        ),
        (
            "kernel32.CreateRemoteThread(00000044,00000000,00000000,140001000,00000000,00000000,00000000)",
            "remote-thread CreateRemoteThread",
        ),
        (
            "kernelbase.CreateRemoteThreadEx(00000044,00000000,00000000,140001000,00000000,00000000,00000000,00000000)",
            "remote-thread CreateRemoteThreadEx",
        ),
        ("kernelbase.VirtualAllocEx(00000044,00000000,00001000,00003000,00000040)", "writes-memory VirtualAllocEx"),
        ("kernelbase.QueueUserAPC(140001000,00000044,00000000)", "remote-thread QueueUserAPC"),
        ("kernelbase.SetThreadContext(00000044,0061f000)", "remote-thread SetThreadContext"),
        ("ntdll.NtUnmapViewOfSection(00000044,00400000)", "remote-thread NtUnmapViewOfSection"),
        ("user32.SetWindowsHookExA(0000000d,140001000,140000000,00000000)", "hooks-keys SetWindowsHookExA"),
        ("user32.SetWindowsHookExW(00000002,140001000,00000000,00000028)", "hooks-keys SetWindowsHookExW"),
        ("user32.GetAsyncKeyState(00000041)", "hooks-keys GetAsyncKeyState"),
        ("kernelbase.CreateMutexA(00000000,00000001,140004000 \"one\")", "mutex one"),
        ("kernelbase.CreateMutexW(00000000,00000001,140004000 L\"Global\\\\two\")", "mutex Global\\two"),
        ("kernelbase.IsDebuggerPresent()", "looks IsDebuggerPresent"),
        ("kernelbase.CheckRemoteDebuggerPresent(ffffffffffffffff,0061f000)", "looks CheckRemoteDebuggerPresent"),
        ("kernelbase.GetProcAddress(170000000,140004020 \"wine_get_version\")", "looks wine_get_version"),
        (
            "advapi32.RegOpenKeyExA(80000001,140004040 \"Software\\\\Wine\",00000000,00020019,0061f000)",
            "looks Software\\Wine",
        ),
        (
            "advapi32.RegOpenKeyExW(80000002,140004040 L\"HARDWARE\\\\ACPI\",00000000,00020019,0061f000)",
            "looks HARDWARE\\ACPI",
        ),
        ("crypt32.CryptUnprotectData(0061f000,00000000,00000000,00000000,00000000,00000000,0061f020)", "unprotects "),
        ("kernelbase.TerminateProcess(00000044,00000001)", "kills another process"),
        ("user32.ExitWindowsEx(00000002,00000000)", "reboots "),
        ("user32.FindWindowA(140004060 \"OLLYDBG\",00000000)", "looks OLLYDBG"),
        ("user32.FindWindowW(140004060 L\"SandboxieControlWndClass\",00000000)", "looks SandboxieControlWndClass"),
        ("kernel32.CreateToolhelp32Snapshot(00000002,00000000)", "lists-processes "),
        ("kernelbase.ExitProcess(00000003)", "exit 3"),
        ("kernelbase.GlobalMemoryStatusEx(0061f000)", "looks GlobalMemoryStatusEx"),
        ("kernelbase.GetSystemFirmwareTable(52534d42,00000000,00000000,00000000)", "looks GetSystemFirmwareTable"),
        ("user32.SystemParametersInfoW(00000014,00000000,140004080,00000003)", "wallpaper 140004080"),
        (
            "user32.CreateWindowExA(00000000,140004000 \"notes\",140004010 \"Shopping list\",10cf0000,00000032,00000032,\
             0000012c,000000c8,00000000,00000000,140000000,00000000)",
            "shows Shopping list",
        ),
        (
            "user32.CreateWindowExW(00000008,0000c01f,140004010 L\"f\\00fcr dich\",90000000,00000000,00000000,\
             00000400,00000300,00000000,00000000,140000000,00000000)",
            "shows für dich",
        ),
        ("user32.SetWindowTextA(00010058,1400040a0 \"12 of 90 files\")", "shows 12 of 90 files"),
        (
            "user32.SetWindowTextW(00010058,1400040a0 L\"All your files, and more than a line holds\"...)",
            "shows All your files, and more than a line holds",
        ),
        ("advapi32.RegSetValueExA(00000048,1400040c0 \"Updater\",00000000,00000001,0061f000,00000010)", "sets updater"),
        ("advapi32.RegSetValueExW(00000048,00000000,00000000,00000001,0061f000,00000010)", "sets "),
    ];

    #[test]
    fn wine_is_asked_for_what_is_noted_and_for_nothing_else() {
        let settings = include_str!("../../../../guest/windows/settings.reg");
        let asked = settings.lines().find_map(|line| line.strip_prefix("\"RelayInclude\"=\"")).unwrap();
        let mut asked: BTreeSet<&str> = asked.trim_end_matches('"').split(';').collect();
        for (call, expected) in TOLD {
            let name = call.split(['.', '(']).nth(1).unwrap();
            assert!(asked.remove(name), "Wine is not asked for {name}");
            let notes = notes(&[SAMPLE, &format!("0024:0028:Call {call} ret=14000123a")]);
            let acts = notes.acts.iter().map(|act| format!("{} {}", act.what, act.detail));
            let ends = notes.processes.iter().filter(|process| !process.ended.is_empty());
            let sets = notes.values.keys().map(|name| format!("sets {name}"));
            let told: Vec<String> = acts.chain(ends.map(|process| process.ended.clone())).chain(sets).collect();
            assert_eq!(told, [expected], "{call}");
        }
        assert!(asked.is_empty(), "Wine is asked for what nobody reads: {asked:?}");
    }

    #[test]
    fn titles_leave_room_for_what_is_graver() {
        let mut lines = vec![SAMPLE.to_owned()];
        lines.extend((0..LISTED_MAX).map(|n| {
            format!("0024:0028:Call user32.SetWindowTextA(00010058,1400040a0 \"{n} of 512 done\") ret=14000123a")
        }));
        lines.push(
            "0024:0028:Call user32.SetWindowsHookExA(0000000d,140001000,140000000,00000000) ret=14000123a".to_owned(),
        );
        let notes = notes(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((notes.shown.len(), notes.left_out), (SHOWN_MAX, (LISTED_MAX - SHOWN_MAX) as u64));
        assert_eq!(notes.acts.last().map(|act| act.what.as_str()), Some("hooks-keys"));
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
        assert!(
            is_disk("\\\\.\\PhysicalDrive0") && is_disk("\\\\.\\C:") && !is_disk("C:\\a") && !is_disk("\\\\.\\pipe\\x")
        );
        assert!(is_wines_own("\\??\\C:\\windows\\system32\\conhost.exe"));
        assert!(is_wines_own("C:\\windows\\system32\\conhost.exe") && !is_wines_own("C:\\users\\anna\\conhost.exe"));
    }
}
