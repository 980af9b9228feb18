//! From the configuration to the settings of the gates.

use crate::config::{Config, RuleWay, Server, Way};
use std::path::Path;
use std::time::Duration;
use weir_mail::delivery::client::approach::{Approach, Credentials};
use weir_mail::delivery::resolver::Dns;
use weir_mail::delivery::route::{Order, Route, Routes, Smarthost};
use weir_mail::delivery::settings::Settings as DeliverySettings;
use weir_mail::gate;
use weir_mail::notices;
use weir_mail::smtp::settings::{Auth, Settings as SmtpSettings};
use weir_mail::smtp::tls::CertificateFiles;
use weir_mail::submission::Identity;
use weir_store::folder::DataFolder;

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
        hashes_at_once: submission.hashes_at_once as usize,
        spool: config.store.spool.clone(),
        grace: submission.grace.0,
        notices: notices::Settings {
            hostname: hostname.clone(),
            admin: config.notices.admin.clone(),
            webhook: config.notices.webhook.clone(),
            link: config.notices.link.clone(),
        },
        hostname,
    }
}

/// How delivery behaves, and the same in words.
pub(crate) fn delivery(config: &Config, data: &DataFolder) -> anyhow::Result<(DeliverySettings, String)> {
    let from = &config.delivery;
    let maildir = if from.maildir.as_os_str().is_empty() { data.path().join("mail") } else { from.maildir.clone() };
    let login = match from.login.as_str() {
        "" => None,
        user => Some(Credentials { user: user.to_owned(), password: first_line(&from.password_file)? }),
    };
    let approach = |lmtp: bool, login: Option<Credentials>| Approach {
        lmtp,
        tls: from.tls,
        implicit_tls: from.implicit_tls,
        login,
        ..Approach::default()
    };
    let mx = || Route::Mx(Approach { tls: from.tls, shun_own_name: true, ..Approach::default() });
    let hosts: Vec<_> = from.hosts.iter().map(|server| server.0.clone()).collect();
    let named = from.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let all =
        |lmtp: bool| Smarthost { hosts: hosts.clone(), order: from.order, approach: approach(lmtp, login.clone()) };
    let (default, about) = match from.way {
        Way::Maildir => (Route::Maildir(maildir.clone()), format!("Maildir in {}", maildir.display())),
        Way::Smarthost => (Route::Smarthost(all(false)), format!("smarthost {named}")),
        Way::Lmtp => (Route::Lmtp(all(true)), format!("LMTP to {named}")),
        Way::Mx => (mx(), "MX: each recipient's own servers".to_owned()),
    };
    let one = |server: &Server, approach: Approach| Smarthost {
        hosts: vec![server.0.clone()],
        order: Order::Failover,
        approach,
    };
    let routes = from.routes.iter().fold(Routes::new(default), |routes, rule| {
        let route = match &rule.way {
            RuleWay::Maildir => Route::Maildir(maildir.clone()),
            RuleWay::Mx => mx(),
            RuleWay::Smtp(server) => Route::Smarthost(one(server, approach(false, None))),
            RuleWay::Lmtp(server) => Route::Lmtp(one(server, approach(true, None))),
        };
        routes.with(&rule.domain, route)
    });
    let also = if from.routes.is_empty() { String::new() } else { format!(", {} routes besides", from.routes.len()) };
    let mut settings = DeliverySettings::new(&hostname(config), maildir);
    settings.routes = routes;
    settings.queue = from.queue.clone();
    settings.ourselves.port = from.mx_port;
    settings.roots = (!from.roots.as_os_str().is_empty()).then(|| from.roots.clone());
    if let Some(server) = from.dns.first() {
        settings.dns = Dns::Server(server.0, DNS_PATIENCE);
    }
    if !from.postmaster.is_empty() {
        settings.reports.postmaster.clone_from(&from.postmaster);
    }
    Ok((settings, format!("{about}{also}")))
}

/// How long one question to a name server may take.
const DNS_PATIENCE: Duration = Duration::from_secs(5);

fn first_line(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| anyhow::anyhow!("delivery.password_file {} cannot be read: {error}", path.display()))?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    anyhow::ensure!(!line.is_empty(), "delivery.password_file {} has no password in its first line", path.display());
    Ok(line)
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
