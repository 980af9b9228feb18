//! A private Amavis that asks one scanner by clamd's protocol and refuses what the scanner finds.

use crate::{spawn_bound, wait_until_it_listens};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

const CONFIGURATION: &str = r#"use strict;
$max_servers = 1;
$daemon_user = 'amavis';
$daemon_group = 'amavis';
$mydomain = 'example.org';
$myhostname = 'amavis.example.org';
$MYHOME = 'FOLDER';
$TEMPBASE = "$MYHOME/tmp";
$QUARANTINEDIR = undef;
$virus_quarantine_method = undef;
$lock_file = "$MYHOME/amavisd.lock";
$pid_file = "$MYHOME/amavisd.pid";
$db_home = "$MYHOME/db";
$enable_db = 0;
$do_syslog = 0;
$logfile = "$MYHOME/log";
$log_level = 1;
$inet_socket_bind = '127.0.0.1';
$inet_socket_port = PORT;
$forward_method = 'smtp:NEXT';
$notify_method = $forward_method;
@mynetworks = qw(127.0.0.0/8);
@bypass_spam_checks_maps = (1);
@bypass_banned_checks_maps = (1);
@bypass_header_checks_maps = (1);
$enable_dkim_verification = 0;
$enable_dkim_signing = 0;
$final_virus_destiny = D_REJECT;
@av_scanners = (
  ['ClamAV-clamd-stream', \&ask_daemon, ["*", 'clamd:SCANNER'],
   qr/\bOK$/m, qr/\bFOUND$/m, qr/^.*?: (?!Infected Archive)(.*) FOUND$/m ],
);
@av_scanners_backup = ();
1;
"#;

/// The server.
#[derive(Debug)]
pub struct Amavis {
    folder: tempfile::TempDir,
    server: Child,
    address: SocketAddr,
}

impl Amavis {
    /// Starts one that asks `scanner` (`127.0.0.1:3310`) and passes clean mail to the mail server at `next`.
    pub fn start(scanner: &str, next: &str) -> Amavis {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, home) = (folder.path().join("amavisd.conf"), folder.path().join("home"));
        ["tmp", "db"].iter().for_each(|name| std::fs::create_dir_all(home.join(name)).expect("the folder is ours"));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::free_port()));
        let (host, port) = next.rsplit_once(':').expect("an address with a port");
        let text = CONFIGURATION.replace("FOLDER", &home.display().to_string());
        let text = text.replace("PORT", &address.port().to_string()).replace("NEXT", &format!("[{host}]:{port}"));
        std::fs::write(&file, text.replace("SCANNER", scanner)).expect("the folder is ours");
        // It runs as another user, which needs its home folder but not its configuration.
        let opened = Command::new("chmod").arg("755").arg(folder.path()).status();
        let owned = Command::new("chown").args(["-R", "amavis"]).arg(&home).status();
        let fine = [opened, owned].into_iter().all(|done| done.is_ok_and(|status| status.success()));
        assert!(fine, "amavisd-new is not here, or you are not root: run `make setup`");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=TERM", "amavisd", "-c"]).arg(&file).arg("foreground");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut amavis = Amavis { folder, server: spawn_bound(command), address };
        wait_until_it_listens(&mut amavis.server, address, "amavisd-new");
        amavis
    }

    /// The address at which it takes mail.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("home/log")).unwrap_or_default()
    }
}

impl Drop for Amavis {
    fn drop(&mut self) {
        // Terminated in an orderly way, it ends its children too.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}
