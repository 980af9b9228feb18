//! Values of settings that are written as text.

use super::vm_rule::VmRule;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use weir_mail::delivery::route;
use weir_settings::{DeValue, Value, text_value};
use weir_smtp::network::Network;

text_value!(Endpoint: "\"127.0.0.1:2587\"", Server: "\"mail.example:25\"", RouteRule: "\"example.org mx\"", DomainRule: "\"example.org smtp:10.0.0.5:25\"", BackendRule: "\"app 10.0.0.1:8080\"", WebRoute: "\"example.org/api app\"", GroupRule: "\"campus 192.0.2.0/24\"", VmRule: "\"vm1 memory=192\"", LabEntry: "\"10.7.0.1\"", Net: "\"192.0.2.0/24\"");

/// Where a lab is entered: the IPv4 address of one of its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LabEntry(pub(crate) Ipv4Addr);

impl FromStr for LabEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<LabEntry, String> {
        text.parse().map(LabEntry).map_err(|_| format!("{text:?} is not an IPv4 address: write \"10.7.0.1\""))
    }
}

impl fmt::Display for LabEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint(pub(crate) SocketAddr);

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let wrong = |_| format!("{text:?} is not an address with a port: write \"127.0.0.1:2587\" or \"[::1]:2587\"");
        text.parse().map(Endpoint).map_err(wrong)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A network, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Net {
    written: String,
    pub(crate) network: Network,
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Net, String> {
        let network = text.parse().map_err(|error| format!("{text:?} is not a network: {error}"))?;
        Ok(Net { written: text.to_owned(), network })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// A server by name or address with its port, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server(pub(crate) route::Endpoint);

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        let wrong = || format!("{text:?} is not a server: write \"mail.example:25\", \"[::1]:25\" or \"unix:/path\"");
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(Server(route::Endpoint::Socket(path.into())));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain =
            !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
        if !plain || (bare.contains(':') && bare == host) {
            return Err(wrong());
        }
        Ok(Server(route::Endpoint::Host(bare.to_owned(), port)))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            route::Endpoint::Socket(path) => write!(f, "unix:{}", path.display()),
            host => host.fmt(f),
        }
    }
}

/// Mail for a domain goes a way of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteRule {
    pub(crate) domain: String,
    pub(crate) way: RuleWay,
}

/// The ways that a rule can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleWay {
    Maildir,
    Mx,
    Smtp(Server),
    Lmtp(Server),
}

impl FromStr for RouteRule {
    type Err = String;

    fn from_str(text: &str) -> Result<RouteRule, String> {
        let wrong = || {
            format!(
                "{text:?} is not a route: write a domain and maildir, mx, smtp:HOST:PORT, lmtp:HOST:PORT or lmtp:unix:/PATH"
            )
        };
        let (domain, way) = text.split_once(' ').ok_or_else(wrong)?;
        let way = match way.trim().split_once(':') {
            None if way.trim() == "maildir" => RuleWay::Maildir,
            None if way.trim() == "mx" => RuleWay::Mx,
            Some(("smtp", server)) => RuleWay::Smtp(server.parse()?),
            Some(("lmtp", server)) => RuleWay::Lmtp(server.parse()?),
            _ => return Err(wrong()),
        };
        if !is_domain(domain) {
            return Err(wrong());
        }
        Ok(RouteRule { domain: domain.to_owned(), way })
    }
}

/// A domain, perhaps with a dot in front.
fn is_domain(domain: &str) -> bool {
    let name = domain.strip_prefix('.').unwrap_or(domain);
    let strange = |c: char| c.is_whitespace() || c.is_control() || "@:[]<>%!/".contains(c);
    (1..=253).contains(&name.len()) && !name.split('.').any(str::is_empty) && !name.contains(strange)
}

impl fmt::Display for RouteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            RuleWay::Maildir => write!(f, "{} maildir", self.domain),
            RuleWay::Mx => write!(f, "{} mx", self.domain),
            RuleWay::Smtp(server) => write!(f, "{} smtp:{server}", self.domain),
            RuleWay::Lmtp(server) => write!(f, "{} lmtp:{server}", self.domain),
        }
    }
}

/// A domain of ours, and where its mail goes if not as all mail does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainRule {
    pub(crate) domain: String,
    pub(crate) way: Option<RuleWay>,
}

impl FromStr for DomainRule {
    type Err = String;

    fn from_str(text: &str) -> Result<DomainRule, String> {
        if text.contains(' ') {
            let RouteRule { domain, way } = text.parse()?;
            return Ok(DomainRule { domain, way: Some(way) });
        }
        match is_domain(text) {
            true => Ok(DomainRule { domain: text.to_owned(), way: None }),
            false => Err(format!("{text:?} is not a domain: write \"example.org\" or \"example.org smtp:HOST:PORT\"")),
        }
    }
}

