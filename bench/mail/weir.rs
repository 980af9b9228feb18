//! Weir as it is measured: SQLite and spool in one folder, all defaults but what the benchmark needs.

use crate::disk::Disk;
use crate::server::{Server, weir_up};
use std::path::Path;

/// Starts Weir with everything going to `smarthost`.
pub(crate) fn start(program: &Path, disk: &Disk, smarthost: u16) -> Server {
    let folder = disk.folder("weir-");
    std::fs::write(folder.path().join("weir.toml"), configuration(smarthost)).expect("a configuration");
    weir_up(program, folder, "submission")
}

/// Stops Weir and starts it again on its folder.
pub(crate) fn restart(program: &Path, server: Server) -> Server {
    weir_up(program, server.stop(), "submission")
}

fn configuration(smarthost: u16) -> String {
    format!(
        r#"[submission]
hostname = "relay.example.org"
listen = ["127.0.0.1:0"]
listen_tls = []
identity = "client-address"
user_messages = 0
[throttle]
learn_only = true
[delivery]
way = "smarthost"
hosts = ["127.0.0.1:{smarthost}"]
tls = "off"
"#
    )
}
