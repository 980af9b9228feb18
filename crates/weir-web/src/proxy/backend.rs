//! A backend: several servers that do the same work, how they are connected to, and how the configuration describes them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weir_settings::{settings, text_value};

use crate::admission::{self, Slots};
use crate::label::is_label;

settings! {
    /// Servers that do the same work, behind one fair queue.
    pub struct Backend {
        /// Its name, and how its queue is set up.
        pub admission: admission::Settings = part(),
        /// To connect to a server
        pub connect: Duration = duration("3s", "10ms"..="10m"),
        /// From a request to the first byte of its response
        pub response: Duration = duration("1m", "10ms"..="1d"),
        /// Between two pieces of a response
        pub piece as "response_piece": Duration = duration("1m", "10ms"..="1d"),
        /// How long an idle connection to a server is kept
        pub idle as "server_idle": Duration = duration("1m", "10ms"..="1d"),
        /// Idle connections to one server that a thread keeps
        pub idle_connections: u32 = number(1_024, 0..=65_535),
        /// Request bodies up to this size are kept in memory until a slot is free; larger ones in a file
        pub request_buffer: u64 = size("64KiB", "0"..="16MiB"),
        /// What is kept of one response in memory while its client takes it slowly; more goes to a file
        pub response_buffer: u64 = size("256KiB", "0"..="16MiB"),
        /// How often servers are checked: that they can be connected to, or that they answer if the backend has health=/path; 0s is never
        pub health_every: Duration = duration("5s", "0s"..="1d"),
        /// Failures in a row that make a server count as down
        pub failures: u32 = number(3, 1..=1_000),
        /// The part of all networks that hear nothing but errors (500, 502, 503, 504) of a server, at which others are preferred to it for as long as rest says; 0.0 is never
        pub breaker: f64 = number(0.5, 0.0..=1.0),
        /// How long a server that is down is left alone; then one request at a time tries it, until it has answered
        pub rest: Duration = duration("5s", "100ms"..="1d"),
        /// Its servers, as `host:port`, `https://host:port` for TLS, or `unix:/path`.
        pub servers: Vec<String> = fixed(Vec::new()),
        /// Who the servers with TLS have to be.
        pub trust: Trust = fixed(Trust::default()),
        /// The path to request from a server to check whether it is up. If there is none, checks only connect, which says nothing about answers.
        pub health_path: Option<String> = fixed(None),
        /// Whether the server stops working when its client goes: then a slot is free as soon as that happens.
        pub stops_early: bool = fixed(false),
        /// Whether bodies are passed on as they come, both ways.
        pub unbuffered: bool = fixed(false),
        /// Whether upgraded connections and event streams hold a slot: they keep one of the server's workers busy.
        pub streams_hold_slots: bool = fixed(false),
        /// Whether another proxy carries its requests, and asks here when each may go.
        pub elsewhere: bool = fixed(false),
    }
}

/// Who the servers with TLS have to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// A file with the certificates of authorities to trust, as PEM; none for those that the machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The name that they have to prove; if there is none, that of their address.
    pub name: Option<String>,
    /// Whether any certificate is accepted.
    pub unverified: bool,
}

/// A backend as the configuration writes it: a name, its servers, and what differs from the settings of all backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendRule {
    pub name: String,
    pub servers: Vec<String>,
    pub slots: Option<Slots>,
    pub health: Option<String>,
    pub stops_early: bool,
    pub unbuffered: bool,
    /// Whether upgraded connections and event streams hold a slot.
    pub streams_hold_slots: bool,
    /// The name that servers with TLS have to prove.
    pub sni: Option<String>,
    /// Whether any certificate of theirs is accepted.
    pub unverified: bool,
    /// Whether another proxy carries its requests; it has no servers then.
    pub elsewhere: bool,
}

text_value!(BackendRule: "\"app 10.0.0.1:8080\"");

/// How the address of a server with TLS begins.
const SECURE: &str = "https://";
/// How one with a Unix socket begins, and how long the system allows its path to be.
const SOCKET: &str = "unix:";
const SOCKET_PATH_BYTES: usize = 108;

/// The word for a backend whose requests another proxy carries.
const ELSEWHERE: &str = "forward_auth";
/// The longest list of servers.
const SERVERS_MAX: usize = 64;

impl BackendRule {
    /// A backend with no settings of its own except servers.
    pub fn new(name: &str, servers: Vec<String>) -> BackendRule {
        let (slots, health, sni) = (None, None, None);
        BackendRule {
            name: name.to_owned(),
            servers,
            slots,
            health,
            stops_early: false,
            unbuffered: false,
            streams_hold_slots: false,
            sni,
            unverified: false,
            elsewhere: false,
        }
    }

