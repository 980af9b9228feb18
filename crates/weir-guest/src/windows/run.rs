//! One sample: opened as its user would, watched until all of it has ended or time is over, and then what is different is looked at.

use super::command::{self, Plan};
use super::hive::{self, Hive};
use super::notes::{self, TraceNotes};
use super::overlay::{self, Moment};
use super::screen::Screens;
use super::server::WineServer;
use super::tracing::Tracing;
use super::{DOWNLOADS, pe};
use crate::internet::Internet;
use crate::watch::{self, USER};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, wait};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_guest::behaviour::{Act, Behaviour, FileChange, LISTED_MAX, Persistence, Process, RegistryChange};
use weir_guest::frame::{self, Kind};
use weir_guest::words::Run;

const PREFIX: &str = "/home/anna/.wine";
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ALIVE_EVERY: Duration = Duration::from_millis(500);
const SCREEN_EVERY: Duration = Duration::from_millis(1500);
/// After so long somebody would have read a message and pressed a key.
const READ_IN: Duration = Duration::from_millis(2500);
/// Keys that are pressed for one sample.
const KEYS_MAX: u32 = 12;
/// More than a sample has (guest/build-windows, guest/first).
const ROOM: &str = "remount,size=256m,nr_inodes=20k";
/// Wine's server writes the registry and ends within this.
const FLUSH_MAX: Duration = Duration::from_secs(20);

/// The Windows of this guest.
#[derive(Debug)]
pub(crate) struct Windows {
    tracing: Tracing,
    server: Option<WineServer>,
    /// The registry, and the user's files, before any sample.
    hives: [Hive; 2],
    documents: HashSet<String>,
}

impl Windows {
    /// As it is before the snapshot is taken.
    pub(crate) fn start() -> io::Result<Windows> {
        let (server, documents) = (WineServer::find(), overlay::documents());
        Ok(Windows { tracing: Tracing::start()?, server, hives: hives(), documents })
    }

