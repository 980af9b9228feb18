//! Builds the settings of the ports for mail from outside, from the section `[inbound]`.

use super::hostname;
use crate::config::Config;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use weir_mail::delivery::settings::Settings as DeliverySettings;
use weir_mail::delivery::{DomainRule, RuleWay};
use weir_mail::inbound::authenticity::AuthenticitySettings;
use weir_mail::inbound::enforcement::EnforcementSettings;
use weir_mail::inbound::recipients::Callout;
use weir_mail::inbound::{Domains, EvaluatorSettings, RecipientCheck, RecipientRule, Settings};
use weir_smtp::settings::{Auth, Settings as SmtpSettings};

/// The settings for mail from outside; none if no port is configured for it.
pub(crate) fn inbound(config: &Config, delivery: &DeliverySettings) -> anyhow::Result<Option<Settings>> {
    let from = &config.inbound;
    if !from.is_on() {
        return Ok(None);
    }
    let hostname = hostname(config);
    let recipients = match from.recipients {
        RecipientCheck::Callout => RecipientRule::Callout(Arc::new(Callout::new(delivery, from.callout)?)),
        RecipientCheck::File => RecipientRule::File(from.recipient_file.clone().unwrap_or_default()),
        RecipientCheck::Store => RecipientRule::Store,
        RecipientCheck::Any => RecipientRule::Any,
    };
    let domains = Domains::new(from.domains.iter().map(|rule| &rule.domain));
    let evaluation = from.authenticate.then(|| EvaluatorSettings {
        authenticity: AuthenticitySettings {
            hostname: hostname.clone(),
            dns: delivery.dns.clone(),
            ..from.authenticity.clone()
        },
        enforcement: EnforcementSettings { ours: domains.clone(), ..from.enforcement.clone() },
    });
    Ok(Some(Settings {
        listen: from.listen.clone(),
        listen_lmtp: from.listen_lmtp.clone(),
        smtp: SmtpSettings {
            hostname: hostname.as_str().into(),
            auth: Auth::Off,
            require_tls: from.require_tls,
            trusted: from.trusted.clone(),
            limits: from.limits(&config.limits),
            ..SmtpSettings::default()
        },
        domains,
        recipients,
        hand_back: !from.hand_back.is_empty(),
        rates: from.rates,
        dnsbl: from.dnsbl.clone(),
        dns: delivery.dns.clone(),
        evaluation,
    }))
}

/// The domain of the demonstration. It is reserved for tests (RFC 6761), so it belongs to nobody.
const DEMO_DOMAIN: &str = "demo.test";
/// The port at which the demonstration takes mail; if it is taken, one of the next ports.
const DEMO_PORT: u16 = 2525;

/// Gives a configuration without inbound mail a domain to try it with: every address in it has a Maildir.
pub(crate) fn demo(config: &Config) -> Config {
    let mut config = config.clone();
    config.scan.enabled = true;
    config.lab.enabled = true;
    super::vms::demo(&mut config.lab.vms);
    if config.inbound.is_on() {
        return config;
    }
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let free = (DEMO_PORT..DEMO_PORT + 10).find(|port| TcpListener::bind(at(*port)).is_ok()).unwrap_or(0);
    config.inbound.listen = vec![at(free)];
    config.inbound.domains = vec![DomainRule { domain: DEMO_DOMAIN.to_owned(), way: Some(RuleWay::Maildir) }];
    config.inbound.recipients = RecipientCheck::Any;
    config
}
