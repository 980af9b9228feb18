//! `[inbound]`: mail from other servers, for which domains, and where it goes.

use super::calls::Calls;
use super::value::{DomainRule, Endpoint, Net, RuleWay, Server};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_mail::delivery::route::Endpoint as Host;
use weir_mail::inbound::recipients::{CalloutSettings, Remembering};
use weir_settings::Section;
use weir_settings::units::{Size, Span};
use weir_smtp::limits::Limits;

/// By what recipients are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Callout,
    File,
    Store,
    Any,
}

#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    pub(crate) listen: Vec<Endpoint>,
    pub(crate) listen_lmtp: Vec<Endpoint>,
    pub(crate) domains: Vec<DomainRule>,
    pub(crate) recipients: Check,
    pub(crate) recipient_file: PathBuf,
    pub(crate) callout: CalloutSettings,
    pub(crate) trusted: Vec<Net>,
    pub(crate) hand_back: Vec<Server>,
    pub(crate) require_tls: bool,
    pub(crate) authenticate: bool,
    pub(crate) dns_patience: Span,
    pub(crate) evaluations: u32,
    limits: OwnLimits,
}

/// What differs from `[limits]`, since the clients are servers that nobody here knows.
#[derive(Debug, Clone)]
struct OwnLimits {
    connections: u32,
    connections_per_address: u32,
    recipients: u32,
    message_size: Size,
    body_line: u32,
    refused_recipients: u32,
    unknown_recipients: u32,
}

impl Inbound {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Inbound {
        let addresses = ("addresses with ports", 64);
        let read = Inbound {
            listen: s.list("listen", Vec::new(), addresses, "Where SMTP for our domains listens; empty for nowhere"),
            listen_lmtp: s.list("listen_lmtp", Vec::new(), addresses, "Where LMTP for our domains listens"),
            domains: s.list(
                "domains",
                Vec::new(),
                ("domains", 10_000),
                "Our domains, each with its next server: \"example.org smtp:10.0.0.5:25\", \"example.net lmtp:unix:/run/lmtp\", \
                 \"example.com maildir\", or \"example.edu\" alone to go as [delivery] says; a leading dot means everything below",
            ),
            recipients: s.choice(
                "recipients",
                &[("callout", Check::Callout), ("file", Check::File), ("store", Check::Store), ("any", Check::Any)],
                "By what recipients are known: the next server is asked, a file, the addresses of our users, or anybody exists",
            ),
            recipient_file: s.path("recipient_file",
                "A file with an address a line, or @example.org for a whole domain; read again when it changes",
            ),
            callout: callout(s),
            trusted: s.list(
                "trusted",
                Vec::new(),
                ("networks", 256),
                "Servers that may relay to anywhere and name the true client by XFORWARD or XCLIENT",
            ),
            hand_back: s.list(
                "hand_back",
                Vec::new(),
                ("servers", 32),
                "Where mail of trusted servers goes whoever its recipients are, such as Postfix's port behind a content_filter; \
                 empty to go as all other mail",
            ),
            require_tls: s.flag("require_tls", false, "Whether mail is taken only under TLS; most of the world's is not"),
            authenticate: s.flag(
                "authenticate",
                true,
                "Whether SPF, DKIM and DMARC are evaluated into an Authentication-Results header",
            ),
            dns_patience: s.bounded(
                "dns_patience",
                Span(Duration::from_secs(10)),
                Span(Duration::from_millis(100))..=Span(Duration::from_secs(60)),
                "How long the DNS is asked about one message; what it did not answer is temperror, and the mail goes on",
            ),
            evaluations: s.bounded("evaluations", 256, 1..=10_000, "Messages that are evaluated at once"),
            limits: OwnLimits::read(s),
        };
        read.check(s);
        read
    }

    /// Whether anything listens.
    pub(crate) fn is_on(&self) -> bool {
        !self.listen.is_empty() || !self.listen_lmtp.is_empty()
    }

    /// The limits of its sessions: those of everybody, but for its own.
    pub(crate) fn limits(&self, general: &Limits) -> Limits {
        let own = &self.limits;
        Limits {
            connections: own.connections,
            connections_per_address: own.connections_per_address,
            recipients: own.recipients,
            message_bytes: own.message_size.0,
            body_line_bytes: own.body_line,
            refused_recipients: own.refused_recipients,
            failed_logins_per_address: own.unknown_recipients,
            ..general.clone()
        }
    }