    /// Runs a sample and tells what it did.
    pub(crate) fn run(&self, port: &File, order: &Run, sample: &Path, internet: &Internet) -> io::Result<Behaviour> {
        let own = format!("C:\\users\\anna\\Downloads\\{}", sample.file_name().unwrap_or_default().to_string_lossy());
        let mut head = Vec::new();
        File::open(sample)?.take(pe::HEAD as u64).read_to_end(&mut head)?;
        let mut behaviour = Behaviour { system: "windows".into(), sample: own.clone(), ..Behaviour::default() };
        let words = match command::plan(&own, &head) {
            Plan::Run(words) => words,
            Plan::NotRun(why) => {
                behaviour.acts.push(act("not-run", &why));
                return Ok(behaviour);
            }
        };
        internet.record().take();
        self.tracing.take();
        let (before, known) = (Moment::now(), processes());
        let (output, writer) = io::pipe()?;
        let child = as_user(loader(&head))
            .args(&words)
            .current_dir(DOWNLOADS)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Tracing::writer()?)
            .spawn()?;
        let reader = std::thread::spawn(move || watch::first_words(output));
        let mut screens = Screens::start();
        behaviour.ended = self.follow(port, order, child.id() as i32, &known, &mut screens);
        make_room(&known);
        let is_written = self.stop(port);
        behaviour.output = reader.join().unwrap_or_default();
        behaviour.screens = screens.done();
        self.tell(&mut behaviour, internet, &before);
        name_first(&mut behaviour, &words);
        if !is_written {
            behaviour.acts.push(act("kills-windows", "Wine's server"));
        }
        Ok(behaviour)
    }

    /// Until all of it has ended, or time is over; how its first process ended.
    fn follow(&self, port: &File, order: &Run, first: i32, known: &HashSet<i32>, screens: &mut Screens) -> String {
        let (begun, watch) = (Instant::now(), Duration::from_millis(order.watch_ms));
        let (mut ended, mut alive_at, mut screen_at) = (None, begun, begun + SCREEN_EVERY);
        let (mut shown, mut key_at, mut keys) = (0, None, 0);
        loop {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if pid.as_raw_nonzero().get() == first {
                    let code = status.exit_status().map(|code| format!("exit {code}"));
                    ended = code.or_else(|| status.terminating_signal().map(|signal| format!("signal {signal}")));
                }
            }
            let now = Instant::now();
            if ended.is_some() && processes().is_subset(known) {
                return ended.unwrap_or_default();
            }
            if begun.elapsed() >= watch {
                screens.look(begun.elapsed().as_millis() as u64);
                return format!("watched {} s", watch.as_secs());
            }
            if now >= alive_at {
                let _ = frame::write(&mut &*port, Kind::Alive, b"");
                alive_at = now + ALIVE_EVERY;
            }
            if now >= screen_at {
                screens.look(begun.elapsed().as_millis() as u64);
                screen_at = now + SCREEN_EVERY;
            }
            // A message waits for its reader: after a while it is answered, as most people would.
            let messages = self.tracing.notes().messages;
            if messages > shown {
                (shown, key_at) = (messages, Some(now + READ_IN));
            }
            if key_at.is_some_and(|at| now >= at) && keys < KEYS_MAX {
                screens.look(begun.elapsed().as_millis() as u64);
                press("Return");
                (key_at, keys) = (None, keys + 1);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends Windows: its server writes the registry down before it goes. False if it could not.
    fn stop(&self, port: &File) -> bool {
        let mut alive_at = Instant::now();
        // A disk that was full before is not now.
        self.tracing.notes().is_unsaved = false;
        let is_written = self.server.as_ref().is_some_and(|server| {
            server.end(FLUSH_MAX, || {
                if Instant::now() >= alive_at {
                    let _ = frame::write(&mut &*port, Kind::Alive, b"");
                    alive_at += ALIVE_EVERY;
                }
            })
        });
        // The first process is spared: that is us.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
        is_written
    }

    /// What is different now, and what was heard.
    fn tell(&self, behaviour: &mut Behaviour, internet: &Internet, before: &Moment) {
        let mut notes = self.tracing.take();
        for (pid, to, at_ms) in &notes.called {
            internet.record().connected(*pid, *to, *at_ms);
        }
        let record = internet.record().take();
        behaviour.network = record.network;
        behaviour.left_out = record.left_out + notes.left_out;
        name_callers(behaviour);
        self.files(behaviour, &notes, before);
        self.registry(behaviour, &notes);
        ways(behaviour);
        let (missing, slept, is_unsaved) = (notes.missing(), notes.slept(), notes.is_unsaved);
        let TraceNotes { processes, acts, shown, modules, .. } = notes;
        behaviour.acts = acts;
        behaviour.acts.extend(slept.into_iter().chain(record.acts));
        behaviour.acts.extend(missing.into_iter().map(|name| act("missing", &name)));
        behaviour.acts.extend(not_here(&processes).map(|name| act("missing", &name)));
        behaviour.acts.extend(unknown_commands(&behaviour.output).into_iter().map(|name| act("missing", &name)));
        behaviour.acts.extend(stages(&processes, behaviour));
        behaviour.acts.truncate(LISTED_MAX);
        if is_unsaved {
            behaviour.acts.push(act("kills-windows", "the registry"));
        }
        if processes.is_empty() {
            behaviour.acts.push(act("not-run", "Wine did not start it"));
        }
        (behaviour.processes, behaviour.windows, behaviour.modules) = (processes, shown, modules);
    }

    fn files(&self, behaviour: &mut Behaviour, notes: &TraceNotes, before: &Moment) {
        let renamed = |path: &str| notes.renamed.iter().find(|(_, from, _)| from.eq_ignore_ascii_case(path));
        let now = Moment::now();
        behaviour.left_out += u64::from(before.is_cut || now.is_cut);
        for change in before.changes(&now) {
            let path = change.path;
            if is_wines_file(&path) && !notes.runs(&path) && !is_program(&path, &overlay::on_disk(&path)) {
                continue;
            }
            let existed = self.documents.contains(&path) || (path == behaviour.sample && change.is_gone);
            let ((pid, at_ms), mut what, mut to) = (notes.writer(&path), "written", None);
            if change.is_gone {
                what = "deleted";
                if let Some((_, _, name)) = renamed(&path) {
                    (what, to) = ("renamed", Some(name.clone()));
                }
                if !existed {
                    continue;
                }
            }
            if behaviour.files.len() >= LISTED_MAX {
                behaviour.left_out += 1;
                continue;
            }
            behaviour.files.push(FileChange {
                pid,
                path,
                what: what.into(),
                to,
                existed,
                at_ms,
                ..FileChange::default()
            });
        }
    }

    fn registry(&self, behaviour: &mut Behaviour, notes: &TraceNotes) {
        for (before, after) in self.hives.iter().zip(hives()) {
            let (changes, more) = before.changes(&after);
            let room = LISTED_MAX.saturating_sub(behaviour.registry.len());
            behaviour.left_out += more + changes.len().saturating_sub(room) as u64;
            let timed = |change: RegistryChange| RegistryChange { at_ms: notes.set_at(&change.name), ..change };
            behaviour.registry.extend(changes.into_iter().take(room).map(timed));
        }
    }
}

fn act(what: &str, detail: &str) -> Act {
    Act { what: what.into(), detail: detail.into(), ..Act::default() }
}

/// A sample that has filled the disk would keep Wine's server from writing the registry down: its processes end, and there is more room then.
fn make_room(known: &HashSet<i32>) {
    for pid in processes().difference(known) {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    let _ = Command::new("mount").args(["-o", ROOM, "/overlay"]).env_remove("LD_PRELOAD").status();
}

/// What the first process was given is known: it was us who started it.
fn name_first(behaviour: &mut Behaviour, words: &[String]) {
    let first = behaviour.processes.first_mut().filter(|first| first.parent == 0 && first.arguments.len() == 1);
    if let Some(first) = first.filter(|first| words.first().is_some_and(|word| first.path.eq_ignore_ascii_case(word))) {
        first.arguments = words.to_vec();
    }
}

/// Connections were seen from both sides: who made one is known from the trace.
fn name_callers(behaviour: &mut Behaviour) {
    let known: Vec<(String, u32)> =
        behaviour.network.iter().filter(|call| call.pid != 0).map(|call| (call.to.clone(), call.pid)).collect();
    for call in behaviour.network.iter_mut().filter(|call| call.pid == 0) {
        let pid = known.iter().find(|(to, _)| *to == call.to).map(|(_, pid)| *pid);
        call.pid = pid.or_else(|| known.first().map(|(_, pid)| *pid)).unwrap_or(0);
    }
    let mut seen = HashSet::new();
    behaviour.network.retain(|call| seen.insert((call.what.clone(), call.to.clone(), call.detail.clone())));
}

/// What a restart would bring back.
fn ways(behaviour: &mut Behaviour) {
    let by_registry = behaviour.registry.iter().filter_map(|change| {
        let (path, at_ms) = (format!("{}\\{}", change.key, change.name), change.at_ms);
        hive::way(change).map(|what| Persistence { path, what: what.into(), at_ms })
    });
    let by_file = behaviour.files.iter().filter(|file| file.what != "deleted").filter_map(|file| {
        let path = file.to.as_ref().unwrap_or(&file.path).to_ascii_lowercase();
        let what = match () {
            () if path.contains("\\start menu\\programs\\startup\\") => "startup",
            () if path.starts_with("c:\\windows\\tasks\\") || path.starts_with("c:\\windows\\system32\\tasks\\") => {
                "task"
            }
            () => return None,
        };
        Some(Persistence { path: file.path.clone(), what: what.into(), at_ms: file.at_ms })
    });
    behaviour.persistence = by_registry.chain(by_file).collect();
}

/// The menu of all users, where installers put shortcuts.
const MENU: &str = "C:\\ProgramData\\Microsoft\\Windows\\Start Menu\\";

/// Files that Wine writes by itself. A sample may put something there too: what is run is told nevertheless, and so are programs, and whatever
/// would start with the next session.
fn is_wines_file(path: &str) -> bool {
    if path.to_ascii_lowercase().contains("\\programs\\startup\\") {
        return false;
    }
    path.starts_with("C:\\windows\\temp\\~")
        || path.starts_with(MENU)
        || ["INetCache", "INetCookies", "History"]
            .iter()
            .any(|own| path.contains(&format!("\\Microsoft\\Windows\\{own}\\")))
}

/// Whether Windows would run such a file (a program or installer by its beginning, a script by its name), or find other files through it (an archive,
/// a shortcut). The shortcuts in Wine's own menu do not count.
fn is_program(path: &str, place: &Path) -> bool {
    const SCRIPTS: [&str; 15] =
        ["bat", "cmd", "hta", "js", "jse", "ps1", "psm1", "reg", "sct", "url", "vbe", "vbs", "wsc", "wsf", "wsh"];
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let mut head = Vec::new();
    let is_file = std::fs::symlink_metadata(place).is_ok_and(|about| about.is_file());
    let is_read = is_file && File::open(place).and_then(|file| file.take(8).read_to_end(&mut head)).is_ok();
    let holds_others = command::holds_others(&head) && !path.starts_with(MENU);
    is_read && (SCRIPTS.contains(&ending.as_str()) || command::is_program(&head) || holds_others)
}

/// Programs whose place only a name takes in this guest, or that do nothing in Wine: whoever relies on them has not done here what it would do
/// elsewhere.
fn not_here(processes: &[Process]) -> impl Iterator<Item = String> {
    const NAMES: [&str; 9] = [
        "powershell.exe",
        "pwsh.exe",
        "mshta.exe",
        "certutil.exe",
        "bitsadmin.exe",
        "curl.exe",
        "wmic.exe",
        "esentutl.exe",
        "msbuild.exe",
    ];
    let name = |process: &Process| process.path.rsplit('\\').next().unwrap_or_default().to_ascii_lowercase();
    processes.iter().map(name).filter(|name| NAMES.contains(&name.as_str()))
}

/// Commands that Wine's shell did not know, by what it printed.
fn unknown_commands(output: &str) -> Vec<String> {
    let quoted = output.lines().filter_map(|line| {
        let rest = line.split_once("Can't recognize '")?.1;
        rest.split(['\'', ' ']).next().map(str::to_owned)
    });
    quoted.take(16).collect()
}

/// A program that was fetched from the internet of this guest, and ran.
fn stages(processes: &[Process], behaviour: &Behaviour) -> Option<Act> {
    let fetched = behaviour.files.iter().find(|file| {
        let ran = |process: &Process| process.path.eq_ignore_ascii_case(&file.path);
        let called = behaviour.network.iter().any(|call| call.what == "http" && call.pid == file.pid);
        file.pid != 0 && called && processes.iter().any(ran)
    })?;
    let call = behaviour.network.iter().find(|call| call.what == "http" && call.pid == fetched.pid)?;
    let path = call.detail.split(' ').nth(1).unwrap_or_default();
    Some(act("second-stage", &format!("http://{}{path}", if call.host.is_empty() { &call.to } else { &call.host })))
}

/// A program of this guest as the user of Windows, with what `guest/init-windows` has set.
fn as_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs", program]);
    command
}

/// The loader for a program of this kind; the other one would start it through a program of Wine's, which is seen in the report then.
fn loader(head: &[u8]) -> &'static str {
    if pe::Pe::read(head).is_some_and(|pe| pe.is_short()) { "wine" } else { "wine64" }
}

