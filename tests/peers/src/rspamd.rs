//! A private Rspamd with the rules of its package, on a Unix socket of its own. It asks no other server.

use crate::spawn_bound;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server: one normal worker.
#[derive(Debug)]
pub struct Rspamd {
    folder: tempfile::TempDir,
    server: Child,
}

/// A rule of the site: the field `X-Wish` of a message says what Rspamd shall do with it (`soft reject`, `add header` …).
const WISHES: &str = "rspamd_config:register_symbol({ name = 'WISH', type = 'prefilter', callback = function(task)\n\
    local wish = task:get_header('X-Wish')\n\
    if wish then task:set_pre_result(wish, 'as the message wishes', 'weir') end\nend })\n";
/// The header fields that it adds to mail, also to mail from this machine and from users.
const HEADERS: &str = "use = [\"x-spamd-bar\"];\nskip_local = false;\nskip_authenticated = false;\n";

impl Rspamd {
    /// Starts one and waits until it answers.
    pub fn start() -> Rspamd {
        Rspamd::start_with(&[])
    }

    /// Starts one with these files, each of which configures a module.
    pub fn start_with(modules: &[(&str, &str)]) -> Rspamd {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Its own list of ten thousand suffixes would take half a minute to compile.
        std::fs::write(folder.path().join("suffixes"), "com\norg\nnet\nexample\n").expect("a list");
        std::fs::write(folder.path().join("rspamd.conf"), configuration(folder.path())).expect("a configuration");
        std::fs::write(folder.path().join("rspamd.local.lua"), WISHES).expect("a rule");
        std::fs::create_dir(folder.path().join("local.d")).expect("a folder");
        std::fs::write(folder.path().join("local.d/milter_headers.conf"), HEADERS).expect("a module's configuration");
        for (name, text) in modules {
            std::fs::write(folder.path().join("local.d").join(name), text).expect("a module's configuration");
        }
        let at = folder.path().display();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=TERM", "rspamd", "-f", "-i", "-c"]).arg(folder.path().join("rspamd.conf"));
        command.args([format!("--var=DBDIR={at}"), format!("--var=RUNDIR={at}"), format!("--var=LOGDIR={at}")]);
        command.arg(format!("--var=LOCAL_CONFDIR={at}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let rspamd = Rspamd { server: spawn_bound(command), folder };
        let deadline = Instant::now() + Duration::from_secs(120);
        while !answers(&rspamd.socket()) {
            assert!(Instant::now() < deadline, "rspamd did not start: is it installed? Run `make setup`");
            std::thread::sleep(Duration::from_millis(50));
        }
        rspamd
    }

    /// What it says about a message: JSON, after an HTTP header.
    pub fn check(&self, message: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        let head = format!("POST /checkv2 HTTP/1.0\r\nContent-Length: {}\r\n\r\n", message.len());
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.write_all(message.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it answers");
        reply
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("rspamd.sock")
    }
}

impl Drop for Rspamd {
    fn drop(&mut self) {
        // Terminated in an orderly way, it ends its workers; if it were killed, they would stay.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

fn answers(socket: &Path) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /ping HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    ask().is_ok_and(|reply| reply.contains("pong"))
}

fn configuration(folder: &Path) -> String {
    let at = folder.display();
    // Its own file of options is not included, because options in it cannot be replaced, and its list of suffixes takes long.
    format!(
        ".include \"$CONFDIR/common.conf\"\n\
         options {{\n  filters = \"chartable,dkim,regexp\";\n  control_socket = \"{at}/control.sock mode=0600\";\n  tempdir = \"{at}\";\n  \
         cache_file = \"{at}/symbols.cache\";\n  url_tld = \"{at}/suffixes\";\n  disable_hyperscan = true;\n  \
         dns {{ nameserver = [\"127.0.0.1:1\"]; timeout = 0.1s; retransmits = 1; }}\n}}\n\
         logging {{ type = \"file\"; filename = \"{at}/log\"; }}\n\
         worker \"normal\" {{ mime = true; count = 1; bind_socket = \"{at}/rspamd.sock mode=0666\"; }}\n"
    )
}