    fn check(&self, s: &mut Section<'_, '_>) {
        // Who writes that there are no domains wants nothing but the orders that notices ask for.
        let used = s.is_given("domains") || !self.trusted.is_empty();
        if self.is_on() && !used {
            let hint = "name our domains: domains = [\"example.org smtp:10.0.0.5:25\"], or list trusted servers; domains = [] is for \
                        answers to notices alone";
            s.blame("listen", "no mail would be taken: there are neither domains nor trusted servers".into(), hint);
        }
        if !self.is_on() && !self.domains.is_empty() {
            s.blame("domains", "nothing listens for these domains".into(), "give listen or listen_lmtp an address");
        }
        if (self.recipients == Check::File) == self.recipient_file.as_os_str().is_empty() {
            let what = "recipients = \"file\" and recipient_file belong together".to_owned();
            s.blame("recipients", what, "set both, or neither");
        }
        if self.trusted.iter().any(|network| network.to_string().ends_with("/0")) {
            let what = "a network of all addresses may relay to anywhere: an open relay".to_owned();
            s.blame("trusted", what, "list the addresses of your own servers only");
        }
        if !self.hand_back.is_empty() && self.trusted.is_empty() {
            s.blame("hand_back", "there is nobody whose mail is handed back".into(), "list the server in trusted");
        }
        self.check_circles(s);
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.domains.iter().find(|rule| !seen.insert(rule.domain.to_lowercase())) {
            s.blame("domains", format!("{} is named twice", twice.domain), "one next server for each domain");
        }
    }

    /// Mail must not be sent to a port of our own.
    fn check_circles(&self, s: &mut Section<'_, '_>) {
        let hint = "name the port of the server that takes the mail on";
        if let Some(ours) = self.hand_back.iter().find(|server| self.is_ours(server)) {
            s.blame("hand_back", format!("{ours} is our own port: mail would go in circles"), hint);
        }
        let own = self.domains.iter().find(|rule| match &rule.way {
            Some(RuleWay::Smtp(server) | RuleWay::Lmtp(server)) => self.is_ours(server),
            _ => false,
        });
        if let Some(rule) = own {
            s.blame(
                "domains",
                format!("{rule:?} leads to our own port: mail would go in circles", rule = rule.to_string()),
                hint,
            );
        }
    }

    fn is_ours(&self, server: &Server) -> bool {
        let Host::Host(name, port) = &server.0 else { return false };
        let Ok(ip) = name.parse() else { return false };
        let server = SocketAddr::new(ip, *port);
        self.listen.iter().chain(&self.listen_lmtp).any(|own| {
            let any = own.0.ip().is_unspecified() && ip.is_loopback();
            own.0 == server || (any && own.0.port() == *port)
        })
    }
}

impl OwnLimits {
    fn read(s: &mut Section<'_, '_>) -> OwnLimits {
        let most = 1_000_000;
        OwnLimits {
            connections: s.bounded("connections", 5_000, 1..=most, "Connections at once, in all"),
            connections_per_address: s.bounded(
                "connections_per_address",
                50,
                1..=most,
                "Connections at once from one address",
            ),
            recipients: s.bounded("recipients_per_message", 1_000, 1..=Limits::RECIPIENTS_MAX, "Recipients of one message"),
            message_size: s.bounded(
                "message_size",
                Size(Limits::default().message_bytes),
                Size(1 << 10)..=Size(Limits::MESSAGE_BYTES_MAX),
                "The largest message",
            ),
            body_line: s.bounded(
                "body_line",
                0,
                0..=1_000_000_000,
                "The longest line of a message in bytes; 0 is no limit, since much of the world's mail breaks RFC 5321's 998",
            ),
            refused_recipients: s.bounded(
                "refused_recipients",
                20,
                1..=100_000,
                "Refused recipients before a session ends",
            ),
            unknown_recipients: s.bounded(
                "unknown_recipients",
                200,
                1..=100_000,
                "Recipients that do not exist, tried from one address within limits.failed_login_window, before it is banned",
            ),
        }
    }
}

fn callout(s: &mut Section<'_, '_>) -> CalloutSettings {
    let d = CalloutSettings::default();
    let span = |secs: u64| Span(Duration::from_secs(secs));
    let week = 7 * 86_400;
    let patience = s.bounded(
        "callout_patience",
        Span(d.patience),
        Span(Duration::from_millis(100))..=span(240),
        "How long the next server is asked about a recipient before the client hears 451",
    );
    let at_once = s.bounded("callouts", d.at_once as u32, 1..=1_000, "Questions to next servers at once");
    let yes = s.bounded(
        "callout_yes",
        Span(d.remembering.yes),
        span(0)..=span(week),
        "How long a recipient that exists is not asked about again",
    );
    let no =
        s.bounded("callout_no", Span(d.remembering.no), span(0)..=span(week), "The same for one that does not exist");
    let at_need = s.bounded(
        "callout_yes_at_need",
        Span(d.remembering.yes_at_need),
        span(0)..=span(30 * 86_400),
        "How long a recipient that existed is taken while the next server cannot be asked",
    );
    let most = s.bounded(
        "callout_memory",
        d.remembering.most as u32,
        1..=10_000_000,
        "Recipients of each kind that are remembered",
    );
    let remembering = Remembering { yes: yes.0, no: no.0, yes_at_need: at_need.0, most: most as usize };
    CalloutSettings { patience: patience.0, at_once: at_once as usize, remembering }
}
