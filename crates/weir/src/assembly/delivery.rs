//! Builds the settings of delivery from the section `[delivery]`.

use super::hostname;
use crate::config::Config;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_mail::delivery::resolver::Dns;
use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Routes, Smarthost};
use weir_mail::delivery::settings::Settings;
use weir_mail::delivery::{DeliverySettings, RuleWay, Way};
use weir_mail::inbound::InboundSettings;
use weir_smtp::client::approach::{Approach, Credentials};
use weir_store::folder::DataFolder;

/// How long one query to a name server may take.
const DNS_PATIENCE: Duration = Duration::from_secs(5);

/// The settings of delivery, and a description of them for people.
pub(crate) fn delivery(config: &Config, data: &DataFolder) -> anyhow::Result<(Settings, String)> {
    let from = &config.delivery;
    let ways = Ways::new(from, &config.inbound, data)?;
    let mut settings = Settings::new(&hostname(config), ways.maildir.clone());
    settings.routes = ways.routes();
    settings.queue = from.queue.clone();
    settings.ourselves.port = from.mx_port;
    settings.ourselves.addresses = config.inbound.listen.clone();
    settings.roots.clone_from(&from.roots);
    if let Some(server) = from.dns.first() {
        settings.dns = Dns::Server(*server, DNS_PATIENCE);
    }
    (settings.dane, settings.dns_trusted) = (from.dane, from.dns_trusted);
    settings.sts_port = settings.sts_port.filter(|_| from.mta_sts);
    if let Some(postmaster) = &from.postmaster {
        settings.reports.postmaster.clone_from(postmaster);
    }
    Ok((settings, ways.about()))
}

/// Finds the ways on which mail leaves this site.
struct Ways<'a> {
    from: &'a DeliverySettings,
    inbound: &'a InboundSettings,
    maildir: PathBuf,
    login: Option<Credentials>,
}

impl Ways<'_> {
    fn new<'a>(
        from: &'a DeliverySettings,
        inbound: &'a InboundSettings,
        data: &DataFolder,
    ) -> anyhow::Result<Ways<'a>> {
        let maildir = from.maildir.clone().unwrap_or_else(|| data.path().join("mail"));
        let login = match from.login.as_str() {
            "" => None,
            user => Some(Credentials { user: user.to_owned(), password: first_line(&from.password_file)? }),
        };
        Ok(Ways { from, inbound, maildir, login })
    }

    fn routes(&self) -> Routes {
        let default = match self.from.way {
            Way::Maildir => self.maildir(),
            Way::Mx => self.mx(),
            Way::Smarthost => Route::Smarthost(self.hosts(false)),
            Way::Lmtp => Route::Lmtp(self.hosts(true)),
        };
        let others = self.from.routes.iter().map(|rule| (&rule.domain, &rule.way));
        let ours = self.inbound.domains.iter().filter_map(|rule| Some((&rule.domain, rule.way.as_ref()?)));
        let rules = others.chain(ours);
        let routes = rules.fold(Routes::new(default), |routes, (domain, way)| routes.with(domain, self.by_rule(way)));
        match self.inbound.hand_back.as_slice() {
            [] => routes,
            servers => routes.with_back(Route::Smarthost(Smarthost {
                hosts: servers.iter().map(|server| server.0.clone()).collect(),
                order: HostOrder::Failover,
                approach: Approach { tls: self.from.tls, ..Approach::default() },
            })),
        }
    }

    fn by_rule(&self, way: &RuleWay) -> Route {
        match way {
            RuleWay::Maildir => self.maildir(),
            RuleWay::Mx => self.mx(),
            RuleWay::Smtp(server) => Route::Smarthost(self.one(&server.0, false)),
            RuleWay::Lmtp(server) => Route::Lmtp(self.one(&server.0, true)),
        }
    }

    fn maildir(&self) -> Route {
        Route::Maildir(self.maildir.clone())
    }

    fn mx(&self) -> Route {
        Route::Mx(Approach { tls: self.from.tls, ..Approach::default() })
    }

    fn hosts(&self, lmtp: bool) -> Smarthost {
        let (tls, implicit_tls, login) = (self.from.tls, self.from.implicit_tls, self.login.clone());
        Smarthost {
            hosts: self.from.hosts.iter().map(|server| server.0.clone()).collect(),
            order: self.from.order,
            approach: Approach { lmtp, tls, implicit_tls, login, ..Approach::default() },
        }
    }

    /// The route to a server that only one rule names. It does not get the login, which belongs to the hosts of `[delivery]` alone.
    fn one(&self, server: &Endpoint, lmtp: bool) -> Smarthost {
        let approach = Approach { lmtp, tls: self.from.tls, ..Approach::default() };
        Smarthost { hosts: vec![server.clone()], order: HostOrder::Failover, approach }
    }

    fn about(&self) -> String {
        let hosts = || self.from.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let default = match self.from.way {
            Way::Maildir => format!("Maildir in {}", self.maildir.display()),
            Way::Mx => "MX: each recipient's own servers".to_owned(),
            Way::Smarthost => format!("smarthost {}", hosts()),
            Way::Lmtp => format!("LMTP to {}", hosts()),
        };
        let ours = self.inbound.domains.iter().filter(|rule| rule.way.is_some()).count();
        match self.from.routes.len() + ours + usize::from(!self.inbound.hand_back.is_empty()) {
            0 => default,
            1 => format!("{default}, and one other route"),
            more => format!("{default}, and {more} other routes"),
        }
    }
}

fn first_line(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| anyhow::anyhow!("delivery.password_file {} cannot be read: {error}", path.display()))?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    anyhow::ensure!(!line.is_empty(), "delivery.password_file {} has no password in its first line", path.display());
    Ok(line)
}
