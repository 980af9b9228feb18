//! Where mail for a recipient goes: a smarthost, the recipient's own servers (MX), LMTP, or a Maildir.
//!
//! A table of domains overrides the default: `example.org` for the domain itself, `.example.org` for everything
//! below it; the longest match wins. A [`Target`] is one destination with its own window: a route, and for MX the domain.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::message::Recipient;
use weir_smtp::client::approach::Approach;
use weir_smtp::client::command::ascii_domain;

/// How mail leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// To one of these hosts, whoever the recipient is.
    Smarthost(Smarthost),
    /// To the servers of the recipient's domain.
    Mx(Approach),
    /// To an LMTP server.
    Lmtp(Smarthost),
    /// Into folders on this machine.
    Maildir(PathBuf),
    /// Nowhere: such mail is returned with this text.
    Refuse(String),
}

/// Hosts that take everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Smarthost {
    /// The hosts.
    pub hosts: Vec<Endpoint>,
    /// How they are used.
    pub order: HostOrder,
    /// How to go to them.
    pub approach: Approach,
}

/// A host as it is configured.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Endpoint {
    /// Name or address, and port.
    Host(String, u16),
    /// A Unix socket.
    Socket(PathBuf),
}

/// How several hosts are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostOrder {
    /// The first that answers.
    #[default]
    Failover,
    /// In turn; the next one if one does not answer.
    RoundRobin,
}

/// All routes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    routes: Vec<Route>,
    /// Domain, or `.domain` for what is below it, and the place of its route.
    table: BTreeMap<String, u16>,
    /// The place of the route for mail that is handed back.
    back: Option<u16>,
}

/// One destination.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Target {
    /// Which route.
    pub route: u16,
    /// The domain, where the route depends on it.
    pub domain: Box<str>,
}

impl Routes {
    /// Everything goes this way.
    pub fn new(default: Route) -> Routes {
        Routes { routes: vec![default], table: BTreeMap::new(), back: None }
    }

    /// Mail for a domain (or, with a dot in front, for everything below it) goes another way.
    pub fn with(mut self, domain: &str, route: Route) -> Routes {
        let place = self.place(route);
        self.table.insert(canonical(domain), place);
        self
    }

    /// Mail that is to be handed back goes this way, whoever its recipients are.
    #[must_use]
    pub fn with_back(mut self, route: Route) -> Routes {
        self.back = Some(self.place(route));
        self
    }

    /// The destination of mail that is handed back, if there is one.
    pub fn back(&self) -> Option<Target> {
        self.back.map(|route| Target { route, domain: Box::default() })
    }

    /// The way that mail for this domain goes.
    pub fn way_to(&self, domain: &str) -> Option<&Route> {
        self.routes.get(usize::from(self.find(&canonical(domain))))
    }

    fn place(&mut self, route: Route) -> u16 {
        let place = self.routes.iter().position(|known| *known == route).unwrap_or_else(|| {
            self.routes.push(route);
            self.routes.len() - 1
        });
        u16::try_from(place).unwrap_or(0)
    }

    /// The destination of a recipient.
    pub fn target(&self, recipient: &Recipient) -> Target {
        let domain = canonical(recipient.to.mailbox.domain());
        let route = self.find(&domain);
        let by_domain = matches!(self.routes.get(usize::from(route)), Some(Route::Mx(_)));
        Target { route, domain: if by_domain { domain.into() } else { Box::default() } }
    }

    /// The route of a destination.
    pub fn route(&self, target: &Target) -> Option<&Route> {
        self.routes.get(usize::from(target.route))
    }

    /// What a destination is called.
    pub fn name(&self, target: &Target) -> String {
        match self.route(target) {
            Some(Route::Mx(_)) => target.domain.to_string(),
            Some(Route::Smarthost(smarthost) | Route::Lmtp(smarthost)) => {
                smarthost.hosts.first().map(Endpoint::to_string).unwrap_or_default()
            }
            Some(Route::Maildir(_)) => "maildir".into(),
            Some(Route::Refuse(_)) => "refused".into(),
            None => String::new(),
        }
    }

    /// The routes that lead to servers which the configuration names.
    pub(super) fn servers(&self) -> impl Iterator<Item = u16> {
        let named = |route: &Route| matches!(route, Route::Smarthost(_) | Route::Lmtp(_));
        let places = self.routes.iter().enumerate().filter(move |(_, route)| named(route));
        places.filter_map(|(place, _)| u16::try_from(place).ok())
    }

