//! Starts a second Weir for the demonstration, on free ports and with a data folder of its own. Its gates only observe.

use super::stage::Stage;
use crate::control::Control;
use crate::folder_args::FolderArgs;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The throttle only learns, the web gate only observes, and the scan has one queue for mail of all sizes. The lab has no such mode.
const CONFIGURATION: &str = r#"
[submission]
listen = ["127.0.0.1:0"]
listen_tls = ["127.0.0.1:0"]
[throttle]
learn_only = true
[scan]
strategy = "size-load"
limits = ["1GiB", "2GiB", "3GiB", "4GiB"]
auto_tune = false
[web]
listen = ["127.0.0.1:0"]
observe = true
[console]
enabled = false
"#;

/// The second Weir. When this is dropped, it is stopped and its folder is removed.
pub(super) struct Weir {
    child: Child,
    home: PathBuf,
}

impl Weir {
    /// Starts it and waits until it is up.
    pub(super) fn start() -> anyhow::Result<Weir> {
        let home = std::env::temp_dir().join(format!("weir-demo-{}", std::process::id()));
        std::fs::create_dir(&home).with_context(|| format!("{} cannot be created", home.display()))?;
        std::fs::write(home.join("weir.toml"), CONFIGURATION)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["up", "--demo", "--log", "off", "--data"]).arg(home.join("data"));
        command.arg("--config").arg(home.join("weir.toml"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut weir = Weir { child, home };
        let lines = weir.child.stdout.take().map(|out| BufReader::new(out).lines());
        let is_up = lines.into_iter().flatten().map_while(Result::ok).any(|line| line.contains("Stop with Ctrl-C"));
        ensure!(is_up, "the second Weir did not start");
        Ok(weir)
    }

    pub(super) fn stage(&self) -> anyhow::Result<Stage> {
        let data = self.home.join("data");
        let mut stage = Stage::new(Control::reach(&FolderArgs::of_folder(data.clone()))?, data)?;
        stage.lab = false;
        Ok(stage)
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}
