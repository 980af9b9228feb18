//! How a TOML value becomes a typed one, and back.

use crate::units::{Rate, Size, Span};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use toml::de::DeValue;
use weir_mail::delivery::route;
use weir_mail::smtp::network::Network;
use weir_scan::address::Address;

/// A type that a setting can have.
pub(crate) trait Value: Sized + Clone {
    /// Reads it, or says what was expected.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String>;
    /// Writes it as TOML.
    fn to_toml(&self) -> String;
}

impl Value for u32 {
    fn from_toml(value: &DeValue<'_>) -> Result<u32, String> {
        let DeValue::Integer(integer) = value else {
            return Err(format!("a whole number is expected, not {}", value.type_str()));
        };
        let parsed = i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix());
        let number = parsed.map_err(|_| format!("{} is too large a number", integer.as_str()))?;
        u32::try_from(number).map_err(|_| format!("{number} is not a whole number from 0 to {}", u32::MAX))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

impl Value for f64 {
    fn from_toml(value: &DeValue<'_>) -> Result<f64, String> {
        let text = match value {
            DeValue::Float(float) => float.as_str(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            other => return Err(format!("a number is expected, not {}", other.type_str())),
        };
        let number: f64 = text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))?;
        if number.is_finite() { Ok(number) } else { Err(format!("{text} is not a finite number")) }
    }

    fn to_toml(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for bool {
    fn from_toml(value: &DeValue<'_>) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| format!("true or false is expected, not {}", value.type_str()))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

/// The units are written as strings, so that `"10s"` needs no knowledge of what `10` would mean.
macro_rules! text_value {
    ($($unit:ty: $example:literal),*) => {$(
        impl Value for $unit {
            fn from_toml(value: &DeValue<'_>) -> Result<$unit, String> {
                let text = value.as_str();
                let text = text.ok_or_else(|| format!("text such as {} is expected, not {}", $example, value.type_str()))?;
                text.parse()
            }

            fn to_toml(&self) -> String {
                format!("\"{self}\"")
            }
        }
    )*};
}
text_value!(Rate: "\"1/min\"", Span: "\"10s\"", Size: "\"25MiB\"", Endpoint: "\"127.0.0.1:2587\"", Net: "\"192.0.2.0/24\"", Server: "\"mail.example:25\"", RouteRule: "\"example.org mx\"", DomainRule: "\"example.org smtp:10.0.0.5:25\"", Address: "\"unix:/run/clamav/clamd.ctl\"");

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

/// Any printable text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

/// A path or a URL is shorter.
const TEXT_MAX: usize = 4096;

impl Value for Text {
    fn from_toml(value: &DeValue<'_>) -> Result<Text, String> {
        let text = value.as_str().ok_or_else(|| format!("text in quotes is expected, not {}", value.type_str()))?;
        if text.len() > TEXT_MAX || text.contains(char::is_control) {
            return Err(format!("text of at most {TEXT_MAX} bytes without control characters is expected"));
        }
        Ok(Text(text.to_owned()))
    }

    fn to_toml(&self) -> String {
        format!("\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

impl<T: Value> Value for Vec<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Vec<T>, String> {
        let array = value.as_array().ok_or_else(|| format!("a list is expected, not {}", value.type_str()))?;
        array.iter().map(|item| T::from_toml(item.get_ref())).collect()
    }

    fn to_toml(&self) -> String {
        let items: Vec<String> = self.iter().map(T::to_toml).collect();
        format!("[{}]", items.join(", "))
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