/// Presses a key.
fn press(key: &str) {
    let quiet = as_user("xdotool")
        .args(["key", key])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_remove("LD_PRELOAD")
        .spawn();
    drop(quiet);
}

fn hives() -> [Hive; 2] {
    [("system.reg", "HKLM"), ("user.reg", "HKCU")].map(|(file, root)| {
        let bytes = std::fs::read(Path::new(PREFIX).join(file)).unwrap_or_default();
        Hive::read(&String::from_utf8_lossy(&bytes), root)
    })
}

/// The user's processes, without those that Wine keeps for all.
fn processes() -> HashSet<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_user = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let is_users = entry.metadata().is_ok_and(|about| about.uid() == USER);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // One that has ended has no words any more.
        let first = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
        (is_users && !first.is_empty() && !notes::is_wines_own(&first) && !first.contains("xdotool")).then_some(pid)
    });
    of_user.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_what_starts_with_a_session_are_told_wherever_they_are() {
        let menu = "C:\\ProgramData\\Microsoft\\Windows\\Start Menu\\Programs\\";
        assert!(is_wines_file(&format!("{menu}Notepad.lnk")));
        assert!(is_wines_file("C:\\users\\anna\\AppData\\Local\\Microsoft\\Windows\\INetCache\\page.htm"));
        for startup in ["StartUp", "Startup", "STARTUP"] {
            let path = format!("{menu}{startup}\\a.vbs");
            assert!(!is_wines_file(&path), "{path}");
            let file = FileChange { path, what: "written".into(), ..FileChange::default() };
            let mut behaviour = Behaviour { files: vec![file], ..Behaviour::default() };
            ways(&mut behaviour);
            assert_eq!(behaviour.persistence.iter().map(|way| way.what.as_str()).collect::<Vec<_>>(), ["startup"]);
        }
        let home = std::env::temp_dir().join(format!("weir-wines-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let is = |name: &str, content: &[u8]| {
            std::fs::write(home.join(name), content).unwrap();
            is_program(&format!("C:\\windows\\temp\\{name}"), &home.join(name))
        };
        let shortcut = b"\x4c\0\0\0\x01\x14\x02\0";
        let told = [
            is("~a.tmp", b"MZ\x90\0"),
            is("~a.VBS", b"x = 1"),
            is("~b", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
            is("~c.lnk", shortcut),
            is("~d.tmp", b"PK\x03\x04 and so on"),
            is("~e.url", b"[InternetShortcut]"),
        ];
        std::fs::write(home.join("menu.lnk"), shortcut).unwrap();
        assert!(!is_program(&format!("{menu}Notepad.lnk"), &home.join("menu.lnk")));
        let others = [is("~c.tmp", b"hello"), is("~d.htm", b"<html>"), is("~e", b"")];
        let gone = is_program("C:\\windows\\temp\\~gone.vbs", &home.join("~gone.vbs"));
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!((told, others, gone), ([true; 6], [false; 3], false));
    }
}