impl fmt::Display for DomainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            None => f.write_str(&self.domain),
            Some(way) => RouteRule { domain: self.domain.clone(), way: way.clone() }.fmt(f),
        }
    }
}

/// A backend of the web gate: a name, its servers, and what differs from the section's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackendRule {
    pub(crate) name: String,
    pub(crate) servers: Vec<String>,
    pub(crate) slots: Option<SlotsRule>,
    pub(crate) health: Option<String>,
    pub(crate) stops_early: bool,
    /// The name that servers with TLS have to prove.
    pub(crate) sni: Option<String>,
    /// Whether any certificate of theirs will do.
    pub(crate) unverified: bool,
}

/// What a server with TLS begins with.
const SECURE: &str = "https://";

/// A server list is no longer.
const SERVERS_MAX: usize = 64;

impl FromStr for BackendRule {
    type Err = String;

    fn from_str(text: &str) -> Result<BackendRule, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} is not a backend: {what}; write \"app 10.0.0.1:8080 https://b.example:8443 slots=8 health=/alive stops_early\""
            )
        };
        let mut words = text.split_whitespace();
        let name = words.next().filter(|name| is_label(name)).ok_or_else(|| wrong("it begins with no name"))?;
        let mut rule = BackendRule::new(name, Vec::new());
        for word in words {
            match word.split_once('=') {
                Some(("slots", value)) => rule.slots = Some(value.parse()?),
                Some(("health", path)) if path.starts_with('/') => rule.health = Some(path.to_owned()),
                Some(("sni", name)) if is_label(name) => rule.sni = Some(name.to_owned()),
                None if word == "stops_early" => rule.stops_early = true,
                None if word == "unverified" => rule.unverified = true,
                None => rule.servers.push(web_server(word).map_err(|what| wrong(&what))?),
                Some(_) => return Err(wrong(&format!("{word:?} is not known"))),
            }
        }
        let secure = rule.servers.iter().any(|server| server.starts_with(SECURE));
        if (rule.sni.is_some() || rule.unverified) && !secure {
            return Err(wrong("sni and unverified are for servers that begin with https://"));
        }
        if (1..=SERVERS_MAX).contains(&rule.servers.len()) {
            Ok(rule)
        } else {
            Err(wrong("1 to 64 servers are expected"))
        }
    }
}

impl BackendRule {
    /// A backend with nothing of its own but servers.
    pub(crate) fn new(name: &str, servers: Vec<String>) -> BackendRule {
        let (slots, health, sni) = (None, None, None);
        BackendRule { name: name.to_owned(), servers, slots, health, stops_early: false, sni, unverified: false }
    }
}

/// A server of a backend as it is called: `host:port`, or `https://host:port`, where 443 may be left out.
fn web_server(word: &str) -> Result<String, String> {
    let (scheme, place) = match word.strip_prefix(SECURE) {
        Some(place) => (SECURE, place.strip_suffix('/').unwrap_or(place)),
        None => ("", word.strip_prefix("http://").unwrap_or(word)),
    };
    let portless = place.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'));
    let place = if scheme == SECURE && portless { format!("{place}:443") } else { place.to_owned() };
    match place.parse::<Server>() {
        Ok(Server(route::Endpoint::Host(host, port))) => {
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            Ok(format!("{scheme}{host}:{port}"))
        }
        _ => Err(format!("{word:?} is no server with its port")),
    }
}

impl fmt::Display for BackendRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.servers.join(" "))?;
        if let Some(slots) = self.slots {
            write!(f, " slots={slots}")?;
        }
        if let Some(path) = &self.health {
            write!(f, " health={path}")?;
        }
        if let Some(name) = &self.sni {
            write!(f, " sni={name}")?;
        }
        if self.unverified {
            f.write_str(" unverified")?;
        }
        if self.stops_early { f.write_str(" stops_early") } else { Ok(()) }
    }
}

pub(super) fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// How many requests a backend works on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotsRule {
    Auto,
    Fixed(u16),
}

impl FromStr for SlotsRule {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotsRule, String> {
        if text == "auto" {
            return Ok(SlotsRule::Auto);
        }
        let number = text.parse().ok().filter(|number| *number > 0);
        number.map(SlotsRule::Fixed).ok_or_else(|| format!("{text:?} is no number of slots: write auto or 1 … 65535"))
    }
}

impl fmt::Display for SlotsRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotsRule::Auto => f.write_str("auto"),
            SlotsRule::Fixed(number) => number.fmt(f),
        }
    }
}

/// Which requests go to a backend of the web gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebRoute {
    /// Empty for every host.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) backend: String,
}

