//! Postfix with Amavis as its content filter, both private, four children, no SpamAssassin.
//!
//! The way of Amavis's own README.postfix: queue → amavisd → back to Postfix on another port → out. Amavis takes messages
//! apart, looks at names and at types by file(1), bans what Debian's configuration bans, and has clamd scan the parts. Where
//! no syslog daemon runs, Postfix logs nothing; Amavis logs one line a message to a file.

use crate::disk::Disk;
use crate::postfix;
use crate::server::{Process, Server};
use crate::side::Side;
use crate::sink::await_port;
use std::path::Path;
use std::process::{Command, Stdio};

const CHILDREN: u16 = 4;
const MAIN: &str = "
message_size_limit = 50000000
content_filter = amavis:[127.0.0.1]:FILTER
amavis_initial_destination_concurrency = CHILDREN
amavis_destination_concurrency_limit = CHILDREN
";
const MASTER: &str = "
amavis unix - - n - CHILDREN smtp
  -o smtp_data_done_timeout=1200s
  -o smtp_send_xforward_command=yes
127.0.0.1:BACK inet n - n - - smtpd
  -o content_filter=
  -o receive_override_options=no_header_body_checks,no_unknown_recipient_checks,no_address_mappings
  -o smtpd_authorized_xforward_hosts=127.0.0.0/8
";
const AMAVISD: &str = r#"use strict;
$ENV{PATH} = $path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/usr/bin:/bin';
$file = 'file';
$max_servers = CHILDREN;
$daemon_user = 'amavis';
$daemon_group = 'amavis';
$mydomain = 'example.org';
$myhostname = 'relay.example.org';
$MYHOME = 'FOLDER';
$TEMPBASE = "$MYHOME/tmp";
$QUARANTINEDIR = "$MYHOME/virusmails";
$lock_file = "$MYHOME/amavisd.lock";
$pid_file = "$MYHOME/amavisd.pid";
$db_home = "$MYHOME/db";
$enable_db = 0;
$do_syslog = 0;
$logfile = "$MYHOME/log";
$log_level = 0;
$inet_socket_bind = '127.0.0.1';
$inet_socket_port = FILTER;
$forward_method = 'smtp:[127.0.0.1]:BACK';
$notify_method = $forward_method;
@local_domains_maps = (['.example.net']);
@mynetworks = qw(127.0.0.0/8);
@bypass_spam_checks_maps = (1);
$enable_dkim_verification = 0;
$enable_dkim_signing = 0;
# Kept in a folder and told to nobody, as Weir does.
$final_virus_destiny = D_DISCARD;
$final_banned_destiny = D_DISCARD;
$final_bad_header_destiny = D_PASS;
$bad_header_quarantine_method = undef;
$virus_admin = undef;
$banned_admin = undef;
$MAXLEVELS = 14;
$MAXFILES = 1500;
$MIN_EXPANSION_QUOTA = 100*1024;
$MAX_EXPANSION_QUOTA = 300*1024*1024;
$banned_filename_re = new_RE(
  qr'\.[^./]*\.(exe|vbs|pif|scr|bat|cmd|com|cpl|dll)\.?$'i,
  qr'^application/x-msdownload$'i, qr'^application/x-msdos-program$'i, qr'^application/hta$'i,
  qr'.\.(exe|vbs|pif|scr|bat|cmd|com|cpl)$'i,
  qr'^\.(exe-ms)$',
);
@av_scanners = (
  ['ClamAV-clamd', \&ask_daemon, ["CONTSCAN {}\n", 'CLAMD'],
   qr/\bOK$/m, qr/\bFOUND$/m, qr/^.*?: (?!Infected Archive)(.*) FOUND$/m ],
);
@av_scanners_backup = ();
1;
"#;

/// Starts both, with what is clean going to `smarthost`.
pub(crate) fn start(disk: &Disk, clamd: &Path, smarthost: u16) -> Side {
    let (filter, back) = (weir_peers::free_port(), weir_peers::free_port());
    let place = |text: &str| {
        let text = text.replace("FILTER", &filter.to_string()).replace("BACK", &back.to_string());
        text.replace("CHILDREN", &CHILDREN.to_string()).replace("CLAMD", &clamd.display().to_string())
    };
    let amavisd = amavisd(disk, filter, &place(AMAVISD));
    let postfix = postfix::start_with(disk, smarthost, (&place(MAIN), &place(MASTER)));
    await_port(back);
    Side::new("Postfix, Amavis", vec![postfix, amavisd])
}

fn amavisd(disk: &Disk, port: u16, configuration: &str) -> Server {
    let folder = disk.folder("amavis-");
    // It refuses a configuration that its own user could replace, so its home is another folder.
    let (file, home) = (folder.path().join("amavisd.conf"), folder.path().join("home"));
    std::fs::write(&file, configuration.replace("FOLDER", &home.display().to_string())).expect("the folder is ours");
    let folders = ["tmp", "virusmails", "db"].map(|name| home.join(name));
    folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("the folder is ours"));
    let owner = Command::new("chown").args(["-R", "amavis"]).arg(&home).status();
    assert!(owner.is_ok_and(|done| done.success()), "amavisd-new is not here, or you are not root: run `make setup`");
    let mut command = Command::new("amavisd");
    command.arg("-c").arg(&file).arg("foreground").stdout(Stdio::null());
    let process = Process::start(&mut command);
    await_port(port);
    Server::new("amavisd", port, process, folder)
}
