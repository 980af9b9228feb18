//! The settings of the mail gate: how it takes mail, decides about it and stores it. Those of the stages behind (authentication, scan,
//! delivery) are [`super::StageSettings`].

use crate::clamd_door::DoorSettings;
use crate::domains::Domains;
use crate::inbound;
use crate::milter_door::MilterSettings;
use crate::notices;
use crate::policy_door::PolicySettings;
use crate::submission::{self, Identity, Notify, RaiseAlarm, SubmissionSettings};
use crate::throttle::ThrottleSettings;
use std::fmt;
use std::sync::Arc;
use weir_foundation::StoreSettings;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::settings::Settings as SmtpSettings;
use weir_store::spool::ShareLimits;
use weir_tls::NamedCertificates;

/// How the mail gate behaves.
#[derive(Clone)]
pub struct Settings {
    /// Our name: greeting, trace headers, certificate.
    pub hostname: String,
    /// Where users hand in mail, and how.
    pub submission: SubmissionSettings,
    /// What clients may use.
    pub limits: SmtpLimits,
    /// How many new people a user may write to, and how fast.
    pub throttle: ThrottleSettings,
    /// The spool and the diary.
    pub store: StoreSettings,
    /// To whom notices go, and how.
    pub notices: notices::Settings,
    /// How mail from outside is taken; None if it is not.
    pub inbound: Option<inbound::Settings>,
    /// Where other programs ask about files.
    pub clamd_door: DoorSettings,
    /// Where other mail servers ask about their mail.
    pub milter: MilterSettings,
    /// Where Postfix asks about recipients.
    pub policy_service: PolicySettings,
    /// Certificates that are got from an authority, by host name.
    pub named: Arc<NamedCertificates>,
}

impl Settings {
    /// Sessions of submission: logins, limits, trusted peers.
    pub(super) fn smtp(&self) -> SmtpSettings {
        SmtpSettings {
            hostname: self.hostname.as_str().into(),
            auth: self.submission.auth(),
            auth_without_tls: self.submission.auth_without_tls,
            require_tls: self.submission.require_tls,
            trusted: self.submission.trusted.clone(),
            mend_text: self.submission.mend_text,
            limits: self.limits.clone(),
            ..SmtpSettings::default()
        }
    }

    /// The domains that are this site's: those that are named as such, and those that mail is taken for.
    fn own_domains(&self) -> Domains {
        let taken_for = self.inbound.iter().flat_map(|inbound| inbound.domains.iter());
        Domains::new(self.throttle.own_domains.iter().map(String::as_str).chain(taken_for))
    }

    /// The rules of submission on this relay.
    pub(super) fn rules(
        &self,
        relay: &str,
        recipient_secret: [u8; 32],
        notify: Notify,
        alarm: RaiseAlarm,
    ) -> submission::Settings {
        let SubmissionSettings { identity, sender_must_match, received_from, clients, .. } = self.submission.clone();
        submission::Settings {
            hostname: self.hostname.clone(),
            relay: relay.to_owned(),
            identity,
            clients,
            dovecot: self.submission.dovecot_socket.is_some(),
            learn_only: self.throttle.learn_only,
            ipv6_prefix_bits: self.limits.ipv6_prefix_bits,
            sender_must_match: sender_must_match && identity == Identity::Login,
            users_release: self.submission.users_release,
            received_names_client: self.submission.received_names_client,
            share: ShareLimits { messages: self.submission.user_messages, octets: self.submission.user_size },
            received_from,
            asked_by_servers: self.milter.is_on() || self.policy_service.is_on(),
            profiles: self.throttle.profiles(),
            params: self.throttle.person,
            own_domains: self.own_domains(),
            partner_domains: Domains::new(&self.throttle.partner_domains),
            recipient_secret,
            link: self.notices.link.clone(),
            tell_delays_over: self.notices.tell_delays_over,
            notify,
            alarm,
        }
    }
}

/// The settings of an empty configuration.
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hostname: "localhost".to_owned(),
            submission: SubmissionSettings::default(),
            limits: SmtpLimits::default(),
            throttle: ThrottleSettings::default(),
            store: StoreSettings::default(),
            notices: notices::Settings::default(),
            inbound: None,
            clamd_door: DoorSettings::default(),
            milter: MilterSettings::default(),
            policy_service: PolicySettings::default(),
            named: Arc::default(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hostname", &self.hostname)
            .field("listen", &self.submission.listen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_known_only_where_each_is_checked() {
        let knows = |submission: SubmissionSettings| {
            let settings = Settings { submission, ..Settings::default() };
            settings.rules("r1", [0; 32], Box::new(|_, _, _| {}), Box::new(|_| {})).knows_senders()
        };
        let usual = SubmissionSettings::default;
        assert!(knows(usual()));
        assert!(!knows(SubmissionSettings { sender_must_match: false, ..usual() }));
        assert!(!knows(SubmissionSettings { identity: Identity::ClientAddress, ..usual() }));
        assert!(!knows(SubmissionSettings { received_from: vec!["127.0.0.1".parse().unwrap()], ..usual() }));
    }
}