    /// The backend: like `usual`, except for what the rule sets.
    pub(super) fn over(&self, mut usual: Backend) -> Backend {
        usual.admission.name.clone_from(&self.name);
        usual.admission.slots = self.slots.unwrap_or(usual.admission.slots);
        Backend {
            servers: self.servers.clone(),
            trust: Trust { name: self.sni.clone(), unverified: self.unverified, ..usual.trust },
            health_path: self.health.clone(),
            stops_early: self.stops_early,
            unbuffered: self.unbuffered,
            streams_hold_slots: self.streams_hold_slots,
            elsewhere: self.elsewhere,
            ..usual
        }
    }
}

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
                Some(("streams", "slots")) => rule.streams_hold_slots = true,
                Some(("sni", name)) if is_label(name) => rule.sni = Some(name.to_owned()),
                None if word == "stops_early" => rule.stops_early = true,
                None if word == "unbuffered" => rule.unbuffered = true,
                None if word == "unverified" => rule.unverified = true,
                None if word == ELSEWHERE => rule.elsewhere = true,
                None => rule.servers.push(server(word).map_err(|what| wrong(&what))?),
                Some(_) => return Err(wrong(&format!("{word:?} is not known"))),
            }
        }
        let secure = rule.servers.iter().any(|server| server.starts_with(SECURE));
        if (rule.sni.is_some() || rule.unverified) && !secure {
            return Err(wrong("sni and unverified are for servers that begin with https://"));
        }
        match rule.servers.len() {
            0 if rule.elsewhere => Ok(rule),
            1.. if rule.elsewhere => Err(wrong("another proxy knows the servers of a backend with forward_auth")),
            1..=SERVERS_MAX => Ok(rule),
            _ => Err(wrong("1 to 64 servers are expected")),
        }
    }
}

impl fmt::Display for BackendRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.servers.iter().try_for_each(|server| write!(f, " {server}"))?;
        if self.elsewhere {
            write!(f, " {ELSEWHERE}")?;
        }
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
        if self.streams_hold_slots {
            f.write_str(" streams=slots")?;
        }
        if self.unbuffered {
            f.write_str(" unbuffered")?;
        }
        if self.stops_early { f.write_str(" stops_early") } else { Ok(()) }
    }
}

/// A server as it is written: `host:port`, `https://host:port`, where 443 may be left out, or `unix:/path`.
fn server(word: &str) -> Result<String, String> {
    if let Some(path) = word.strip_prefix(SOCKET) {
        let good = path.starts_with('/') && path.len() < SOCKET_PATH_BYTES;
        return good.then(|| word.to_owned()).ok_or_else(|| format!("{word:?} is no socket: write unix:/run/app.sock"));
    }
    let (scheme, place) = match word.strip_prefix(SECURE) {
        Some(place) => (SECURE, place.strip_suffix('/').unwrap_or(place)),
        None => ("", word.strip_prefix("http://").unwrap_or(word)),
    };
    let portless = place.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'));
    let place = if scheme == SECURE && portless { format!("{place}:443") } else { place.to_owned() };
    let (host, port) = host_and_port(&place).ok_or_else(|| format!("{word:?} is no server with its port"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(format!("{scheme}{host}:{port}"))
}

/// A host, without the brackets of an IPv6 address, and a port other than 0.
fn host_and_port(place: &str) -> Option<(&str, u16)> {
    let (host, port) = place.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let plain = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    (plain && (bare != host || !bare.contains(':'))).then_some((bare, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_prints_parses_to_the_same() {
        for text in [
            "app 10.0.0.1:80",
            "a [::1]:8080 b.example:81 slots=8 health=/x stops_early",
            "a h:1 slots=auto",
            "a h:1 streams=slots unbuffered",
            "a unix:/run/app.sock unix:/run/b slots=4",
            "a https://[::1]:8443 h:80 sni=b.example unverified",
            "a forward_auth slots=4",
        ] {
            assert_eq!(text.parse::<BackendRule>().unwrap().to_string(), text);
        }
        let servers = |text: &str| text.parse::<BackendRule>().unwrap().servers.join(" ");
        assert_eq!(
            servers("a https://b.example/ https://[::1] http://c:81"),
            "https://b.example:443 https://[::1]:443 c:81"
        );
    }

    #[test]
    fn nonsense_is_no_backend() {
        for text in [
            "",
            "app",
            "app h",
            "a/b h:1",
            "app h:1 slots=0",
            "app h:1 colour=red",
            "app h:1 health=x",
            "app unix:x",
            "app unix:",
            "app h:1 streams=9",
            "app h:1 sni=x",
            "app h:1 unverified",
            "app https://h:x",
            "app https://",
            "app https://h/path",
            "app h:1 forward_auth",
        ] {
            assert!(text.parse::<BackendRule>().is_err(), "{text}");
        }
    }
}
