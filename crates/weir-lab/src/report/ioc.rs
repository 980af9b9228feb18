//! Indicators: what others can watch for. Only well-formed values count, because a plugin read them out of a hostile file.
//!
//! Only what happened when a sample ran, or what its makers wrote down for a program to follow (a template, a link that opens by itself, a
//! configuration), is an indicator. Strings that merely occur in a file are not: every program contains names from its libraries, and so
//! harmless names would end up on somebody's block list.

use super::behaviour::Acted;
use crate::job::Report;
use serde::Serialize;
use serde_json::value::RawValue;
use std::net::{IpAddr, SocketAddr};

/// The longest value.
const VALUE_MAX: usize = 2048;

/// Plugins that list everything that looks like an indicator.
const BARE: [&str; 3] = ["strings", "identify", "yara"];

/// Names that are in thousands of honest programs, or that stand for no machine: calling them says nothing about a sample.
const NOBODYS: [&str; 24] = [
    "apache.org",
    "arpa",
    "canonical.com",
    "debian.org",
    "fedoraproject.org",
    "freedesktop.org",
    "gnu.org",
    "iana.org",
    "ietf.org",
    "invalid",
    "kernel.org",
    "local",
    "localdomain",
    "localhost",
    "mozilla.org",
    "ns.adobe.com",
    "openxmlformats.org",
    "purl.org",
    "python.org",
    "schemas.microsoft.com",
    "schemas.xmlsoap.org",
    "test",
    "ubuntu.com",
    "w3.org",
];

/// One indicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ioc {
    /// What it is.
    pub kind: IocKind,
    /// Its value.
    pub value: String,
    /// The plugin that found it.
    pub from: String,
}

/// What an indicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IocKind {
    /// A link.
    Url,
    /// An IPv4 or IPv6 address.
    Ip,
    /// A domain name.
    Domain,
    /// A mail address.
    Email,
}

impl Ioc {
    /// Whether it only looks like an indicator: it was not seen to be called.
    pub(super) fn is_bare(&self) -> bool {
        BARE.contains(&self.from.as_str())
    }
}

/// The indicators of one report.
pub(super) fn of(plugin: &str, report: &RawValue, acted: Option<&Acted>) -> Vec<Ioc> {
    let ioc = |(kind, value): (IocKind, String)| Ioc { kind, value, from: plugin.to_owned() };
    let read = Report::read(report.get().as_bytes()).ok();
    let artifacts = read.iter().flat_map(|report| &report.artifacts);
    let named = artifacts.filter_map(|artifact| checked(&artifact.data_type, artifact.data.as_deref()?));
    let seen = acted.into_iter().flat_map(|acted| &acted.seen.network).filter_map(|line| match line.what.as_str() {
        "connect" | "http" | "send" => {
            let to = line.to.parse::<SocketAddr>().ok().filter(|to| is_foreign(to.ip()));
            to.map(|to| (IocKind::Ip, to.ip().to_string()))
        }
        "dns" => checked("domain", &line.to),
        _ => None,
    });
    named.chain(seen).filter(|(_, value)| !is_nobodys(value)).map(ioc).collect()
}

fn checked(data_type: &str, value: &str) -> Option<(IocKind, String)> {
    let value = value.trim();
    if value.is_empty() || value.len() > VALUE_MAX || value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return None;
    }
    match data_type {
        "url" => value
            .split_once("://")
            .filter(|(scheme, rest)| is_word(scheme) && !rest.is_empty())
            .map(|_| (IocKind::Url, value.into())),
        "ip" => value.parse::<IpAddr>().ok().map(|ip| (IocKind::Ip, ip.to_string())),
        "domain" | "fqdn" => {
            is_domain(value).then(|| (IocKind::Domain, value.trim_end_matches('.').to_ascii_lowercase()))
        }
        "mail" | "email" => {
            let (local, domain) = value.rsplit_once('@')?;
            (!local.is_empty() && is_domain(domain)).then(|| (IocKind::Email, value.to_owned()))
        }
        _ => None,
    }
}

/// Whether a link, a mail address or a name belongs to one of those.
fn is_nobodys(value: &str) -> bool {
    let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let is_under = |name: &str| host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    NOBODYS.iter().any(|name| is_under(name))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let text = text.trim_end_matches('.');
    text.len() <= 253 && text.contains('.') && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

/// Whether an address is not one of the guest's own, whose answers to names are in 198.18.0.0/15.
pub(crate) fn is_foreign(ip: IpAddr) -> bool {
    let ours = matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 198 && ip.octets()[1] & 0xfe == 18);
    !ip.is_loopback() && !ip.is_unspecified() && !ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_names_and_bare_strings_are_no_indicators() {
        for (value, is) in [
            ("http://www.debian.org/", true),
            ("https://user@ftp.GNU.org:8080/x", true),
            ("localhost", true),
            ("ann@w3.org", true),
            ("evil-debian.org", false),
            ("http://debian.org.evil.example/", false),
            ("http://evil.example/?debian.org", false),
            ("203.0.113.9", false),
        ] {
            assert_eq!(is_nobodys(value), is, "{value}");
        }
        let report = r#"{"success":true,"artifacts":[{"dataType":"url","data":"http://evil.example/x"}]}"#;
        let report = RawValue::from_string(report.to_owned()).unwrap();
        assert!(of("strings", &report, None)[0].is_bare());
        assert!(!of("office-pdf", &report, None)[0].is_bare());
    }

    #[test]
    fn only_what_is_what_it_says() {
        for (data_type, value, fits) in [
            ("url", "http://a.example/x", true),
            ("url", "javascript:alert(1)", false),
            ("url", "://x", false),
            ("url", "http://a b", false),
            ("ip", "10.0.0.1", true),
            ("ip", "10.0.0.256", false),
            ("domain", "Evil.Example.", true),
            ("domain", "10.0.0.1", false),
            ("domain", "localhost", false),
            ("domain", "a..b", false),
            ("mail", "a@b.example", true),
            ("mail", "@b.example", false),
            ("file", "x", false),
        ] {
            assert_eq!(checked(data_type, value).is_some(), fits, "{data_type} {value}");
        }
        assert_eq!(checked("domain", "Evil.Example.").unwrap().1, "evil.example");
    }
}
