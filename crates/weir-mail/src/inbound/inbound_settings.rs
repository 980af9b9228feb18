//! The section `[inbound]`: mail from other servers, for which domains it is accepted, and where it goes.

use super::authenticity::AuthenticitySettings;
use super::dnsbl::DnsblSettings;
use super::enforcement::EnforcementSettings;
use super::rates::RateSettings;
use super::recipients::CalloutSettings;
use crate::delivery::route::Endpoint;
use crate::delivery::{DomainRule, MailServer, RuleWay};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_settings::{Section, settings};
use weir_smtp::limits::SmtpLimits;
use weir_smtp::network::{IpNetwork, let_in_everybody};

settings! {
    /// Mail from other servers: for which domains, for whom, and where it goes
    #[section("inbound")]
    #[check(InboundSettings::check)]
    pub struct InboundSettings {
        /// Where SMTP for our domains listens; empty for nowhere
        pub listen: Vec<SocketAddr> = list([], 64, "addresses with ports"),
        /// Where LMTP for our domains listens
        pub listen_lmtp: Vec<SocketAddr> = list([], 64, "addresses with ports"),
        /// Our domains, each with its next server: "example.org smtp:10.0.0.5:25", "example.net lmtp:unix:/run/lmtp",
        /// "example.com maildir", or "example.edu" alone to go as [delivery] says; a leading dot means everything below
        pub domains: Vec<DomainRule> = list([], 10_000, "domains"),
        /// How Weir knows which recipients exist: it asks the next server, reads a file, takes the addresses of our users, or accepts any
        pub recipients: RecipientCheck = choice([
            ("callout", RecipientCheck::Callout),
            ("file", RecipientCheck::File),
            ("store", RecipientCheck::Store),
            ("any", RecipientCheck::Any),
        ]),
        /// A file with one address on each line, or @example.org for a whole domain; read again when it changes
        pub recipient_file: Option<PathBuf> = path().optional(),
        pub callout: CalloutSettings = part(),
        /// Servers that may relay to anywhere and name the true client by XFORWARD or XCLIENT
        pub trusted: Vec<IpNetwork> = networks(256),
        /// Where mail of trusted servers goes, whoever its recipients are, such as the port on which Postfix takes mail back from its
        /// content_filter; empty to treat it as other mail
        pub hand_back: Vec<MailServer> = list([], 32, "servers"),
        /// Whether mail is taken only under TLS; most of the world's is not
        pub require_tls: bool = flag(false),
        /// Whether SPF, DKIM and DMARC are evaluated into an Authentication-Results header
        pub authenticate: bool = flag(true),
        pub authenticity: AuthenticitySettings = part(),
        pub enforcement: EnforcementSettings = part(),
        pub rates: RateSettings = part(),
        pub dnsbl: DnsblSettings = part(),
        /// Private, since it only counts together with `[limits]`.
        limits: OwnLimits = part(),
    }
}

settings! {
    /// What differs from `[limits]`, since the clients are servers that nobody here knows.
    struct OwnLimits {
        /// Connections at once, in all
        connections: u32 = number(5_000, 1..=1_000_000),
        /// Connections at once from one address
        connections_per_address: u32 = number(50, 1..=1_000_000),
        /// Recipients of one message
        recipients as "recipients_per_message": u32 = number(1_000, 1..=SmtpLimits::RECIPIENTS_MAX),
        /// The largest message
        message_size: u64 = size(SmtpLimits::default().message_bytes, 1_024..=SmtpLimits::MESSAGE_BYTES_MAX),
        /// The longest line of a message in bytes; 0 is no limit, since much of the world's mail breaks RFC 5321's 998
        body_line: u32 = number(0, 0..=1_000_000_000),
        /// Refused recipients before a session ends
        refused_recipients: u32 = number(20, 1..=100_000),
        /// Recipients that do not exist, tried from one address within limits.failed_login_window, before it is banned
        unknown_recipients: u32 = number(200, 1..=100_000),
    }
}

