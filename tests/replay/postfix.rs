//! A private Postfix in a temporary folder: its own configuration, queue, log and mailboxes, without a network.
//!
//! Mail goes in through Unix sockets (or the sendmail command) and comes out in mailboxes in the same folder. The system's Postfix is not
//! touched. Dropping the value stops the daemons, even if a test fails.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(crate) struct Postfix {
    folder: tempfile::TempDir,
}

/// Everything for example.org is accepted. `archive` gets a copy of every mail, in an mbox and in a Maildir. `team` is an alias that is
/// expanded before the queue, `club` one that is expanded by forwarding. slow.example.org never answers.
const MAIN: &str = "compatibility_level = 3.6
queue_directory = FOLDER/queue
data_directory = FOLDER/data
maillog_file = FOLDER/mail.log
maillog_file_prefixes = FOLDER
virtual_mailbox_base = FOLDER/boxes
mail_spool_directory = FOLDER/boxes
myhostname = mail.example.org
mydestination = lists.example.org
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtputf8_enable = no
in_flow_delay = 0
alias_database =
alias_maps = inline:{ { club = bob@example.org } }
local_recipient_maps =
virtual_alias_maps = inline:{ { team@example.org = dora@example.org },
  { archive@example.org = mbox@example.org, maildir@example.org } }
virtual_mailbox_domains = example.org
virtual_mailbox_maps = inline:{ { mbox@example.org = sent.mbox }, { maildir@example.org = sent/ }, { @example.org = rest } }
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
transport_maps = inline:{ { slow.example.org = retry:4.4.1 no answer } }
always_bcc = archive@example.org
mynetworks = 127.0.0.0/8
smtpd_authorized_xclient_hosts = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
";
/// `smtp-in` makes short queue ids; `submit` makes long ones, and logs under the name of a submission service.
const MASTER: &str = "smtp-in unix n - n - - smtpd
submit unix n - n - - smtpd -o syslog_name=postfix/submission -o cleanup_service_name=cleanup-long
cleanup-long unix n - n - 0 cleanup -o enable_long_queue_ids=yes
pickup unix n - n 1 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
local unix - n n - - local
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
";
const PATIENCE: Duration = Duration::from_secs(15);

impl Postfix {
    pub(crate) fn start() -> Postfix {
        let folder = tempfile::Builder::new().prefix("weir-postfix-").tempdir_in("/tmp").unwrap();
        let root = fs::metadata(folder.path()).unwrap().uid() == 0;
        assert!(root, "this test starts a Postfix of its own: run `make setup`, then the tests as root");
        configure(folder.path());
        let postfix = Postfix { folder };
        let started = postfix.command("postfix", &["start"]);
        assert!(started.status.success(), "Postfix did not start: {started:?}\n{}", postfix.log());
        postfix
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("mail.log")).unwrap_or_default()
    }

    /// Opens an SMTP session on one of the sockets, as a user who has logged in.
    pub(crate) fn session(&self, socket: &str, login: &str) -> Session {
        let stream = UnixStream::connect(self.path("queue/public").join(socket)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut session = Session { stream: BufReader::new(stream) };
        session.answer();
        session.say("EHLO pc.example.org");
        session.say(&format!("XCLIENT LOGIN={login}"));
        session.say("EHLO pc.example.org");
        session
    }

    /// Submits a mail with the sendmail command.
    pub(crate) fn sendmail(&self, from: &str, to: &[&str], mail: &str) {
        let mut command = self.prepare("sendmail", "-C");
        let mut child = command.args(["-f", from]).args(to).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(mail.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Runs one of Postfix's commands on this instance.
    pub(crate) fn run(&self, program: &str, args: &[&str]) {
        let output = self.command(program, args);
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
    }

    /// Waits until the log contains this many lines with these words.
    pub(crate) fn wait_for(&self, words: &str, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.log().lines().filter(|line| line.contains(words)).count() < count {
            assert!(Instant::now() < deadline, "no {count} times {words:?} in the log:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn command(&self, program: &str, args: &[&str]) -> Output {
        self.prepare(program, "-c").args(args).output().expect("Postfix is installed: run `make setup`")
    }

    fn prepare(&self, program: &str, option: &str) -> Command {
        let mut command = Command::new(Path::new("/usr/sbin").join(program));
        command.arg(option).arg(self.path("etc")).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // Nothing here may panic, because this also runs after a test has failed.
        let stopped = self.prepare("postfix", "-c").arg("stop").output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            let _ = self.prepare("postfix", "-c").arg("abort").output();
        }
    }
}

fn configure(folder: &Path) {
    let owner = uid_of(&weir_peers::Postfix::compiled_in("mail_owner"));
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    ["etc", "queue", "data", "boxes"].iter().for_each(|name| fs::create_dir(folder.join(name)).unwrap());
    chown(folder.join("boxes"), Some(65534), Some(65534)).unwrap();
    chown(folder.join("data"), Some(owner), None).unwrap();
    fs::write(folder.join("etc/main.cf"), MAIN.replace("FOLDER", &folder.display().to_string())).unwrap();
    fs::write(folder.join("etc/master.cf"), MASTER).unwrap();
}

pub(crate) struct Session {
    stream: BufReader<UnixStream>,
}

impl Session {
    /// Sends one mail. Its header names the same addresses as the envelope.
    pub(crate) fn send(&mut self, from: &str, to: &[&str], date: &str) {
        self.say(&format!("MAIL FROM:<{from}>"));
        for address in to {
            self.say(&format!("RCPT TO:<{address}>"));
        }
        self.say("DATA");
        let body = "hello\r\n\r\nFrom here on nothing counts\r\nTo: nobody@example.org";
        self.say(&format!("From: {from}\r\nTo: {}\r\nDate: {date}\r\n\r\n{body}\r\n.", to.join(",\r\n\t")));
    }

    fn say(&mut self, line: &str) {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.answer();
    }

    fn answer(&mut self) {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            assert!(line.starts_with(['2', '3']), "Postfix answered {line:?}");
            if line.as_bytes().get(3) == Some(&b' ') {
                return;
            }
        }
    }
}

fn uid_of(user: &str) -> u32 {
    let output = Command::new("id").args(["-u", user]).output().unwrap();
    let uid = String::from_utf8_lossy(&output.stdout).trim().parse();
    uid.unwrap_or_else(|_| panic!("there is no user {user:?}: is Postfix installed? Run `make setup`"))
}
