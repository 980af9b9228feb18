//! Runs a plugin as child processes inside the sandbox (the fence). Their time, memory, number and output are bounded, and none of them
//! survives the end of the plugin.

use super::fence::watch::{Excess, Watch, family};
use super::fence::{self, FenceSpec, Maker, NoFence};
use crate::cgroup::{ControlGroup, Hierarchy};
use crate::job::{BadReport, Job, Report};
use crate::plugin::{Plugin, Run};
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The longest line that a worker (a plugin process that keeps running) may send.
const WORD_MAX: u64 = 256;
/// How much of the output of a plugin is kept.
const TAIL: usize = 4096;
/// After this much output the plugin waits for a moment: one that only prints must not keep the lab busy with reading.
const PRINTED_AT_ONCE: usize = 1 << 20;
const PRINT_PAUSE: Duration = Duration::from_millis(20);
/// After the plugin has ended, other processes that still hold its output have this much time.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The kernel needs a moment to end all killed processes; only then can the job folder be removed.
const BURIAL: Duration = Duration::from_secs(2);

/// Why there is no valid report.
#[derive(Debug, thiserror::Error)]
pub enum PluginFailure {
    /// It could not be started.
    #[error("the plugin could not be started: {0}")]
    Start(std::io::Error),
    /// The sandbox cannot be made.
    #[error("{0}")]
    NoFence(#[from] NoFence),
    /// It took longer than it may.
    #[error("the plugin took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// It used more than it may.
    #[error("{0}")]
    Excess(#[from] Excess),
    /// It ended with an error.
    #[error("the plugin ended with {how}{}", said(.stderr))]
    Exit {
        /// How.
        how: String,
        /// The end of its error output.
        stderr: String,
    },
    /// It left no valid report.
    #[error("{0}")]
    Report(BadReport),
}

fn said(stderr: &str) -> String {
    let last = stderr.trim().lines().last().unwrap_or_default();
    if last.is_empty() { String::new() } else { format!(": {}", last.chars().take(300).collect::<String>()) }
}

/// How a process ended, in words. The sandbox reports a signal as shells do, by a code above 128.
fn how(status: ExitStatus) -> String {
    let signal = status.code().map_or(0, |code| code - 128);
    match signal {
        libc::SIGSYS => {
            "a system call that no plugin may make (the network, other processes, mounting): it was ended".into()
        }
        libc::SIGXCPU => "all its processor time used up".into(),
        libc::SIGXFSZ => "a file larger than it may write".into(),
        libc::SIGKILL => "a kill: it ran out of memory, or ended itself".into(),
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGABRT => format!("a crash (signal {signal})"),
        1..=64 => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

/// Runs a plugin on a job. When this is dropped, or time is over, everything that the plugin started is killed.
pub async fn run(plugin: &Plugin, job: &Job) -> Result<Report, PluginFailure> {
    let maker = tokio::task::spawn_blocking(Maker::of_this_machine).await;
    let maker = maker.map_err(|error| PluginFailure::Start(std::io::Error::other(error)))??;
    run_behind(maker, plugin, job).await
}

async fn run_behind(maker: Maker, plugin: &Plugin, job: &Job) -> Result<Report, PluginFailure> {
    let Run::Process(command) = &plugin.run else {
        return Err(PluginFailure::Start(std::io::Error::other("it runs in a VM only")));
    };
    let mut family = Family::start(maker, command, plugin, job.folder(), false).map_err(PluginFailure::Start)?;
    let (limits, watch) = (plugin.limits, family.watch(plugin, job.folder()));
    let ended = tokio::select! {
        ended = tokio::time::timeout(limits.time, family.end()) => match ended {
            Ok(ended) => ended.map_err(PluginFailure::Start),
            Err(_) => Err(PluginFailure::Timeout(limits.time)),
        },
        excess = watch.clone().look_out() => Err(excess.into()),
    };
    let ran_out = watch.ran_out();
    family.bury().await;
    let (status, stderr) = ended?;
    let left = job.clone();
    let read = tokio::task::spawn_blocking(move || {
        let too_much = ran_out.then_some(Excess::Memory(limits.memory_bytes)).or_else(|| watch.look_at_output());
        if let Some(excess) = too_much {
            return Err(excess.into());
        }
        match status.success() {
            true => left.report(limits.output_bytes).map_err(PluginFailure::Report),
            false if status.code() == Some(fence::NOT_STARTED.into()) => {
                let why = stderr.trim().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(PluginFailure::Start(std::io::Error::other(why)))
            }
            false => Err(PluginFailure::Exit { how: how(status), stderr }),
        }
    });
    read.await.map_err(|error| PluginFailure::Start(std::io::Error::other(error)))?
}

/// A process and everything that it starts: when the first is killed, so are all.
#[derive(Debug)]
pub(super) struct Family {
    child: Child,
    group: Option<ControlGroup>,
}

impl Family {
    /// Starts one. A process that keeps running gets its orders on standard input, and answers on its output.
    fn start(maker: Maker, command: &[String], plugin: &Plugin, job: &Path, stays: bool) -> std::io::Result<Family> {
        let limits = &plugin.limits;
        let group = Hierarchy::of_this_machine()
            .and_then(|all| all.group("plugin", limits.memory_bytes, limits.processes).ok());
        let groups = group.as_ref().map(ControlGroup::folders).unwrap_or_default();
        let spec = FenceSpec::of(plugin, job, maker)?.in_groups(groups);
        let mut command = Command::from(spec.command(&program(command, plugin, job)?));
        command.env("PATH", fence::PATH).env("HOME", "/tmp").env("TMPDIR", "/tmp").env("LANG", "C.UTF-8");
        // The allocator of our own plugins reserves address space in advance; here this is limited.
        command.env("JOB_DIRECTORY", std::path::absolute(job)?).env("MIMALLOC_ARENA_RESERVE", "65536").current_dir(job);
        let (input, errors) = if stays { (Stdio::piped(), Stdio::null()) } else { (Stdio::null(), Stdio::piped()) };
        command.stdin(input).stdout(Stdio::piped()).stderr(errors);
        command.process_group(0).kill_on_drop(true);
        Ok(Family { child: command.spawn()?, group })
    }

    fn watch(&self, plugin: &Plugin, job: &Path) -> Watch {
        let (memory_max, disk_max) = (plugin.limits.memory_bytes, plugin.limits.disk_bytes);
        let (first, kills) = (self.child.id().unwrap_or(0), self.group.as_ref().map(ControlGroup::kills));
        Watch { first, output: job.join("output"), kills, memory_max, disk_max }
    }

    async fn end(&mut self) -> std::io::Result<(ExitStatus, String)> {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let printed = tokio::spawn(async move { tokio::join!(tail(out), tail(err)) });
        let status = self.child.wait().await?;
        let stderr = match tokio::time::timeout(LAST_WORDS, printed).await {
            Ok(Ok((_, stderr))) => stderr,
            _ => String::new(),
        };
        Ok((status, stderr))
    }

    /// Kills what is left and waits until the kernel has ended it.
    async fn bury(mut self) {
        let members = self.child.id().map(family).unwrap_or_default();
        let _ = self.child.start_kill();
        let _ = self.child.wait().await;
        let all_gone = async {
            let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
            while members.iter().any(lives) || self.group.as_ref().is_some_and(|group| !group.is_empty()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(BURIAL, all_gone).await.is_err() {
            tracing::warn!("processes of a plugin that was killed are still there");
        }
    }
}

/// A plugin's process that keeps running for the next sample. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Staying {
    /// None when it is gone.
    pub(super) family: Option<Family>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Staying {
    /// Starts one in the folder of a job, which is filled later.
    pub(super) async fn start(plugin: &Plugin, job: &Job) -> Result<Staying, PluginFailure> {
        let maker = tokio::task::spawn_blocking(Maker::of_this_machine).await;
        let maker = maker.map_err(|error| PluginFailure::Start(std::io::Error::other(error)))??;
        let none = || PluginFailure::Start(std::io::Error::other("it has no standard input or output"));
        let Run::Process(command) = &plugin.run else { return Err(none()) };
        let mut family = Family::start(maker, command, plugin, job.folder(), true).map_err(PluginFailure::Start)?;
        let (input, output) = (family.child.stdin.take(), family.child.stdout.take());
        let (input, output) = input.zip(output).ok_or_else(none)?;
        Ok(Staying { family: Some(family), input, output: BufReader::new(output) })
    }

    /// Sends it one line.
    pub(super) async fn say(&mut self, line: &str) -> Result<(), PluginFailure> {
        let said = async {
            self.input.write_all(format!("{line}\n").as_bytes()).await?;
            self.input.flush().await
        };
        said.await.map_err(PluginFailure::Start)
    }

    /// Waits until it sends this line, as long as it uses no more than it may.
    pub(super) async fn hears(
        &mut self,
        word: &str,
        plugin: &Plugin,
        job: &Path,
        patience: Duration,
    ) -> Result<(), PluginFailure> {
        let Some(family) = &self.family else { return Err(gone("it is gone")) };
        let watch = family.watch(plugin, job);
        let mut line = Vec::new();
        let mut output = (&mut self.output).take(WORD_MAX);
        let heard = tokio::select! {
            heard = tokio::time::timeout(patience, output.read_until(b'\n', &mut line)) => heard,
            excess = watch.clone().look_out() => return Err(excess.into()),
        };
        heard.map_err(|_| PluginFailure::Timeout(patience))?.map_err(PluginFailure::Start)?;
        if String::from_utf8_lossy(&line).trim_end() != word {
            return Err(gone("it says something else than it was asked, or has ended"));
        }
        let looked = tokio::task::spawn_blocking(move || watch.look_at_output()).await;
        match looked {
            Ok(Some(excess)) => Err(excess.into()),
            _ => Ok(()),
        }
    }
}

fn gone(why: &str) -> PluginFailure {
    PluginFailure::Start(std::io::Error::other(why.to_owned()))
}

/// The program and its arguments: `./run` is beside the manifest, `weir` is this program, any other name without a path is looked up.
fn program(command: &[String], plugin: &Plugin, job: &Path) -> std::io::Result<Vec<OsString>> {
    let [program, arguments @ ..] = command else { return Err(std::io::Error::other("no program is named")) };
    let job = std::path::absolute(job)?;
    let program = match program.as_str() {
        "weir" => std::env::current_exe()?.into_os_string(),
        path if path.contains('/') => {
            std::path::absolute(plugin.folder.join(path.trim_start_matches("./")))?.into_os_string()
        }
        name => name.into(),
    };
    let arguments = arguments.iter().map(Into::into).chain([job.into_os_string()]);
    Ok(std::iter::once(program).chain(arguments).collect())
}

/// Reads everything, at 50 MiB a second at most, and keeps the end.
async fn tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let (mut kept, mut piece, mut read) = (Vec::new(), vec![0; 64 << 10], 0);
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        read += length;
        if read >= PRINTED_AT_ONCE {
            read = 0;
            tokio::time::sleep(PRINT_PAUSE).await;
        }
        kept.extend_from_slice(&piece[..length]);
        if kept.len() > 2 * TAIL {
            kept.drain(..kept.len() - TAIL);
        }
    }
    let start = kept.len().saturating_sub(TAIL);
    String::from_utf8_lossy(&kept[start..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Input;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct Bench {
        home: tempfile::TempDir,
        plugin: Plugin,
    }

    impl Bench {
        fn new(script: &str, more: &str) -> Bench {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join("plugin");
            std::fs::create_dir(&folder).unwrap();
            let run = folder.join("run");
            std::fs::write(&run, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
            let manifest = format!("name = \"t\"\nversion = \"1\"\nexec = [\"./run\"]\n{more}");
            std::fs::write(folder.join("plugin.toml"), manifest).unwrap();
            let plugin = Plugin::read(&folder).unwrap();
            Bench { home, plugin }
        }

        fn python(script: &str, more: &str) -> Bench {
            let bench = Bench::new("", more);
            let run = bench.plugin.folder.join("run");
            std::fs::write(run, format!("#!/usr/bin/python3\nimport os, sys, socket, ctypes, time\n{script}\n"))
                .unwrap();
            bench
        }

        fn job(&self, name: &str) -> Job {
            let input = Input::new("a", "text/plain");
            Job::prepare(&self.home.path().join(name), &input, &mut &b"sample"[..]).unwrap()
        }

        /// In the sandbox that this machine supports.
        async fn run(&self) -> Result<Report, PluginFailure> {
            run(&self.plugin, &self.job("job")).await
        }

        /// In both sandboxes that there are: returns their output, which must be the same.
        async fn run_both(&self) -> Result<String, String> {
            let mut said = Vec::new();
            for (maker, name) in [(Maker::Bubblewrap, "wrapped"), (Maker::Ourselves, "own")] {
                let ended = run_behind(maker, &self.plugin, &self.job(name)).await;
                said.push(ended.map(|report| report.full.get().to_owned()).map_err(|failure| failure.to_string()));
            }
            assert_eq!(said[0], said[1], "bubblewrap and our own fence");
            said.remove(0)
        }
    }

    /// Processes of this machine whose command has this word in it.
    fn processes_with(word: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let has = |path: &PathBuf| {
            std::fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
        };
        all.filter(|path| has(path) && !path.ends_with(std::process::id().to_string())).collect()
    }

    async fn all_gone(word: &str) {
        for _ in 0..200 {
            if processes_with(word).is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("still there: {:?}", processes_with(word));
    }

    const OK: &str = r#"echo '{"success":true}' > output/output.json"#;

    #[tokio::test]
    async fn a_plugin_reads_its_input_and_leaves_a_report() {
        let script =
            r#"s=$(cat "$1/input/attachment"); printf '{"success":true,"full":"%s"}' "$s" > output/output.json"#;
        assert_eq!(Bench::new(script, "").run_both().await.unwrap(), "\"sample\"");
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told() {
        for (script, more, why) in [
            ("exit 3", "", "exit status: 3"),
            ("./input/attachment", "", "the plugin ended with exit status: 126"),
            ("echo 'no such table' >&2; exit 1", "", "exit status: 1: no such table"),
            ("true", "", "left no output/output.json"),
            ("echo '{' > output/output.json", "", "not valid"),
            ("yes > output/output.json & sleep 0.2; kill $!; exit 0", "output_kib = 1", "longer than 1024 bytes"),
            (r#"echo '{"success":false,"errorMessage":"no"}' > output/output.json"#, "", "the plugin failed: no"),
            ("kill -SEGV $$", "", "a crash (signal 11)"),
        ] {
            let problem = Bench::new(script, more).run().await.unwrap_err().to_string();
            assert!(problem.contains(why), "{script}: {problem}");
        }
        let bench = Bench::new("", "");
        std::fs::remove_file(bench.plugin.folder.join("run")).unwrap();
        let problem = bench.run().await.unwrap_err().to_string();
        assert!(problem.contains("run cannot be started: No such file"), "{problem}");
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let bench = Bench::new("sleep 98761 & sleep 98761", "timeout_s = 1");
        assert_eq!(bench.run_both().await.unwrap_err(), "the plugin took longer than 1 s");
        all_gone("98761").await;
    }

    #[tokio::test]
    async fn who_forks_twice_and_stays_does_not_outlive_a_plugin_that_ended_well() {
        let script = format!("setsid sh -c '(setsid sleep 98762 &) &' ; (sleep 98762 &) ; sleep 98762 & {OK}");
        assert!(Bench::new(&script, "").run_both().await.is_ok());
        all_gone("98762").await;
    }

    #[tokio::test]
    async fn floods_of_output_and_a_child_that_holds_it_open_do_not_matter() {
        let script = format!("sleep 98763 & head -c 30000000 /dev/zero; {OK}");
        assert!(Bench::new(&script, "").run_both().await.is_ok());
        let endless = Bench::new("yes", "timeout_s = 1");
        assert_eq!(endless.run_both().await.unwrap_err(), "the plugin took longer than 1 s");
        all_gone("98763").await;
    }

    #[tokio::test]
    async fn who_forks_for_ever_is_stopped_and_the_machine_goes_on() {
        let script =
            "import threading\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(98764)\n  except OSError: pass";
        let bench = Bench::python(script, "timeout_s = 2\nprocesses = 32");
        assert_eq!(bench.run_both().await.unwrap_err(), "the plugin took longer than 2 s");
        assert!(std::process::Command::new("true").status().unwrap().success());
        // Its processes print all at once: which output is read is chance.
        let bomb = Bench::new("exec 2>/dev/null; f() { f | f & f; }; f", "timeout_s = 2\nprocesses = 32");
        for (maker, name) in [(Maker::Bubblewrap, "wrapped"), (Maker::Ourselves, "own")] {
            assert!(run_behind(maker, &bomb.plugin, &bomb.job(name)).await.is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_family_has_the_processes_that_it_may() {
        let script = format!("n=0; i=0; while [ $i -lt 200 ]; do i=$((i+1)); sleep 98765 & done 2>/dev/null; {OK}");
        let bench = Bench::new(&script, "processes = 16\ntimeout_s = 20");
        // A shell that cannot fork gives up.
        assert!(bench.run().await.is_err());
        all_gone("98765").await;
    }

    #[tokio::test]
    async fn who_eats_memory_is_stopped() {
        let one = Bench::python("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_mib = 64\ntimeout_s = 20");
        let problem = one.run().await.unwrap_err().to_string();
        assert!(problem.contains("MemoryError") || problem.contains("memory"), "{problem}");
        // Each uses as much as one may, and all together use too much.
        let script = "for i in range(6):\n  if os.fork() == 0:\n    x = bytearray(os.urandom(1 << 20) * 40); time.sleep(20); os._exit(0)\nos.wait(); time.sleep(20)";
        let many = Bench::python(script, "memory_mib = 128\ntimeout_s = 15");
        assert_eq!(
            many.run_both().await.unwrap_err(),
            "the plugin and what it started used more than 128 MiB of memory"
        );
    }

    #[tokio::test]
    async fn who_fills_the_disk_is_stopped() {
        let one = Bench::new("head -c 100000000 /dev/zero > output/big; exit 1", "disk_mib = 10");
        assert!(one.run_both().await.is_err());
        let many = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > output/$i; done";
        let problem = Bench::new(many, "disk_mib = 20\ntimeout_s = 120").run().await.unwrap_err().to_string();
        assert_eq!(problem, "the plugin wrote more than 20 MiB into output/");
        let files = "for i in range(10000): open('output/%d' % i, 'w').close()\ntime.sleep(120)";
        let problem = Bench::python(files, "timeout_s = 120").run().await.unwrap_err().to_string();
        assert_eq!(problem, "the plugin made more than 4096 files in output/");
        // It must not be able to fill anything except its output and its own folders.
        let elsewhere = "w=; for d in / /usr /etc /dev /var input .; do (echo x > $d/x) 2>/dev/null && w=\"$w $d\"; done; \
            head -c 50000000 /dev/zero > /tmp/x 2>/dev/null; echo wrote:$w $(($(stat -c %s /tmp/x) / 1048576)) >&2; exit 1";
        let problem = Bench::new(elsewhere, "disk_mib = 10").run_both().await.unwrap_err();
        assert!(problem.ends_with("wrote: 10"), "{problem}");
    }

    #[tokio::test]
    async fn who_tries_the_network_is_ended_and_told() {
        let forbidden = "the plugin ended with a system call that no plugin may make";
        for attempt in [
            "socket.create_connection(('127.0.0.1', 22), 1)",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
            "socket.socket(socket.AF_INET6)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "socket.getaddrinfo('example.org', 80)",
        ] {
            let problem = Bench::python(attempt, "").run().await.unwrap_err().to_string();
            assert!(problem.contains(forbidden) || problem.contains("gaierror"), "{attempt}: {problem}");
        }
        // Even where a call would go through, there is nothing at the other end.
        let script = "ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev >&2; exit 1";
        assert!(Bench::new(script, "").run_both().await.unwrap_err().ends_with(": 1"), "only its own loopback");
    }

    #[tokio::test]
    async fn who_looks_into_others_is_ended_and_who_kills_everything_kills_itself() {
        let forbidden = "the plugin ended with a system call that no plugin may make";
        for call in [
            "libc.ptrace(16, os.getppid(), 0, 0)",
            "libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0)",
            "libc.process_vm_readv(1, 0, 0, 0, 0, 0)",
        ] {
            let bench = Bench::python(&format!("libc = ctypes.CDLL(None); {call}"), "");
            assert!(bench.run_both().await.unwrap_err().contains(forbidden), "{call}");
        }
        let kills = Bench::new(
            &format!("kill -9 -1; kill -9 {} {}; {OK}", std::process::id(), std::os::unix::process::parent_id()),
            "timeout_s = 5",
        );
        let _ = kills.run_both().await;
        let escapes = "libc = ctypes.CDLL(None, use_errno=True); r = [libc.unshare(0x10000000), libc.setuid(0), libc.syscall(250, 0, 0)]; sys.exit(str(r))";
        assert!(Bench::python(escapes, "").run().await.unwrap_err().to_string().contains("-1, -1, -1"));
    }

    #[tokio::test]
    async fn what_is_not_its_own_cannot_be_read() {
        let bench = Bench::new("", "");
        let secret = bench.home.path().join("store/samples");
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(secret.join("key"), "secret").unwrap();
        let other = bench.job("other");
        let tried = [
            secret.join("key"),
            other.folder().join("input/attachment"),
            "/etc/shadow".into(),
            "/root/.ssh".into(),
            "/proc/1/environ".into(),
        ];
        let tried = tried.map(|path| path.display().to_string()).join(" ");
        // Our own program is there, wherever it was built: /root/weir/target/…, say.
        let program = std::env::current_exe().unwrap();
        let ours = program.iter().nth(2).unwrap().display().to_string();
        let script = format!(
            "r=; for f in {tried}; do cat $f >/dev/null 2>&1 && r=\"$r $f\"; done; \
             echo read:$r listed: $(ls {}; ls -A /home /root /var /srv 2>/dev/null | grep -vx -e '' -e '/.*:' -e '{ours}') \
             processes: $(ls /proc | grep -c '^[0-9]') >&2; exit 1",
            bench.home.path().display()
        );
        std::fs::write(bench.plugin.folder.join("run"), format!("#!/bin/sh\n{script}\n")).unwrap();
        for (maker, name) in [(Maker::Bubblewrap, "job1"), (Maker::Ourselves, "job2")] {
            let problem = run_behind(maker, &bench.plugin, &bench.job(name)).await.unwrap_err().to_string();
            let (seen, processes) = problem.rsplit_once(" processes: ").unwrap_or_default();
            assert!(processes.parse::<u32>().is_ok_and(|count| count < 8), "{maker:?}: {problem}");
            assert!(seen.ends_with(&format!("read: listed: {name} plugin")), "{maker:?}: {problem}");
        }
    }

    #[tokio::test]
    async fn sockets_and_folders_that_are_named_are_there() {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let socket = home.path().join("service.sock");
        let service = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        std::thread::spawn(move || {
            for connection in service.incoming().flatten() {
                let _ = std::io::Write::write_all(&mut &connection, b"hello");
            }
        });
        std::fs::write(home.path().join("rules"), "rule").unwrap();
        let script = format!(
            "s = socket.socket(socket.AF_UNIX); s.connect('{}'); said = s.recv(9).decode() + open('{}').read()\nopen('output/output.json', 'w').write('{{\"success\": true, \"full\": \"%s\"}}' % said)",
            socket.display(),
            home.path().join("rules").display()
        );
        let more = format!("sockets = [{:?}]\nreads = [{:?}]", socket, home.path().join("rules"));
        assert_eq!(Bench::python(&script, &more).run_both().await.unwrap(), "\"hellorule\"");
        assert!(Bench::python(&script, "").run_both().await.is_err(), "not without being named");
    }
}
