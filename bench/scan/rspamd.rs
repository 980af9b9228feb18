//! Postfix with Rspamd as its milter, both private, with the rules of Rspamd's package and clamd by its antivirus module.
//!
//! The way of Rspamd's own guide: a proxy worker in milter mode that scans by itself, four of them. It asks no name server and has no
//! Redis, so what needs either (DNS lists, Bayes, greylisting) is off: that is in its favour. Infected mail is discarded, so that the client
//! hears the same from all sides.

use crate::disk::Disk;
use crate::postfix;
use crate::server::{Process, Server};
use crate::side::Side;
use crate::sink::await_port;
use std::path::Path;
use std::process::{Command, Stdio};

const MAIN: &str = "
message_size_limit = 50000000
smtpd_milters = inet:127.0.0.1:MILTER
milter_default_action = tempfail
milter_content_timeout = 300s
";
const RSPAMD: &str = r#".include "$CONFDIR/common.conf"
options {
  filters = "chartable,dkim,regexp";
  control_socket = "FOLDER/control.sock mode=0600";
  tempdir = "FOLDER";
  cache_file = "FOLDER/symbols.cache";
  url_tld = "FOLDER/suffixes";
  disable_hyperscan = true;
  max_message = 50000000;
  task_timeout = 120s;
  dns { nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }
}
logging { type = "file"; filename = "FOLDER/log"; level = "warning"; }
worker "rspamd_proxy" {
  milter = yes;
  timeout = 120s;
  discard_on_reject = true;
  upstream "local" { default = yes; self_scan = yes; }
  count = 4;
  bind_socket = "127.0.0.1:MILTER";
}
"#;
const ANTIVIRUS: &str = r#"clamav {
  type = "clamav";
  servers = "CLAMD";
  action = "reject";
  symbol = "CLAM_VIRUS";
  scan_mime_parts = false;
  max_size = 50000000;
  timeout = 60.0;
}
"#;

/// Starts both, with what is clean going to `smarthost`.
pub(crate) fn start(disk: &Disk, clamd: &Path, smarthost: u16) -> Side {
    let milter = weir_peers::free_port();
    let rspamd = rspamd(disk, milter, clamd);
    let postfix = postfix::start_with(disk, smarthost, (&MAIN.replace("MILTER", &milter.to_string()), ""));
    Side::new("Postfix, Rspamd", vec![postfix, rspamd])
}

fn rspamd(disk: &Disk, port: u16, clamd: &Path) -> Server {
    let folder = disk.folder("rspamd-");
    let at = folder.path().display().to_string();
    let write = |name: &str, text: &str| {
        let text = text.replace("FOLDER", &at).replace("MILTER", &port.to_string());
        let text = text.replace("CLAMD", &clamd.display().to_string());
        std::fs::write(folder.path().join(name), text).expect("the folder is ours");
    };
    std::fs::create_dir(folder.path().join("local.d")).expect("the folder is ours");
    write("rspamd.conf", RSPAMD);
    // Its own list of ten thousand suffixes takes half a minute to compile.
    write("suffixes", "com\norg\nnet\nexample\n");
    write("local.d/antivirus.conf", ANTIVIRUS);
    let mut command = Command::new("rspamd");
    command.args(["-f", "-i", "-c"]).arg(folder.path().join("rspamd.conf"));
    let places = ["DBDIR", "RUNDIR", "LOGDIR", "LOCAL_CONFDIR"];
    command.args(places.map(|place| format!("--var={place}={at}")));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::start(&mut command);
    await_port(port);
    Server::new("rspamd", port, process, folder)
}
