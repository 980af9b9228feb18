//! Finds out what runs on this machine, for `weir quickstart` and `weir doctor`: who listens on which port, which programs run, and where
//! the sockets of clamd and Dovecot are.
//!
//! Ports and processes are read from /proc. Everybody can see that a port is taken, but only root can see which process of another user
//! has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) listening: Vec<Listening>,
    programs: BTreeSet<String>,
    /// Whether systemd is the init system.
    pub(crate) systemd: bool,
    pub(crate) root: bool,
    /// Whether this machine has an IPv6 address.
    pub(crate) ipv6: bool,
    /// The socket of clamd, if it exists.
    pub(crate) clamd: Option<PathBuf>,
    /// The LMTP socket of Dovecot, if it exists.
    pub(crate) lmtp: Option<PathBuf>,
}

/// A TCP address at which a program listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    /// The program, if we may see it.
    pub(crate) program: Option<String>,
}

/// Programs that may serve a web site, the most likely ones first.
const WEB_SERVERS: [&str; 10] =
    ["nginx", "apache2", "httpd", "caddy", "lighttpd", "gunicorn", "uwsgi", "node", "java", "python3"];
const LISTEN: &str = "0A";

impl Machine {
    pub(crate) fn look() -> Machine {
        let (programs, owners) = processes(Path::new("/proc"));
        let table = |file| fs::read_to_string(file).unwrap_or_default();
        let mut listening = listening(&table("/proc/net/tcp"), &owners);
        listening.extend(self::listening(&table("/proc/net/tcp6"), &owners));
        let first = |paths: &[&str]| paths.iter().map(PathBuf::from).find(|path| path.exists());
        Machine {
            listening,
            programs,
            systemd: Path::new("/run/systemd/system").exists(),
            root: rustix::process::geteuid().is_root(),
            ipv6: !table("/proc/net/if_inet6").trim().is_empty(),
            clamd: first(&["/run/clamav/clamd.ctl", "/var/run/clamav/clamd.ctl", "/run/clamd.scan/clamd.sock"]),
            lmtp: first(&["/run/dovecot/lmtp", "/var/run/dovecot/lmtp"]),
        }
    }

    /// Whether a program of this name runs.
    pub(crate) fn runs(&self, program: &str) -> bool {
        self.programs.contains(program)
    }

    /// Whether Postfix runs. Its main process is called `master`, which other programs could be called too.
    pub(crate) fn runs_postfix(&self) -> bool {
        self.runs("master") && (self.runs("qmgr") || self.runs("pickup"))
    }

    /// The program that listens on this port, if there is one.
    pub(crate) fn on_port(&self, port: u16) -> Option<&Listening> {
        self.listening.iter().find(|listening| listening.address.port() == port)
    }

    /// Web servers of this machine, the most likely ones first.
    pub(crate) fn web_servers(&self) -> Vec<&Listening> {
        let rank = |listening: &&Listening| {
            let name = listening.program.as_deref()?;
            WEB_SERVERS.iter().position(|known| *known == name)
        };
        let mut found: Vec<_> = self.listening.iter().filter(|listening| rank(listening).is_some()).collect();
        found.sort_by_key(|listening| (rank(listening), listening.address.port()));
        found.dedup_by_key(|listening| listening.address.port());
        found
    }
}

impl Listening {
    /// The address by which this machine itself reaches it.
    pub(crate) fn local(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        SocketAddr::new(ip, self.address.port())
    }

    /// The program's name, or "another program" if we may not see it.
    pub(crate) fn who(&self) -> &str {
        self.program.as_deref().unwrap_or("another program")
    }
}

/// The names of all processes, and which process has which socket.
fn processes(proc: &Path) -> (BTreeSet<String>, BTreeMap<u64, String>) {
    let (mut names, mut owners) = (BTreeSet::new(), BTreeMap::new());
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let name = name.trim().to_owned();
        for file in fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(file.path()) else { continue };
            let socket = link.to_string_lossy();
            let inode = socket.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            if let Some(inode) = inode.and_then(|text| text.parse().ok()) {
                owners.entry(inode).or_insert_with(|| name.clone());
            }
        }
        names.insert(name);
    }
    (names, owners)
}

/// The listening sockets in /proc/net/tcp.
fn listening(table: &str, owners: &BTreeMap<u64, String>) -> Vec<Listening> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = address(fields.get(1)?)?;
        let inode: u64 = fields.get(9)?.parse().ok()?;
        (fields.get(3) == Some(&LISTEN)).then(|| Listening { address, program: owners.get(&inode).cloned() })
    };
    table.lines().filter_map(line).collect()
}

fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let octets = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_that_this_process_listens_on_is_seen_with_its_owner() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(here) else { continue };
            let address = listener.local_addr().unwrap();
            let machine = Machine::look();
            let seen = machine.listening.iter().find(|listening| listening.address == address);
            assert!(seen.is_some_and(|seen| seen.program.is_some()), "{here}");
        }
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(address("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(address("00000000000000000000000001000000:0019"), Some("[::1]:25".parse().unwrap()));
        assert_eq!(address("0000000000000000FFFF00000100007F:0050"), Some("127.0.0.1:80".parse().unwrap()));
        for wrong in ["", "0100007F", "0100007F:", "01:50", "zz00007F:0050"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