impl FromStr for WebRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<WebRoute, String> {
        let wrong = || {
            format!("{text:?} is not a route: write a host or *, a path if any, and a backend: \"example.org/api app\"")
        };
        let (place, backend) = text.split_once(' ').ok_or_else(wrong)?;
        let backend = backend.trim();
        let (host, path) = place.find('/').map_or((place, "/"), |slash| place.split_at(slash));
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_host = host == "*" || (name.len() <= 253 && name.split('.').all(is_label));
        if !is_host || !is_label(backend) || path.bytes().any(|byte| byte <= b' ' || byte == b'?' || byte == b'#') {
            return Err(wrong());
        }
        let host = if host == "*" { String::new() } else { host.to_ascii_lowercase() };
        Ok(WebRoute { host, path: path.to_owned(), backend: backend.to_owned() })
    }
}

impl fmt::Display for WebRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.is_empty() { "*" } else { &self.host };
        let path = if self.path == "/" { "" } else { &self.path };
        write!(f, "{host}{path} {}", self.backend)
    }
}

/// Subnets that count as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRule {
    pub(crate) name: String,
    /// As they were written.
    pub(crate) networks: Vec<String>,
}

impl FromStr for GroupRule {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupRule, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let name = words.next().filter(|name| is_label(name));
        let name = name.ok_or_else(|| format!("{text:?} is not a group: write a name and its networks"))?;
        let networks: Vec<String> = words.collect();
        for network in &networks {
            let parsed = network.parse::<weir_web::identity::Network>();
            parsed.map_err(|error| format!("{network:?} is not a network: {error}"))?;
        }
        if networks.is_empty() {
            Err(format!("the group {name:?} has no networks"))
        } else {
            Ok(GroupRule { name, networks })
        }
    }
}

impl fmt::Display for GroupRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.networks.join(" "))
    }
}

/// Any printable text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Value for Text {
    fn from_toml(value: &DeValue<'_>) -> Result<Text, String> {
        String::from_toml(value).map(Text)
    }

    fn to_toml(&self) -> String {
        self.0.to_toml()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["mail.example:25", "[2001:db8::1]:24", "unix:/run/lmtp", "192.0.2.1:2525"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
        for text in ["example.org maildir", ".example.org mx", "a.b smtp:h:1", "a.b lmtp:unix:/x", "a.b lmtp:[::1]:24"]
        {
            assert_eq!(text.parse::<RouteRule>().unwrap().to_string(), text);
            assert_eq!(text.parse::<DomainRule>().unwrap().to_string(), text);
        }
        assert_eq!("bücher.example".parse::<DomainRule>().unwrap().to_string(), "bücher.example");
    }

    #[test]
    fn backends_routes_and_groups_of_the_web_gate() {
        for text in [
            "app 10.0.0.1:80",
            "a [::1]:8080 b.example:81 slots=8 health=/x stops_early",
            "a h:1 slots=auto",
            "a https://[::1]:8443 h:80 sni=b.example unverified",
        ] {
            assert_eq!(text.parse::<BackendRule>().unwrap().to_string(), text);
        }
        let servers = |text: &str| text.parse::<BackendRule>().unwrap().servers.join(" ");
        assert_eq!(
            servers("a https://b.example/ https://[::1] http://c:81"),
            "https://b.example:443 https://[::1]:443 c:81"
        );
        for text in [
            "",
            "app",
            "app h",
            "a/b h:1",
            "app h:1 slots=0",
            "app h:1 colour=red",
            "app h:1 health=x",
            "app unix:/x",
            "app h:1 sni=x",
            "app h:1 unverified",
            "app https://h:x",
            "app https://",
            "app https://h/path",
        ] {
            assert!(text.parse::<BackendRule>().is_err(), "{text}");
        }
        for text in ["* app", "example.org app", "*.example.org/api app", "*/static files"] {
            assert_eq!(text.parse::<WebRoute>().unwrap().to_string(), text);
        }
        for text in ["", "example.org", "a..b app", "* a b", "*/x?y app", "a*b app"] {
            assert!(text.parse::<WebRoute>().is_err(), "{text}");
        }
        assert_eq!("g 192.0.2.0/24 2001:db8::/32".parse::<GroupRule>().unwrap().networks.len(), 2);
        for text in ["", "g", "g nonsense", "g 1.2.3.4/33"] {
            assert!(text.parse::<GroupRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "mail.example", "mail.example:0", "mail.example:x", "::1:25", "unix:relative", "a b:25", ":25"]
        {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
        for text in
            ["", "example.org", "example.org pigeon", " mx", "a..b mx", "ann@x.org mx", "x.org smtp:", "x.org mx:y"]
        {
            assert!(text.parse::<RouteRule>().is_err(), "{text}");
        }
        for text in ["", ".", "a..b", "ann@x.org", "[192.0.2.1]", "x.org pigeon", "x%y", "a/b"] {
            assert!(text.parse::<DomainRule>().is_err(), "{text}");
        }
    }
}
