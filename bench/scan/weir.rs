//! Weir as it is measured: all defaults but what the benchmark needs.

use crate::disk::Disk;
use crate::server::{Server, weir_up};
use crate::side::Side;
use crate::sink::await_port;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How Weir scans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// ClamAV, YARA and the attachment policy, five feeds.
    Whole,
    /// ClamAV alone.
    ClamavAlone,
    /// As whole, but without limits by size: first come, first served by the same five workers.
    FirstCome,
    /// Two feeds: a worker for what is small, and one for what is large.
    TwoFeeds,
    /// First come, first served by two workers.
    TwoInLine,
}

impl Setup {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setup::Whole => "Weir",
            Setup::ClamavAlone => "Weir, ClamAV alone",
            Setup::FirstCome => "Weir, no limits",
            Setup::TwoFeeds => "Weir, two feeds",
            Setup::TwoInLine => "Weir, two workers, no limits",
        }
    }

    /// More for `[scan]`, and other sections.
    fn lines(self) -> (&'static str, &'static str) {
        match self {
            Setup::Whole => ("", ""),
            Setup::ClamavAlone => ("", "[scan.yara]\nembedded = false\n[scan.attachments]\nenabled = false"),
            // Below the first limit everything joins the least loaded of all feeds and waits there in order.
            Setup::FirstCome => {
                ("strategy = \"size-load\"\nauto_tune = false\nlimits = [\"1GiB\", \"2GiB\", \"3GiB\", \"4GiB\"]", "")
            }
            Setup::TwoFeeds => ("auto_tune = false\nlimits = [\"64KiB\"]", ""),
            Setup::TwoInLine => ("strategy = \"size-load\"\nauto_tune = false\nlimits = [\"1GiB\"]", ""),
        }
    }
}

/// A running Weir.
pub(crate) struct Weir {
    pub(crate) side: Side,
    program: PathBuf,
    data: PathBuf,
}

impl Weir {
    /// Starts Weir with what is clean going to `smarthost`.
    pub(crate) fn start(program: &Path, setup: Setup, (disk, clamd, smarthost): (&Disk, &Path, u16)) -> Weir {
        let folder = disk.folder("weir-");
        let text = configuration(clamd, smarthost, setup.lines());
        std::fs::write(folder.path().join("weir.toml"), text).expect("a configuration");
        let data = folder.path().join("data");
        let side = Side::new(setup.name(), vec![weir_up(program, folder, "inbound")]);
        Weir { side, program: program.to_owned(), data }
    }

    /// The mean wait for a worker since the start, in seconds, over all messages.
    pub(crate) fn mean_wait_s(&self) -> f64 {
        let output = Command::new(&self.program).args(["feeds", "status", "--json", "--data"]).arg(&self.data).output();
        let output = output.expect("Weir answers");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let classes = status["classes"].as_array().expect("classes of size");
        let of = |class: &serde_json::Value| {
            let scanned = class["scanned"].as_f64().unwrap_or(0.0);
            (scanned, scanned * class["wait"]["mean_s"].as_f64().unwrap_or(0.0))
        };
        let (scanned, waited) = classes.iter().map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        waited / scanned
    }
}

/// Weir in clamd's place, and as a milter: the port of the latter, and where files can be asked about.
pub(crate) fn doors(program: &Path, (disk, clamd): (&Disk, &Path)) -> (Server, u16, PathBuf) {
    let (folder, milter) = (disk.folder("weir-"), weir_peers::free_port());
    let socket = folder.path().join("clamd.ctl");
    let text = format!(
        "[submission]\nhostname = \"relay.example.org\"\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n\
         [scan]\nenabled = true\n[scan.clamav]\naddresses = [\"unix:{}\"]\n\
         [scan.clamd_door]\nlisten_unix = {socket:?}\n\
         [milter]\nlisten = [\"127.0.0.1:{milter}\"]\nthrottle = false\nscan = true\non_found = \"quarantine\"\n",
        clamd.display()
    );
    std::fs::write(folder.path().join("weir.toml"), text).expect("a configuration");
    let server = weir_up(program, folder, "submission");
    await_port(milter);
    (server, milter, socket)
}

fn configuration(clamd: &Path, smarthost: u16, (scan, more): (&str, &str)) -> String {
    format!(
        r#"[submission]
hostname = "relay.example.org"
listen = ["127.0.0.1:0"]
listen_tls = []
[inbound]
listen = ["127.0.0.1:0"]
domains = ["example.net"]
recipients = "any"
authenticate = false
[delivery]
way = "smarthost"
hosts = ["127.0.0.1:{smarthost}"]
tls = "off"
[scan]
enabled = true
{scan}
[scan.clamav]
addresses = ["unix:{}"]
{more}
"#,
        clamd.display()
    )
}
