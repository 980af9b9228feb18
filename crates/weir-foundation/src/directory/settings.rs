//! The section `[sign_in.ldap]`: a directory whose people may sign in.

use super::filter::{LOGIN, SearchFilter};
use crate::role_rule::RoleRule;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use weir_settings::{Section, settings, text_value};

settings! {
    /// People in an LDAP directory may log in to send mail and to use the console. Accounts with a password in Weir are not looked up
    /// there
    #[section("sign_in.ldap")]
    #[check(DirectorySettings::check)]
    pub struct DirectorySettings {
        /// Its servers, tried in this order: "ldaps://ldap.example.org", or "ldap://ldap.example.org" with StartTLS; none is off
        pub servers: Vec<DirectoryServer> = list([], 8, "servers"),
        /// Certificates of authorities to trust for them, as PEM; empty for those that the machine trusts
        pub ca_file: Option<PathBuf> = path().optional(),
        /// Send passwords to ldap:// servers without encryption, so that others on the network can read them
        pub without_encryption: bool = flag(false),
        /// The entry below which people are searched, such as "ou=people,dc=example,dc=org"
        pub base: String = text("", "the name of an entry"),
        /// The filter that finds a person's entry; {login} is what they typed
        pub filter: String = text("(uid={login})", "a filter with {login}").valid(|text| SearchFilter::read(text).map(drop)),
        /// Instead of looking for people: the name that everybody's entry has, such as "uid={login},ou=people,dc=example,dc=org"; empty to look for them
        pub entry: String = text("", "the name of an entry with {login}"),
        /// The entry as which Weir searches the directory; empty to search anonymously
        pub reader: String = text("", "the name of an entry"),
        /// The file whose first line is the password of that entry
        pub reader_password_file: Option<PathBuf> = path().optional(),
        /// The attribute whose first value is somebody's name here
        pub name_attribute: String = text("uid", "an attribute").valid(attribute),
        /// Below which entry groups are looked for that have somebody as member, uniqueMember or memberUid; empty to believe the attribute memberOf
        pub groups: String = text("", "the name of an entry"),
        /// Who is more than a user at the console, by group: "admin cn=weir-admins,ou=groups,dc=example,dc=org"; the highest counts
        pub roles: Vec<RoleRule> = list([], 64, "roles with their groups"),
        /// How long a whole login may take
        pub timeout: Duration = duration("10s", "100ms"..="1m"),
        /// How long somebody stays signed in at the console before the directory is asked again
        pub session: Duration = duration("1h", "1m"..="12h"),
    }
}

fn attribute(text: &str) -> Result<(), String> {
    let good = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
    if good { Ok(()) } else { Err(format!("{text:?} is not an attribute")) }
}

impl DirectorySettings {
    /// Whether there is a directory.
    pub fn is_on(&self) -> bool {
        !self.servers.is_empty()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        if !self.is_on() {
            return;
        }
        if self.base.is_empty() && self.entry.is_empty() {
            section.blame("base", "it is not said where people are".into(), "set base, or entry");
        }
        if !self.entry.is_empty() && !self.entry.contains(LOGIN) {
            let what = "everybody would be the same entry".to_owned();
            section.blame("entry", what, "write {login} where the login goes");
        }
        if self.entry.is_empty() && !SearchFilter::read(&self.filter).is_ok_and(|filter| filter.asks_for_login()) {
            let what = "everybody would be the same entry".to_owned();
            section.blame("filter", what, "write {login} as the value of an attribute: (uid={login})");
        }
        if self.reader.is_empty() != self.reader_password_file.is_none() {
            section.blame("reader", "reader and reader_password_file belong together".into(), "set both, or neither");
        }
        if let Some(rule) = self.roles.iter().find(|rule| !rule.group.contains('=')) {
            let what = format!("{:?} is not the name of an entry", rule.group);
            section.blame("roles", what, "write it whole: admin cn=weir-admins,ou=groups,dc=example,dc=org");
        }
    }
}

/// A server of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryServer {
    /// Whether TLS begins with the first octet. Otherwise StartTLS is used, unless the settings switch encryption off.
    pub secure: bool,
    /// Its name, which must be in its certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
}

text_value!(DirectoryServer: "\"ldaps://ldap.example.org\"");

impl FromStr for DirectoryServer {
    type Err = String;

    fn from_str(text: &str) -> Result<DirectoryServer, String> {
        let wrong = || format!("{text:?} is not a directory: write ldaps://host, or ldap://host:port");
        let (secure, place) = match text.trim_end_matches('/').split_once("://") {
            Some(("ldaps", place)) => (true, place),
            Some(("ldap", place)) => (false, place),
            _ => return Err(wrong()),
        };
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?),
            None => (place, if secure { 636 } else { 389 }),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:".contains(&octet);
        // Without brackets, a part of the address would be taken for the port.
        let unclear = bare == host && bare.contains(':');
        if bare.is_empty() || !bare.bytes().all(plain) || unclear {
            return Err(wrong());
        }
        Ok(DirectoryServer { secure, host: bare.to_owned(), port })
    }
}

impl fmt::Display for DirectoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.secure { ("ldaps", 636) } else { ("ldap", 389) };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { write!(f, "{scheme}://{host}") } else { write!(f, "{scheme}://{host}:{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["ldaps://a.example", "ldap://a.example", "ldaps://[::1]:1636", "ldap://10.0.0.1:3890"] {
            assert_eq!(text.parse::<DirectoryServer>().unwrap().to_string(), text);
        }
        assert_eq!("ldaps://[2001:db8::1]".parse::<DirectoryServer>().unwrap().port, 636);
        // Without brackets the last group of an address looks like a port.
        for text in ["ldaps://2001:db8::1", "ldap://::1:389", "ldap://[::1]x:389", "ldap://[::1"] {
            assert!(text.parse::<DirectoryServer>().is_err(), "{text}");
        }
        for text in ["", "http://a", "ldaps://", "ldaps://a:0", "ldaps://a b", "ldaps://u@a", "ldaps://a/dc=x"] {
            assert!(text.parse::<DirectoryServer>().is_err(), "{text}");
        }
    }
}
