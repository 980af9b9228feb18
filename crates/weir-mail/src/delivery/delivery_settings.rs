//! The section `[delivery]`: how outgoing mail is delivered.

use super::queue::QueueSettings;
use super::route::{Endpoint, HostOrder};
use super::route_rule::{MailServer, RouteRule};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_settings::{Section, settings};
use weir_smtp::client::tls::TlsLevel;

settings! {
    /// How mail goes out
    #[section("delivery")]
    #[check(DeliverySettings::check)]
    pub struct DeliverySettings {
        /// How mail goes out: into folders here, to one server for all, to each recipient's own servers, or by LMTP
        pub way: Way = choice([
            ("maildir", Way::Maildir),
            ("smarthost", Way::Smarthost),
            ("mx", Way::Mx),
            ("lmtp", Way::Lmtp),
        ]),
        /// The folder with a Maildir for each recipient; empty for DATA/mail
        pub maildir: Option<PathBuf> = path().optional(),
        /// The smarthosts or LMTP servers: "mail.example:25", "[2001:db8::1]:24" or "unix:/run/dovecot/lmtp"
        pub hosts: Vec<MailServer> = list([], 32, "servers"),
        /// How several hosts are used: the first that answers, or in turn
        pub order: HostOrder = choice([("failover", HostOrder::Failover), ("round-robin", HostOrder::RoundRobin)]),
        /// Other ways for some domains: "example.org maildir", ".example.org lmtp:unix:/run/lmtp", "example.net smtp:mail.example:25",
        /// "example.com mx"; a leading dot means everything below
        pub routes: Vec<RouteRule> = list([], 10_000, "routes"),
        /// TLS to other servers: if it works, never, always, or always with a certificate that proves the name
        pub tls: TlsLevel = choice([
            ("opportunistic", TlsLevel::Opportunistic),
            ("off", TlsLevel::Off),
            ("required", TlsLevel::Required),
            ("verified", TlsLevel::Verified),
        ]),
        /// Whether the hosts speak TLS from the start (port 465)
        pub implicit_tls: bool = flag(false),
        /// The login at the smarthost; empty for none
        pub login: String = text("", "a name"),
        /// Send the password even if the server has not proved that it is the smarthost; an impostor then gets the password
        pub login_unverified: bool = flag(false),
        /// A file with the password of that login in its first line
        pub password_file: PathBuf = path(),
        /// Root certificates as PEM for tls = "verified"; empty for this machine's
        pub roots: Option<PathBuf> = path().optional(),
        /// The port of recipients' own servers
        pub mx_port: u16 = count(25, 1..=65_535),
        /// A name server to ask instead of this machine's
        pub dns: Vec<SocketAddr> = list([], 1, "addresses with ports"),
        /// Whether mail by MX goes only to servers with the certificate that their signed zone names, where it names one (DANE). It
        /// needs a name server that checks signatures, on this machine or with dns_trusted
        pub dane: bool = flag(true),
        /// Whether the name server checks DNSSEC signatures and nobody can change its answers on their way here; one on this machine is
        /// believed anyway
        pub dns_trusted: bool = flag(false),
        /// Whether mail by MX goes only to servers that the policy of their domain names, where it has one (MTA-STS)
        pub mta_sts: bool = flag(true),
        /// The address that reports name for questions; empty for postmaster@hostname
        pub postmaster: Option<String> = text("", "an address").optional(),
        pub queue: QueueSettings = part(),
    }
}

/// The way that mail goes unless `routes` says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Into folders on this machine.
    Maildir,
    /// To one of our hosts.
    Smarthost,
    /// To each recipient's own servers.
    Mx,
    /// To one of our hosts, by LMTP.
    Lmtp,
}

impl DeliverySettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        let wants_hosts = matches!(self.way, Way::Smarthost | Way::Lmtp);
        if wants_hosts && self.hosts.is_empty() {
            section.blame("way", "this way needs a server".into(), "name it: hosts = [\"mail.example:25\"]");
        }
        if self.login.is_empty() != self.password_file.as_os_str().is_empty() {
            section.blame("login", "login and password_file belong together".into(), "set both, or neither");
        }
        if !self.login.is_empty() && self.tls != TlsLevel::Verified && !self.login_unverified && !self.is_local() {
            let what = "the password would go to whoever answers in the smarthost's place".to_owned();
            let hint = "set tls = \"verified\" (with roots for a certificate of your own), or login_unverified = true";
            section.blame("login", what, hint);
        }
        let file = &self.password_file;
        if !file.as_os_str().is_empty()
            && let Err(error) = std::fs::File::open(file)
        {
            let what = format!("{} cannot be read: {error}", file.display());
            section.blame("password_file", what, "write the password into its first line, readable by Weir alone");
        }
    }

    /// Whether all servers are on this machine.
    fn is_local(&self) -> bool {
        self.hosts.iter().all(|MailServer(host)| match host {
            Endpoint::Host(name, _) => name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback()),
            Endpoint::Socket(_) => true,
        })
    }
}