    /// What is at the end of such a route, and for which mail.
    pub(super) fn described(&self, place: u16) -> String {
        let name = match self.routes.get(usize::from(place)) {
            Some(Route::Smarthost(to) | Route::Lmtp(to)) => {
                to.hosts.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ")
            }
            _ => String::new(),
        };
        let lmtp = matches!(self.routes.get(usize::from(place)), Some(Route::Lmtp(_)));
        let server = if lmtp { "LMTP server" } else { "server" };
        let mut domains = self.table.iter().filter(|(_, route)| **route == place).map(|(domain, _)| domain);
        match (place, domains.next()) {
            (0, _) if lmtp => format!("the LMTP server {name}"),
            (0, _) => format!("the smarthost {name}"),
            (_, Some(domain)) => match domains.count() {
                0 => format!("the {server} {name} for {domain}"),
                1 => format!("the {server} {name} for {domain} and 1 other domain"),
                more => format!("the {server} {name} for {domain} and {more} other domains"),
            },
            (_, None) => format!("the server {name} for mail that is handed back"),
        }
    }

    fn find(&self, domain: &str) -> u16 {
        if self.table.is_empty() {
            return 0;
        }
        if let Some(place) = self.table.get(domain) {
            return *place;
        }
        let below = domain.match_indices('.').filter_map(|(at, _)| domain.get(at..));
        below.filter_map(|suffix| self.table.get(suffix)).next().copied().unwrap_or(0)
    }
}

/// A domain, perhaps with a dot in front, as routes are found by it: lower case, in ASCII, without a last dot.
pub(crate) fn canonical(domain: &str) -> String {
    let (dot, name) = domain.strip_prefix('.').map_or(("", domain), |name| (".", name));
    let name = name.strip_suffix('.').unwrap_or(name);
    let ascii = ascii_domain(name).unwrap_or_else(|| name.to_lowercase());
    format!("{dot}{ascii}")
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Host(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Endpoint::Host(name, port) => write!(f, "{name}:{port}"),
            Endpoint::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_smtp::envelope::RcptTo;

    fn target(routes: &Routes, to: &str) -> (u16, String) {
        let to = RcptTo::parse(&format!("<{to}>"), true).unwrap();
        let target = routes.target(&Recipient { index: 0, to });
        (target.route, target.domain.into())
    }

    #[test]
    fn the_longest_match_wins() {
        let routes = Routes::new(Route::Mx(Approach::default()))
            .with("example.org", Route::Refuse("a".into()))
            .with(".example.org", Route::Refuse("b".into()))
            .with(".sub.Example.org", Route::Refuse("c".into()))
            .with("bücher.example", Route::Refuse("a".into()));
        for (to, route) in [
            ("x@example.org", 1),
            ("x@EXAMPLE.org", 1),
            ("x@a.example.org", 2),
            ("x@sub.example.org", 2),
            ("x@a.b.sub.example.org", 3),
            ("x@xn--bcher-kva.example", 1),
            ("x@notexample.org", 0),
            ("postmaster", 0),
        ] {
            assert_eq!(target(&routes, to).0, route, "{to}");
        }
        assert_eq!(target(&routes, "x@Other.Example"), (0, "other.example".into()));
        assert_eq!(target(&routes, "x@example.org").1, "");
    }

    #[test]
    fn what_is_handed_back_goes_one_way() {
        let routes = Routes::new(Route::Mx(Approach::default())).with("example.org", Route::Refuse("a".into()));
        assert_eq!(routes.back(), None);
        let routes = routes.with_back(Route::Refuse("b".into()));
        let back = routes.back().unwrap();
        assert_eq!(routes.route(&back), Some(&Route::Refuse("b".into())));
        assert_eq!(target(&routes, "x@example.org").0, 1);
        assert_eq!(routes.way_to("EXAMPLE.org"), Some(&Route::Refuse("a".into())));
    }

    #[test]
    fn destinations_have_names() {
        let hosts = vec![Endpoint::Host("mail.example".into(), 25), Endpoint::Host("::1".into(), 2525)];
        let smarthost = Smarthost { hosts: hosts.clone(), order: HostOrder::Failover, approach: Approach::default() };
        let routes = Routes::new(Route::Smarthost(smarthost));
        assert_eq!(routes.name(&Target { route: 0, domain: "".into() }), "mail.example:25");
        assert_eq!(hosts[1].to_string(), "[::1]:2525");
    }
}
