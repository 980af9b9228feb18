//! The notation of servers, routes and domains in the configuration.

use super::route::Endpoint;
use std::fmt;
use std::str::FromStr;
use weir_settings::text_value;

text_value!(
    MailServer: "\"mail.example:25\"",
    RouteRule: "\"example.org mx\"",
    DomainRule: "\"example.org smtp:10.0.0.5:25\"",
);

/// A server by name or address with its port, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer(pub Endpoint);

impl FromStr for MailServer {
    type Err = String;

    fn from_str(text: &str) -> Result<MailServer, String> {
        let wrong = || format!("{text:?} is not a server: write \"mail.example:25\", \"[::1]:25\" or \"unix:/path\"");
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(MailServer(Endpoint::Socket(path.into())));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain =
            !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
        if !plain || (bare.contains(':') && bare == host) {
            return Err(wrong());
        }
        Ok(MailServer(Endpoint::Host(bare.to_owned(), port)))
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Endpoint::Socket(path) => write!(f, "unix:{}", path.display()),
            host => host.fmt(f),
        }
    }
}

/// Mail for a domain goes a way of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRule {
    /// The domain; with a dot before it, everything below it.
    pub domain: String,
    /// Where its mail goes.
    pub way: RuleWay,
}

/// The ways that a rule can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleWay {
    /// Into folders on this machine.
    Maildir,
    /// To the servers of the domain.
    Mx,
    /// To this server.
    Smtp(MailServer),
    /// To this LMTP server.
    Lmtp(MailServer),
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
pub struct DomainRule {
    /// The domain; with a dot before it, everything below it.
    pub domain: String,
    /// Where its mail goes.
    pub way: Option<RuleWay>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["mail.example:25", "[2001:db8::1]:24", "unix:/run/lmtp", "192.0.2.1:2525"] {
            assert_eq!(text.parse::<MailServer>().unwrap().to_string(), text);
        }
        for text in ["example.org maildir", ".example.org mx", "a.b smtp:h:1", "a.b lmtp:unix:/x", "a.b lmtp:[::1]:24"]
        {
            assert_eq!(text.parse::<RouteRule>().unwrap().to_string(), text);
            assert_eq!(text.parse::<DomainRule>().unwrap().to_string(), text);
        }
        assert_eq!("bücher.example".parse::<DomainRule>().unwrap().to_string(), "bücher.example");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "mail.example", "mail.example:0", "mail.example:x", "::1:25", "unix:relative", "a b:25", ":25"]
        {
            assert!(text.parse::<MailServer>().is_err(), "{text}");
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
