//! How the mail gate behaves, as the binary reads it from the configuration.

use crate::inbound;
use crate::notices;
use crate::submission::{self, Identity, Notify, RaiseAlarm};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_core::throttle::Params;
use weir_smtp::network::Network;
use weir_smtp::settings::Settings as SmtpSettings;
use weir_store::spool::Options as SpoolOptions;
use weir_tls::CertificateFiles;

/// How the mail gate behaves.
#[derive(Clone)]
pub struct Settings {
    /// Our name: greeting, trace headers, certificate.
    pub hostname: String,
    /// Where submission listens, with STARTTLS.
    pub listen: Vec<SocketAddr>,
    /// Where submission listens under TLS from the first octet.
    pub listen_tls: Vec<SocketAddr>,
    /// The certificate; a self-signed one is made if there is none.
    pub certificate: Option<CertificateFiles>,
    /// Sessions: logins, limits, trusted peers.
    pub smtp: SmtpSettings,
    /// Whose throttle a mail counts against.
    pub identity: Identity,
    /// Only learn what the throttle would do.
    pub learn_only: bool,
    /// Whether MAIL FROM and From must belong to the login.
    pub sender_must_match: bool,
    /// Peers whose topmost Received header names the user.
    pub received_from: Vec<Network>,
    /// The throttle of a person.
    pub params: Params,
    /// The throttle of the other profiles.
    pub profiles: BTreeMap<String, Params>,
    /// Dovecot's authentication socket, if the users are there.
    pub dovecot: Option<PathBuf>,
    /// The spool.
    pub spool: SpoolOptions,
    /// How much is remembered of what happened to messages, in bytes; 0 for nothing.
    pub diary_bytes: u64,
    /// How long messages that are coming in may take when the gate stops.
    pub grace: Duration,
    /// To whom notices go, and how.
    pub notices: notices::Settings,
    /// How mail from outside is taken; not at all if there is nothing here.
    pub inbound: Option<inbound::Settings>,
}

impl Settings {
    /// The rules of submission on this relay.
    pub(super) fn rules(
        &self,
        relay: &str,
        recipient_secret: [u8; 32],
        notify: Notify,
        alarm: RaiseAlarm,
    ) -> submission::Settings {
        submission::Settings {
            hostname: self.hostname.clone(),
            relay: relay.to_owned(),
            identity: self.identity,
            learn_only: self.learn_only,
            ipv6_prefix_bits: self.smtp.limits.ipv6_prefix_bits,
            sender_must_match: self.sender_must_match && self.identity == Identity::Login,
            received_from: self.received_from.clone(),
            profiles: self.profiles.clone(),
            params: self.params,
            recipient_secret,
            link: self.notices.link.clone(),
            notify,
            alarm,
        }
    }
}

/// Nothing listens; everything else as an empty configuration has it.
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hostname: "localhost".to_owned(),
            listen: Vec::new(),
            listen_tls: Vec::new(),
            certificate: None,
            smtp: SmtpSettings::default(),
            identity: Identity::Login,
            learn_only: false,
            sender_must_match: true,
            received_from: Vec::new(),
            params: Params::default(),
            profiles: BTreeMap::new(),
            dovecot: None,
            spool: SpoolOptions::default(),
            diary_bytes: 0,
            grace: Duration::from_secs(10),
            notices: notices::Settings {
                hostname: "localhost".to_owned(),
                admin: String::new(),
                webhook: None,
                link: String::new(),
                digest_every: Duration::from_secs(86_400),
            },
            inbound: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hostname", &self.hostname)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_known_only_where_each_is_checked() {
        let knows = |settings: Settings| {
            settings.rules("r1", [0; 32], Box::new(|_, _, _| {}), Box::new(|_| {})).knows_senders()
        };
        assert!(knows(Settings::default()));
        assert!(!knows(Settings { sender_must_match: false, ..Settings::default() }));
        assert!(!knows(Settings { identity: Identity::ClientAddress, ..Settings::default() }));
        assert!(!knows(Settings { received_from: vec!["127.0.0.1".parse().unwrap()], ..Settings::default() }));
    }
}
