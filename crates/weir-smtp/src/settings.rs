//! The settings of the sessions of one listener.

use std::net::IpAddr;

use super::limits::SmtpLimits;
use super::network::IpNetwork;

/// The settings that all sessions of a listener share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our name, for the greeting and the EHLO reply.
    pub hostname: Box<str>,
    /// SMTP or LMTP.
    pub protocol: Protocol,
    /// Whether clients may or must log in.
    pub auth: Auth,
    /// Where AUTH is allowed without TLS.
    pub auth_without_tls: AuthWithoutTls,
    /// Whether MAIL needs TLS first.
    pub require_tls: bool,
    /// Whether STARTTLS is offered. The server sets this if it has a certificate.
    pub starttls: bool,
    /// Whether DSN is offered to everybody, or only to trusted peers. The server sets this: reports that a stranger asks for would go to
    /// whatever address the stranger names as the sender.
    pub dsn: bool,
    /// Peers that may use XCLIENT and XFORWARD, and that are neither counted nor banned by their address.
    pub trusted: Vec<IpNetwork>,
    /// Whether bare CR and LF in a message become line ends, and long lines are let through, instead of being refused. Only for submission:
    /// mail from other servers may be signed, so it must not be changed, and is refused instead.
    pub mend_text: bool,
    /// All limits.
    pub limits: SmtpLimits,
}

impl Settings {
    /// Whether the address is listed as trusted.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }
}

/// The purpose of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// Users hand in mail. Wrong passwords bring a ban.
    #[default]
    Submission,
    /// Other servers bring mail. Recipients that do not exist bring a ban, because somebody is guessing names.
    Inbound,
}

/// The protocol of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// One reply for each message.
    #[default]
    Smtp,
    /// LHLO, and one reply for each recipient (RFC 2033).
    Lmtp,
}

/// Whether clients can or must log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Auth {
    /// AUTH is not available.
    Off,
    /// AUTH is offered.
    Optional,
    /// MAIL is refused before a login.
    #[default]
    Required,
}

/// Where AUTH is allowed on a connection that is not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuthWithoutTls {
    /// Never.
    Never,
    /// For clients on this machine.
    #[default]
    Loopback,
    /// For all clients: passwords cross the network in clear text.
    Everywhere,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hostname: "localhost".into(),
            protocol: Protocol::default(),
            auth: Auth::default(),
            auth_without_tls: AuthWithoutTls::default(),
            require_tls: false,
            starttls: false,
            dsn: true,
            trusted: Vec::new(),
            mend_text: false,
            limits: SmtpLimits::default(),
        }
    }
}
