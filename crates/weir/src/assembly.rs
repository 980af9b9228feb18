//! From the configuration to the settings of the gates.

mod console;
mod delivery;
mod inbound;
mod key_file;
mod lab;
mod plugins;
mod reload;
mod scan;
mod together;
mod vms;
mod web;
mod web_exchange;

pub(crate) use console::{ADMIN, Console, configuration, console, first_admin, webhooks};
pub(crate) use delivery::delivery;
pub(crate) use inbound::{demo, inbound};
pub(crate) use key_file::read_key;
pub(crate) use lab::{credentials, lab, lab_problems};
pub(crate) use reload::{Command, Outcome, ReloadAnswer, Reloader, own_routes};
pub(crate) use scan::Scan;
pub(crate) use together::CurrentLab;
pub(crate) use web::web_gate;
pub(crate) use web_exchange::{read_history, write_history};

use crate::config::{Config, Loaded};
use std::path::Path;
use weir_mail::gate;
use weir_mail::notices;
use weir_mail::submission::Identity;
use weir_smtp::settings::{Auth, Settings as SmtpSettings};
use weir_tls::CertificateFiles;

/// Whether the mail gate is wanted: as `submission.enabled` says. Where it says nothing, mail is on, unless the configuration is that of a web
/// front-end or of a machine of the lab, and says nothing of mail.
pub(crate) fn mail_is_wanted(config: &Config, loaded: &Loaded) -> bool {
    let given = |setting: &&crate::config::Setting| setting.line.is_some();
    let mut given = loaded.settings.iter().filter(given);
    if given.clone().any(|setting| (setting.section, setting.key) == ("submission", "enabled")) {
        return config.submission.enabled;
    }
    let other = (config.web.enabled && !config.web.backends.is_empty()) || config.lab.enabled;
    let of_mail = ["submission", "throttle", "inbound", "delivery", "scan", "quarantine"];
    let about_mail = |section: &str| of_mail.contains(&section.split('.').next().unwrap_or_default());
    !other || given.any(|setting| about_mail(setting.section))
}

/// The mail gate's settings.
pub(crate) fn mail_gate(config: &Config) -> gate::Settings {
    let submission = &config.submission;
    let hostname = hostname(config);
    let given = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
    gate::Settings {
        listen: submission.listen.iter().map(|at| at.0).collect(),
        listen_tls: submission.listen_tls.iter().map(|at| at.0).collect(),
        certificate: given(&submission.certificate)
            .zip(given(&submission.key))
            .map(|(chain, key)| CertificateFiles { chain, key }),
        smtp: SmtpSettings {
            hostname: hostname.as_str().into(),
            auth: auth(config),
            auth_without_tls: submission.auth_without_tls,
            require_tls: submission.require_tls,
            trusted: submission.trusted.iter().map(|net| net.network).collect(),
            limits: config.limits.clone(),
            ..SmtpSettings::default()
        },
        identity: submission.identity,
        learn_only: config.throttle.learn_only,
        sender_must_match: submission.sender_must_match,
        received_from: submission.received_from.iter().map(|net| net.network).collect(),
        params: config.throttle.person,
        profiles: config.throttle.profiles(),
        dovecot: given(&submission.dovecot_socket),
        spool: config.store.spool.clone(),
        diary_bytes: config.store.diary_bytes,
        grace: submission.grace.0,
        notices: notices::Settings {
            hostname: hostname.clone(),
            admin: config.notices.admin.clone(),
            webhook: config.notices.webhook.clone(),
            link: config.notices.link.clone(),
            digest_every: config.notices.digest_every,
        },
        hostname,
        // It needs to know how mail is delivered.
        inbound: None,
    }
}

fn hostname(config: &Config) -> String {
    let given = &config.submission.hostname;
    if given.is_empty() { machine_name() } else { given.clone() }
}

/// A login cannot be demanded of everybody: an order by mail comes from anybody who has its address, and some peers
/// name the user in a header. Submission itself refuses recipients to those who are nobody.
fn auth(config: &Config) -> Auth {
    match config.submission.identity {
        Identity::ClientAddress => Auth::Off,
        Identity::Login => Auth::Optional,
    }
}

/// This machine's name.
pub(crate) fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if plain { name.to_owned() } else { "localhost".to_owned() }
}
