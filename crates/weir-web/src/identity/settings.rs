//! The section `[web.identity]`: how clients are told apart. It must be the same at every front-end of a cluster.

use super::everybody::names_everybody;
use super::forwarded::Trail;
use super::network::{Network, NetworkError};
use super::secret::Secret;
use crate::label::is_label;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use weir_settings::{Section, settings, text_value};

settings! {
    /// How the web gate tells clients apart
    #[section("web.identity")]
    #[check(Settings::check)]
    pub struct Settings {
        /// A file with the cluster's secret, at least 16 bytes, the same at all front-ends; empty for DATA/web/secret, made at first start
        pub secret_file: Option<PathBuf> = path().optional(),
        /// How many leading bits of an IPv4 address make the subnet
        pub ipv4_prefix: u8 = count(24, 8..=32),
        /// How many leading bits of an IPv6 address make the subnet
        pub ipv6_prefix: u8 = count(56, 16..=64),
        /// Subnets that count as one, such as "campus 192.0.2.0/24 198.51.100.0/24"
        pub groups: Vec<NetworkGroup> =
            list([], 1_000, "groups").map(|rules: Vec<GroupRule>| rules.into_iter().map(|rule| rule.group).collect()),
        /// Proxies that are believed about the client's address
        pub trusted: Vec<Network> =
            networks(256).map(|list: Vec<TrustedNetwork>| list.into_iter().map(|trusted| trusted.0).collect()),
        /// Whether trusted may name the whole world: only where nothing but proxies of your own reaches the listeners, because everybody else could choose the address that they come from
        pub trust_everybody: bool = flag(false),
        /// Which header these proxies use for the client's address
        pub trail as "trusted_header": Trail =
            choice([("x-forwarded-for", Trail::XForwardedFor), ("forwarded", Trail::Forwarded)]),
        /// Whether trusted proxies begin every connection with a PROXY header (v1 or v2)
        pub proxy_protocol: bool = flag(false),
        /// How sessions are remembered.
        pub cookie: CookieSettings = part(),
    }
}

settings! {
    /// How sessions are remembered.
    pub struct CookieSettings {
        /// The name of the session cookie; empty for none: a session is then an address
        pub name as "cookie": String = text("weir", "a cookie name").valid(cookie_name),
        /// How long a session cookie is good for
        pub lifetime as "cookie_lifetime": Duration = duration("30d", "1m"..="400d"),
        /// A file with the key that signs session cookies, the same at all front-ends; empty for the cluster's secret
        pub key_file as "cookie_key_file": Option<PathBuf> = path().optional(),
        /// A file with the key that signed them before: its cookies are still good, and signed anew; empty for none
        pub previous_key_file as "previous_cookie_key_file": Option<PathBuf> = path().optional(),
        /// How old a cookie must be for its owner to be known, at any backend.
        pub standing_after: Duration = fixed(Duration::from_secs(5 * 60)),
        /// What is in the first file.
        pub key: Option<Secret> = fixed(None),
        /// What is in the second file.
        pub previous_key: Option<Secret> = fixed(None),
    }
}

impl Settings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if names_everybody(&self.trusted) && !self.trust_everybody {
            let what = "everybody would be believed about the address they come from, and could be a new visitor with every request, or \
                        somebody else"
                .to_owned();
            let hint =
                "list your own proxies only; if nothing else can reach the listeners, say so: trust_everybody = true";
            section.blame("trusted", what, hint);
        }
        if let Some(group) = self.groups.iter().find(|group| names_everybody(&group.networks)) {
            let what =
                format!("the group {:?} makes one subnet of the world, and an attacker's is everybody's", group.name);
            section.blame("groups", what, "name the networks of one provider or proxy farm");
        }
        if self.proxy_protocol && self.trusted.is_empty() {
            let what = "nobody's PROXY header would be read, and each would be refused as a broken request".to_owned();
            section.blame("proxy_protocol", what, "list the proxies that send it: trusted = [\"192.0.2.10\"]");
        }
    }
}

/// A proxy farm or a provider whose clients roam between subnets.
#[derive(Clone, Debug)]
pub struct NetworkGroup {
    /// Its name; the same name is the same group.
    pub name: String,
    /// Its networks. Where groups overlap, the longest prefix decides.
    pub networks: Vec<Network>,
}

/// A group, and how its networks were written.
#[derive(Debug, Clone)]
struct GroupRule {
    group: NetworkGroup,
    written: Vec<String>,
}

text_value!(GroupRule: "\"campus 192.0.2.0/24\"");

impl FromStr for GroupRule {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupRule, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let name = words.next().filter(|name| is_label(name));
        let name = name.ok_or_else(|| format!("{text:?} is not a group: write a name and its networks"))?;
        let written: Vec<String> = words.collect();
        if written.is_empty() {
            return Err(format!("the group {name:?} has no networks"));
        }
        let network = |text: &String| text.parse().map_err(|error| format!("{text:?} is not a network: {error}"));
        let networks = written.iter().map(network).collect::<Result<_, String>>()?;
        Ok(GroupRule { group: NetworkGroup { name, networks }, written })
    }
}

impl fmt::Display for GroupRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.group.name, self.written.join(" "))
    }
}

/// A network that is trusted. What is wrong with one is said with an example.
#[derive(Debug, Clone)]
struct TrustedNetwork(Network);

impl FromStr for TrustedNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<TrustedNetwork, String> {
        text.parse().map(TrustedNetwork).map_err(|error| match error {
            NetworkError::Address => "not an IP address; write 192.0.2.0/24, 2001:db8::/32 or one address".to_owned(),
            NetworkError::Prefix { most } => format!("the prefix length must be a number from 0 to {most}"),
            NetworkError::HostBits(_) => error.to_string(),
        })
    }
}

impl CookieSettings {
    /// How old the owner of a cookie may have to be. A cookie is renewed when half of its life is over, and the new one must be young enough to live
    /// for a while, although it keeps this age.
    pub fn standing_after_max(&self) -> Duration {
        self.lifetime / 3
    }
}

fn cookie_name(text: &str) -> Result<(), String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if plain && text.len() <= 64 {
        Ok(())
    } else {
        Err(format!("{text:?} is not a cookie name: write letters, digits, - and _"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_name_and_networks() {
        let rule: GroupRule = "g 192.0.2.1  2001:db8::/32".parse().unwrap();
        assert_eq!((rule.group.networks.len(), rule.to_string().as_str()), (2, "g 192.0.2.1 2001:db8::/32"));
        for text in ["", "g", "g nonsense", "g 1.2.3.4/33"] {
            assert!(text.parse::<GroupRule>().is_err(), "{text}");
        }
    }
}
