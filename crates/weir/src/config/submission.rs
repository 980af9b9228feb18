//! `[submission]`: where users hand in mail, how they log in, whom we believe.

use super::calls::Calls;
use super::value::{Endpoint, Net};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use weir_mail::submission::Identity;
use weir_settings::Section;
use weir_settings::units::Span;
use weir_smtp::settings::AuthWithoutTls;

#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) enabled: bool,
    pub(crate) hostname: String,
    pub(crate) listen: Vec<Endpoint>,
    pub(crate) listen_tls: Vec<Endpoint>,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) auth_without_tls: AuthWithoutTls,
    pub(crate) require_tls: bool,
    pub(crate) sender_must_match: bool,
    pub(crate) trusted: Vec<Net>,
    pub(crate) received_from: Vec<Net>,
    pub(crate) dovecot_socket: PathBuf,
    pub(crate) hashes_at_once: u32,
    pub(crate) grace: Span,
}

impl Submission {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Submission {
        let here = |port: u16| vec![Endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))];
        let addresses = ("addresses with ports", 64);
        let read = Submission {
            enabled: s.flag(
                "enabled",
                true,
                "Whether mail is taken in and delivered at all; if this is not set, a configuration with [web] backends or lab.enabled that \
                 says nothing of mail has none",
            ),
            hostname: s.text(
                "hostname",
                "",
                ("a host name", "Our name in greetings and trace headers; empty for this machine's own"),
                host_name,
            ),
            listen: s.list(
                "listen",
                here(2587),
                addresses,
                "Where submission with STARTTLS listens; port 0 is any free one",
            ),
            listen_tls: s.list(
                "listen_tls",
                here(2465),
                addresses,
                "Where submission under TLS from the start listens",
            ),
            certificate: s.path(
                "certificate",
                "The certificate with its chain, as PEM; empty for a self-signed one made at first start",
            ),
            key: s.path("key", "The private key of the certificate, as PEM"),
            identity: s.choice(
                "identity",
                &[("login", Identity::Login), ("client-address", Identity::ClientAddress)],
                "Whose throttle a mail counts against; with client-address nobody logs in",
            ),
            auth_without_tls: s.choice(
                "auth_without_tls",
                &[
                    ("loopback", AuthWithoutTls::Loopback),
                    ("never", AuthWithoutTls::Never),
                    ("everywhere", AuthWithoutTls::Everywhere),
                ],
                "Where a login without TLS is allowed: from this machine, nowhere, or from everywhere in the clear",
            ),
            require_tls: s.flag("require_tls", false, "Whether mail is taken only under TLS"),
            sender_must_match: s.flag(
                "sender_must_match",
                true,
                "Whether MAIL FROM and From must be addresses of the login",
            ),
            trusted: s.list("trusted", Vec::new(), ("networks", 256), "Peers that may use XCLIENT and XFORWARD"),
            received_from: s.list(
                "received_from",
                Vec::new(),
                ("networks", 256),
                "Peers whose topmost Received header names the user, as Postfix writes it",
            ),
            dovecot_socket: s
                .path("dovecot_socket", "Dovecot's authentication socket, if the users are there; empty for our own"),
            hashes_at_once: s.bounded("hashes_at_once", 2, 1..=64, "How many passwords are checked at a time"),
            grace: s.bounded(
                "grace",
                Span(Duration::from_secs(10)),
                Span(Duration::from_millis(100))..=Span(Duration::from_secs(600)),
                "How long a stop waits for messages that are coming in",
            ),
        };
        if read.certificate.as_os_str().is_empty() != read.key.as_os_str().is_empty() {
            s.blame("certificate", "certificate and key belong together".into(), "set both, or neither");
        }
        if read.listen.is_empty() && read.listen_tls.is_empty() {
            s.blame("listen", "nothing would listen".into(), "give listen or listen_tls an address");
        }
        read
    }
}

fn host_name(text: &str) -> Result<(), String> {
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match text.is_empty() || (text.len() <= 253 && text.split('.').all(label)) {
        true => Ok(()),
        false => Err(format!("{text:?} is not a host name: write letters, digits, hyphens and dots")),
    }
}
