//! A plugin as a child process in its job folder: time and output are bounded, and nothing of it outlives it.

use crate::job::{BadReport, Job, Report};
use crate::plugin::{Plugin, Run};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// What is kept of what a plugin prints.
const TAIL: usize = 4096;
/// After the plugin has ended, whoever still holds its output gets so long.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Why there is no valid report.
#[derive(Debug, thiserror::Error)]
pub enum PluginFailure {
    /// It could not be started.
    #[error("the plugin could not be started: {0}")]
    Start(std::io::Error),
    /// It took longer than it may.
    #[error("the plugin took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// It ended badly.
    #[error("the plugin ended with {status}{}", said(.stderr))]
    Exit {
        /// How.
        status: ExitStatus,
        /// The end of what it said.
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

/// Runs a plugin on a job. When this is dropped, or time is over, everything that the plugin started is killed.
pub async fn run(plugin: &Plugin, job: Job) -> Result<Report, PluginFailure> {
    let Run::Process(command) = &plugin.run else {
        return Err(PluginFailure::Start(std::io::Error::other("it runs in a VM only")));
    };
    let mut family = Family::start(command, &plugin.folder, job.folder()).map_err(PluginFailure::Start)?;
    let ended = tokio::time::timeout(plugin.limits.time, family.end()).await;
    drop(family);
    let (status, stderr) =
        ended.map_err(|_| PluginFailure::Timeout(plugin.limits.time))?.map_err(PluginFailure::Start)?;
    if !status.success() {
        return Err(PluginFailure::Exit { status, stderr });
    }
    let output_max = plugin.limits.output_bytes;
    let read = tokio::task::spawn_blocking(move || job.report(output_max));
    let read = read.await.map_err(|error| PluginFailure::Start(std::io::Error::other(error)))?;
    read.map_err(PluginFailure::Report)
}

/// A process and all that it starts, as long as they stay in its process group.
struct Family {
    child: Child,
    group: Option<rustix::process::Pid>,
}

impl Family {
    fn start(command: &[String], plugin: &Path, job: &Path) -> std::io::Result<Family> {
        let [program, arguments @ ..] = command else { return Err(std::io::Error::other("no program is named")) };
        // `./run` is beside the manifest, `weir` is this program, another bare name is looked up.
        let program = match program.as_str() {
            "weir" => std::env::current_exe()?.into_os_string(),
            path if path.contains('/') => plugin.join(path).into_os_string(),
            name => name.into(),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(job).current_dir(job);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", job).env("JOB_DIRECTORY", job);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn()?;
        let group = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        Ok(Family { child, group })
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
}

impl Drop for Family {
    fn drop(&mut self) {
        // The number of a group is not given again as long as one of its processes lives.
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Reads everything, so that the writer never waits, and keeps the end.
async fn tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let (mut kept, mut piece) = (Vec::new(), [0; 8192]);
    while let Ok(length @ 1..) = from.read(&mut piece).await {
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

    struct Bench {
        home: tempfile::TempDir,
        plugin: Plugin,
    }

    impl Bench {
        fn new(script: &str, more: &str) -> Bench {
            let home = tempfile::tempdir().unwrap();
            let run = home.path().join("run");
            std::fs::write(&run, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
            let manifest = format!("name = \"t\"\nversion = \"1\"\nexec = [\"./run\"]\n{more}");
            std::fs::write(home.path().join("plugin.toml"), manifest).unwrap();
            let plugin = Plugin::read(home.path()).unwrap();
            Bench { home, plugin }
        }

        async fn run(&self) -> Result<Report, PluginFailure> {
            let input = Input::new("a", "text/plain");
            let job = Job::prepare(&self.home.path().join("job"), &input, &mut &b"sample"[..]).unwrap();
            run(&self.plugin, job).await
        }

        /// Waits until the process that the plugin wrote down is no more.
        async fn child_is_gone(&self) {
            let child = std::fs::read_to_string(self.home.path().join("job/output/child")).unwrap();
            let gone = || {
                let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
                state.is_empty() || state.contains(") Z ")
            };
            while !gone() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_plugin_reads_its_input_and_leaves_a_report() {
        let script =
            r#"s=$(cat "$1/input/attachment"); printf '{"success":true,"full":"%s"}' "$s" > output/output.json"#;
        assert_eq!(Bench::new(script, "").run().await.unwrap().full.get(), "\"sample\"");
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told() {
        for (script, more, why) in [
            ("exit 3", "", "exit status: 3"),
            ("echo 'no such table' >&2; exit 1", "", "exit status: 1: no such table"),
            ("true", "", "left no output/output.json"),
            ("echo '{' > output/output.json", "", "not valid"),
            ("yes > output/output.json & sleep 0.2; kill $!; exit 0", "output_kib = 1", "longer than 1024 bytes"),
            (r#"echo '{"success":false,"errorMessage":"no"}' > output/output.json"#, "", "the plugin failed: no"),
        ] {
            let problem = Bench::new(script, more).run().await.unwrap_err().to_string();
            assert!(problem.contains(why), "{script}: {problem}");
        }
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let bench = Bench::new("sleep 600 & echo $! > output/child; sleep 600", "timeout_s = 1");
        assert!(matches!(bench.run().await, Err(PluginFailure::Timeout(_))));
        bench.child_is_gone().await;
    }

    #[tokio::test]
    async fn a_child_does_not_outlive_a_plugin_that_ended_well() {
        let script = r#"sleep 600 & echo $! > output/child; echo '{"success":true}' > output/output.json"#;
        let bench = Bench::new(script, "");
        assert!(bench.run().await.is_ok());
        bench.child_is_gone().await;
    }

    #[tokio::test]
    async fn floods_of_output_and_a_child_that_holds_it_open_do_not_matter() {
        let script = r#"sleep 600 & head -c 3000000 /dev/zero; echo '{"success":true}' > output/output.json"#;
        assert!(Bench::new(script, "").run().await.is_ok());
    }
}
