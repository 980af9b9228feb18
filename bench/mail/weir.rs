//! Weir as it is measured: SQLite and spool in one folder, all defaults but what the benchmark needs.

use crate::disk::Disk;
use crate::server::{Process, Server};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts Weir with everything going to `smarthost`.
pub(crate) fn start(program: &Path, disk: &Disk, smarthost: u16) -> Server {
    let folder = disk.folder("weir-");
    std::fs::write(folder.path().join("weir.toml"), configuration(smarthost)).expect("a configuration");
    up(program, folder)
}

/// Stops Weir and starts it again on its folder.
pub(crate) fn restart(program: &Path, server: Server) -> Server {
    up(program, server.stop())
}

fn configuration(smarthost: u16) -> String {
    format!(
        r#"[submission]
hostname = "relay.example.org"
listen = ["127.0.0.1:0"]
listen_tls = []
identity = "client-address"
[throttle]
learn_only = true
[delivery]
way = "smarthost"
hosts = ["127.0.0.1:{smarthost}"]
tls = "off"
"#
    )
}

fn up(program: &Path, folder: tempfile::TempDir) -> Server {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg(program).arg("up").arg("--data").arg(folder.path().join("data"));
    command.arg("--config").arg(folder.path().join("weir.toml")).stdout(Stdio::piped());
    let mut process = Process::start(&mut command);
    let lines = BufReader::new(process.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut port = None;
    for line in lines {
        let mut words = line.split_whitespace();
        if words.next() == Some("submission") {
            port = words.next().and_then(|address| address.rsplit_once(':')?.1.parse().ok());
        }
        if line.contains("Stop with Ctrl-C") {
            break;
        }
    }
    Server::new("Weir", port.expect("Weir says where it listens"), process, folder)
}
