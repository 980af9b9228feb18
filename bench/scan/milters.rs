//! Postfix that has its mail scanned by a milter: by clamav-milter, or by Weir's, which ask the same clamd.

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
/// As Debian sets it up, but for where everything is, and that infected mail is taken and thrown away: the client hears the same from all sides.
const CLAMAV_MILTER: &str = "Foreground yes
MilterSocket inet:MILTER@127.0.0.1
ClamdSocket unix:CLAMD
TemporaryDirectory /dev/shm
OnInfected Blackhole
OnFail Defer
MaxFileSize 50M
";

/// Postfix, clamav-milter, clamd.
pub(crate) fn clamav(disk: &Disk, clamd: &Path, smarthost: u16) -> Side {
    let (folder, port) = (disk.folder("clamav-milter-"), weir_peers::free_port());
    let text = CLAMAV_MILTER.replace("MILTER", &port.to_string()).replace("CLAMD", &clamd.display().to_string());
    let file = folder.path().join("clamav-milter.conf");
    std::fs::write(&file, text).expect("the folder is ours");
    let mut command = Command::new("clamav-milter");
    command.arg("--config-file").arg(file).env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::start(&mut command);
    await_port(port);
    let milter = Server::new("clamav-milter", port, process, folder);
    Side::new("Postfix, clamav-milter", vec![asking(disk, smarthost, port), milter])
}

/// Postfix, Weir, clamd.
pub(crate) fn weir(weir: Server, milter: u16, (disk, smarthost): (&Disk, u16)) -> Side {
    Side::new("Postfix, Weir's milter", vec![asking(disk, smarthost, milter), weir])
}

fn asking(disk: &Disk, smarthost: u16, milter: u16) -> Server {
    postfix::start_with(disk, smarthost, (&MAIN.replace("MILTER", &milter.to_string()), ""))
}
