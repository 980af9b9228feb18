//! Real peers: smtp-sink and a private Postfix as smarthost.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weir_peers::free_port;
use weir_smtp::client::approach::Approach;
use weir_smtp::client::tls::TlsLevel;
use weir_tls::Tls;

use super::memory_ledger::{MemoryLedger, PATIENCE, settings, start};

/// A port that was free a moment ago.
async fn until_open(port: u16) {
    let open = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, open).await.expect("the peer listens");
}

struct Sink(Child);

impl Sink {
    async fn start(port: u16, options: &[&str]) -> Sink {
        let mut command = Command::new("/usr/sbin/smtp-sink");
        command.args(options).arg(format!("127.0.0.1:{port}")).arg("100").stdout(Stdio::null());
        let sink = Sink(command.spawn().expect("smtp-sink is missing: run `make setup`"));
        until_open(port).await;
        sink
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn smtp_sink_takes_everything_in_every_mood() {
    // As it is; without ESMTP; without PIPELINING; as LMTP.
    for options in [&[][..], &["-e"], &["-p"], &["-L"]] {
        let port = free_port();
        let mut arguments = vec!["-u", "root"];
        arguments.extend_from_slice(options);
        let _sink = Sink::start(port, &arguments).await;
        let ledger = MemoryLedger::default();
        let approach = Approach { lmtp: options == ["-L"], ..Approach::default() };
        let delivery = start(settings(port, approach), &ledger);
        let ids: Vec<_> = (0..100)
            .map(|number| {
                let to = [format!("<a{number}@x.example>"), format!("<b{number}@y.example>")];
                let message =
                    ledger.message("<s@sender.example>", &[&to[0], &to[1]], "Subject: x\r\n\r\n.\r\nhello\r\n");
                let id = message.id;
                delivery.enqueue(message);
                id
            })
            .collect();
        for id in ids {
            ledger.finished(id).await;
        }
        let totals = delivery.stats().queue.totals;
        assert_eq!((totals.delivered, totals.failed, totals.deferred), (200, 0, 0), "{options:?}");
        delivery.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn lmtp_over_a_socket() {
    use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Smarthost};
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lmtp");
    let mut command = Command::new("/usr/sbin/smtp-sink");
    command.args(["-u", "root", "-L"]).arg(format!("unix:{}", socket.display())).arg("100").stdout(Stdio::null());
    let _sink = Sink(command.spawn().expect("smtp-sink is missing: run `make setup`"));
    let ledger = MemoryLedger::default();
    let approach = Approach { lmtp: true, ..Approach::default() };
    let route = Route::Lmtp(Smarthost { hosts: vec![Endpoint::Socket(socket)], order: HostOrder::Failover, approach });
    // The socket need not be there yet: a destination that cannot be reached is tried again.
    let delivery = start(super::memory_ledger::settings_for(route), &ledger);
    let message =
        ledger.message("<s@sender.example>", &["<a@x.example>", "<b@x.example>"], "Subject: x\r\n\r\nhello\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    assert_eq!(delivery.stats().queue.totals.delivered, 2);
}

/// A private Postfix: own configuration, queue and log; one port on loopback; mailboxes in the same folder.
struct Postfix {
    folder: tempfile::TempDir,
    port: u16,
}

const MAIN: &str = "compatibility_level = 3.6
queue_directory = FOLDER/queue
data_directory = FOLDER/data
maillog_file = FOLDER/mail.log
maillog_file_prefixes = FOLDER
myhostname = client.example
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
in_flow_delay = 0
alias_maps =
alias_database =
local_recipient_maps =
virtual_mailbox_domains = there.example
virtual_mailbox_base = FOLDER/boxes
virtual_mailbox_maps = inline:{ { bob@there.example = bob }, { ann@there.example = ann } }
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_recipient_restrictions = reject_unlisted_recipient, permit
smtpd_tls_security_level = may
smtpd_tls_chain_files = FOLDER/tls/key.pem, FOLDER/tls/cert.pem
smtpd_tls_loglevel = 1
message_size_limit = 1000000
";
const MASTER: &str = "127.0.0.1:PORT inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
tlsmgr unix - - n 1000? 1 tlsmgr
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
";

impl Postfix {
    async fn start() -> Postfix {
        let folder = tempfile::Builder::new().prefix("weir-postfix-").tempdir_in("/tmp").unwrap();
        let root = fs::metadata(folder.path()).unwrap().uid() == 0;
        assert!(root, "this test starts a Postfix of its own: run `make setup`, then the tests as root");
        let port = free_port();
        configure(folder.path(), port);
        let postfix = Postfix { folder, port };
        let started = postfix.command("start").output().expect("Postfix is missing: run `make setup`");
        assert!(started.status.success(), "Postfix did not start: {started:?}\n{}", postfix.log());
        until_open(port).await;
        postfix
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("mail.log")).unwrap_or_default()
    }

    async fn until_logged(&self, words: &str, count: usize) {
        let logged = async {
            while self.log().lines().filter(|line| line.contains(words)).count() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, logged).await.is_ok(), "no {count} times {words:?}:\n{}", self.log());
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("/usr/sbin/postfix");
        command.arg("-c").arg(self.path("etc")).arg(verb).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        if !self.command("stop").output().is_ok_and(|output| output.status.success()) {
            let _ = self.command("abort").output();
        }
    }
}

fn configure(folder: &Path, port: u16) {
    let id = Command::new("id").args(["-u", "postfix"]).output().unwrap();
    let owner: u32 = String::from_utf8_lossy(&id.stdout).trim().parse().expect("a user postfix");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    ["etc", "queue", "data", "boxes", "tls"].iter().for_each(|name| fs::create_dir(folder.join(name)).unwrap());
    chown(folder.join("boxes"), Some(65534), Some(65534)).unwrap();
    chown(folder.join("data"), Some(owner), None).unwrap();
    Tls::self_signed(&folder.join("tls"), &["127.0.0.1".into(), "client.example".into()]).unwrap();
    let place = folder.display().to_string();
    fs::write(folder.join("etc/main.cf"), MAIN.replace("FOLDER", &place)).unwrap();
    fs::write(folder.join("etc/master.cf"), MASTER.replace("PORT", &port.to_string())).unwrap();
}

#[tokio::test]
async fn postfix_as_smarthost_over_tls() {
    let postfix = Postfix::start().await;
    let ledger = MemoryLedger::default();
    // Verified: the self-signed certificate is its own root, and bears the address as a name.
    let approach = Approach { tls: TlsLevel::Verified, ..Approach::default() };
    let mut settings = settings(postfix.port, approach);
    settings.roots = Some(postfix.path("tls/cert.pem"));
    let delivery = start(settings, &ledger);
    let body = "Subject: x\r\n\r\n.dot\r\n..\r\nFrom here\r\nend";
    let short = ledger.message("<s@sender.example>", &["<bob@there.example>", "<nobody@there.example>"], body);
    let long_body = format!("Subject: long\r\n\r\n{}", ".a line\r\n".repeat(30_000));
    let long = ledger.message("<s@sender.example> BODY=8BITMIME", &["<ann@there.example>"], &long_body);
    let large = ledger.message("<s@sender.example>", &["<ann@there.example>"], &"x".repeat(1_000_001));
    let ids = [short.id, long.id, large.id];
    [short, long, large].into_iter().for_each(|message| delivery.enqueue(message));
    for id in ids {
        ledger.finished(id).await;
    }
    let reports = ledger.until("two reports", |state| (state.reports.len() == 2).then(|| state.reports.clone())).await;
    let all = reports.join("\n");
    assert!(all.contains("Final-Recipient: rfc822; nobody@there.example") && all.contains("550 5.1.1"), "{all}");
    assert!(all.contains("Status: 5.3.4"), "{all}");
    postfix.until_logged("status=sent", 2).await;
    let came = fs::read_to_string(postfix.path("boxes/bob")).unwrap().replace("\n>From ", "\nFrom ");
    let (_, sent) = body.split_once("\r\n\r\n").unwrap();
    assert!(came.contains(&format!("\n\n{}\n", sent.replace("\r\n", "\n"))), "{came}");
    let came = fs::read_to_string(postfix.path("boxes/ann")).unwrap();
    assert_eq!(came.matches("\n.a line").count(), 30_000);
    assert!(postfix.log().contains("TLS connection established"), "{}", postfix.log());
    // Short mail goes with BDAT; the log says so when the session ends.
    delivery.shutdown(Duration::from_secs(5)).await;
    postfix.until_logged("bdat=1", 1).await;
}

#[tokio::test]
async fn a_certificate_that_does_not_prove_the_name_is_not_enough() {
    let postfix = Postfix::start().await;
    let ledger = MemoryLedger::default();
    let verified = Approach { tls: TlsLevel::Verified, ..Approach::default() };
    let delivery = start(settings(postfix.port, verified), &ledger);
    let message = ledger.message("<s@sender.example>", &["<bob@there.example>"], "x\r\n");
    delivery.enqueue(message.clone());
    // The handshake fails with an alert, which Postfix logs.
    postfix.until_logged("unknown ca", 1).await;
    delivery.shutdown(Duration::from_secs(5)).await;
    assert!(ledger.state().finished.is_empty());

    let required = Approach { tls: TlsLevel::Required, ..Approach::default() };
    let delivery = start(settings(postfix.port, required), &ledger);
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
}
