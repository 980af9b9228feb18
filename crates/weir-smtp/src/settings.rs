//! The settings of the sessions of one listener.

use std::net::IpAddr;

use super::limits::SmtpLimits;
use super::network::IpNetwork;

/// Shared by all sessions of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our name, in the greeting and the EHLO reply.
    pub hostname: Box<str>,
    /// SMTP or LMTP.
    pub protocol: Protocol,
    /// Whether clients may or must log in.
    pub auth: Auth,
    /// Where AUTH is allowed without TLS.
    pub auth_without_tls: AuthWithoutTls,
    /// Whether MAIL needs TLS first.
    pub require_tls: bool,
    /// Whether STARTTLS is offered. The server sets it where it has a certificate.
    pub starttls: bool,
    /// Whether DSN is offered to everybody, or to trusted peers alone. The server sets it: reports that strangers ask for would go to
    /// whomever they name as the sender.
    pub dsn: bool,
    /// Peers that may use XCLIENT and XFORWARD, and that are not counted or banned by address.
    pub trusted: Vec<IpNetwork>,
    /// Whether bare CR and LF in a message are made line ends, and long lines let through, instead of refused. For submission alone: mail
    /// from other servers may be signed, and is refused as it is.
    pub mend_text: bool,
    /// Every bound.
    pub limits: SmtpLimits,
}

impl Settings {
    /// Whether the address is listed as trusted.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }
}

/// What a server is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// Users hand in mail: wrong passwords bring a ban.
    #[default]
    Submission,
    /// Other servers bring mail: recipients that do not exist bring a ban, since somebody is trying names.
    Inbound,
}

/// The protocol of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// One reply a message.
    #[default]
    Smtp,
    /// LHLO, and one reply for every recipient (RFC 2033).
    Lmtp,
}

/// Whether clients log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Auth {
    /// AUTH is not there.
    Off,
    /// AUTH is offered.
    Optional,
    /// MAIL is refused before AUTH.
    #[default]
    Required,
}

/// Where AUTH is allowed on a connection that is not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuthWithoutTls {
    /// Nowhere.
    Never,
    /// From this machine.
    #[default]
    Loopback,
    /// From everywhere: passwords cross the network in the clear.
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
