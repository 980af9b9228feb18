//! A private Postfix as a plain relay, set up as somebody would who wants it fast and knows it well.
//!
//! Its own configuration, queue and data; a Postfix of the system is not touched. Postfix syncs every message before
//! it answers, and has no switch for that. What is set and why stands beside each line. Where no syslog
//! daemon runs, logging costs it next to nothing.

use crate::disk::Disk;
use crate::server::{Process, Server};
use crate::sink::await_port;
use std::path::Path;
use std::process::Command;

/// Everything beyond Postfix's own defaults.
const MAIN: &str = "
compatibility_level = 3.6
queue_directory = FOLDER/queue
data_directory = FOLDER/data
myhostname = relay.example.org
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
# A relay and nothing else: no local mail, no tables, one next hop.
mydestination =
local_transport = error:no local mail
local_recipient_maps =
alias_maps =
alias_database =
smtpd_relay_restrictions = permit_mynetworks, reject
relayhost = [127.0.0.1]:SINK
# No lookups of names, no rewriting, no TLS.
disable_dns_lookups = yes
smtp_host_lookup = native
smtpd_peername_lookup = no
append_dot_mydomain = no
smtputf8_enable = no
receive_override_options = no_address_mappings, no_header_body_checks
smtpd_tls_security_level = none
smtp_tls_security_level = none
# No brakes: mail is taken as fast as it comes, and goes out at once over as many connections as it came in by.
in_flow_delay = 0
default_process_limit = 200
smtpd_client_connection_count_limit = 0
initial_destination_concurrency = 20
default_destination_concurrency_limit = 20
notify_classes =
";
/// All services outside a chroot, as many processes as they like.
const MASTER: &str = "
127.0.0.1:PORT inet n - n - - smtpd
pickup unix n - n 60 1 pickup
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
smtp unix - - n - - smtp
scache unix - - n - 1 scache
anvil unix - - n - 1 anvil
";

/// Starts Postfix with everything going to `smarthost`.
pub(crate) fn start(disk: &Disk, smarthost: u16) -> Server {
    start_with(disk, smarthost, ("", ""))
}

/// Starts Postfix with more lines in its main.cf and master.cf.
pub(crate) fn start_with(disk: &Disk, smarthost: u16, more: (&str, &str)) -> Server {
    let (folder, port) = (disk.folder("postfix-"), weir_peers::free_port());
    configure(folder.path(), (port, smarthost), more);
    let etc = folder.path().join("etc");
    // Makes the folders of the queue and looks at everything.
    let checked = Command::new("postfix").arg("-c").arg(&etc).arg("check").status();
    assert!(checked.is_ok_and(|status| status.success()), "Postfix cannot be set up: run `make setup`, then as root");
    let master = Path::new(&weir_peers::Postfix::compiled_in("daemon_directory")).join("master");
    let process = Process::start(Command::new(master).arg("-c").arg(&etc));
    await_port(port);
    Server::new("Postfix", port, process, folder)
}

fn configure(folder: &Path, (port, smarthost): (u16, u16), (main, master): (&str, &str)) {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("the folder is ours");
    ["etc", "queue", "data"].iter().for_each(|name| std::fs::create_dir(folder.join(name)).expect("it is ours"));
    let owner =
        Command::new("chown").arg(weir_peers::Postfix::compiled_in("mail_owner")).arg(folder.join("data")).status();
    assert!(owner.is_ok_and(|status| status.success()), "Postfix's folder cannot be given to it: run as root");
    let place =
        |text: &str| text.replace("FOLDER", &folder.display().to_string()).replace("SINK", &smarthost.to_string());
    write("etc/main.cf", place(MAIN) + main);
    write("etc/master.cf", MASTER.replace("PORT", &port.to_string()) + master);
}