/// By what recipients are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientCheck {
    /// The next server is asked.
    Callout,
    /// They are in a file.
    File,
    /// They are addresses of our users.
    Store,
    /// Anybody exists.
    Any,
}

impl InboundSettings {
    /// Whether anything listens.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || !self.listen_lmtp.is_empty()
    }

    /// The limits of its sessions: those of everybody, but for its own.
    pub fn limits(&self, general: &SmtpLimits) -> SmtpLimits {
        let own = &self.limits;
        SmtpLimits {
            connections: own.connections,
            connections_per_address: own.connections_per_address,
            recipients: own.recipients,
            message_bytes: own.message_size,
            body_line_bytes: own.body_line,
            refused_recipients: own.refused_recipients,
            failed_logins_per_address: own.unknown_recipients,
            ..general.clone()
        }
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        // Who writes that there are no domains wants nothing but the orders that notices ask for.
        let used = section.is_given("domains") || !self.trusted.is_empty();
        if self.is_on() && !used {
            let hint = "name our domains: domains = [\"example.org smtp:10.0.0.5:25\"], or list trusted servers; domains = [] is for \
                        answers to notices alone";
            section.blame(
                "listen",
                "no mail would be taken: there are neither domains nor trusted servers".into(),
                hint,
            );
        }
        if !self.is_on() && !self.domains.is_empty() {
            section.blame(
                "domains",
                "nothing listens for these domains".into(),
                "give listen or listen_lmtp an address",
            );
        }
        if (self.recipients == RecipientCheck::File) == self.recipient_file.is_none() {
            let what = "recipients = \"file\" and recipient_file belong together".to_owned();
            section.blame("recipients", what, "set both, or neither");
        }
        if let_in_everybody(&self.trusted) {
            let what = "a network of all addresses may relay to anywhere: an open relay".to_owned();
            section.blame("trusted", what, "list the addresses of your own servers only");
        }
        if !self.hand_back.is_empty() && self.trusted.is_empty() {
            section.blame(
                "hand_back",
                "there is nobody whose mail is handed back".into(),
                "list the server in trusted",
            );
        }
        let follows = ["dmarc", "dmarc_overrides", "own_senders"];
        if let Some(idle) = follows.into_iter().find(|key| !self.authenticate && section.is_given(key)) {
            let what = format!("{idle} does nothing while nothing is evaluated");
            section.blame(idle, what, "set authenticate = true, or leave this out");
        }
        self.check_circles(section);
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.domains.iter().find(|rule| !seen.insert(rule.domain.to_lowercase())) {
            section.blame("domains", format!("{} is named twice", twice.domain), "one next server for each domain");
        }
    }

    /// Mail must not be sent to a port of our own.
    fn check_circles(&self, section: &mut Section<'_, '_>) {
        let hint = "name the port of the server that takes the mail on";
        if let Some(ours) = self.hand_back.iter().find(|server| self.is_ours(server)) {
            section.blame("hand_back", format!("{ours} is our own port: mail would go in circles"), hint);
        }
        let own = self.domains.iter().find(|rule| match &rule.way {
            Some(RuleWay::Smtp(server) | RuleWay::Lmtp(server)) => self.is_ours(server),
            _ => false,
        });
        if let Some(rule) = own {
            section.blame(
                "domains",
                format!("{rule:?} leads to our own port: mail would go in circles", rule = rule.to_string()),
                hint,
            );
        }
    }

    fn is_ours(&self, server: &MailServer) -> bool {
        let Endpoint::Host(name, port) = &server.0 else { return false };
        let Ok(ip) = name.parse() else { return false };
        let server = SocketAddr::new(ip, *port);
        self.listen.iter().chain(&self.listen_lmtp).any(|own| {
            let any = own.ip().is_unspecified() && ip.is_loopback();
            *own == server || (any && own.port() == *port)
        })
    }
}
