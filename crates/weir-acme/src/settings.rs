//! The section `[certificates]`: for which names to get certificates, from which authority, and how it checks the names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_settings::{Section, settings};

/// How an authority checks that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeKind {
    /// It requests a page on port 80.
    Http,
    /// It opens a TLS connection to port 443.
    TlsAlpn,
    /// It reads a TXT record, which a program of the operator sets.
    Dns,
}

settings! {
    /// Certificates that Weir gets from an authority and renews (ACME), for the web gate and for mail
    #[section("certificates")]
    #[check(CertificateSettings::check)]
    pub struct CertificateSettings {
        /// Host names to get a certificate for, one each; no other name is ever asked for
        pub names: Vec<String> = list([], 256, "host names"),
        /// Whether you agree to the authority's terms of service; without that it issues no certificate
        pub accept_terms: bool = flag(false),
        /// The authority's directory; the default is that of Let's Encrypt
        pub directory: String = text("https://acme-v02.api.letsencrypt.org/directory", "an https:// address").valid(https),
        /// A mail address at which the authority may reach you; empty for none
        pub contact: String = text("", "a mail address").valid(|text| {
            let plain = text.bytes().all(|octet| octet.is_ascii_graphic()) && !text.contains([',', '?', ':']);
            if text.is_empty() || (plain && text.contains('@')) { Ok(()) } else { Err(format!("{text:?} is not a mail address")) }
        }),
        /// How the authority finds out that the names are yours: it asks at port 80 (http-01) or at port 443 (tls-alpn-01), or looks at a DNS record
        /// that your program sets (dns-01)
        pub challenge: ChallengeKind = choice([
            ("http-01", ChallengeKind::Http),
            ("tls-alpn-01", ChallengeKind::TlsAlpn),
            ("dns-01", ChallengeKind::Dns),
        ]),
        /// Where a small server of its own answers http-01, on a machine on which the web gate does not have port 80
        pub listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// For dns-01, a program that is called with "set" or "unset", the name of the TXT record, and its value
        pub hook: Option<PathBuf> = path().optional(),
        /// For dns-01, how long a record takes to reach the authority's name servers
        pub hook_wait: Duration = duration("30s", "0s"..="1h"),
        /// Certificates of authorities to trust when the directory is called, as PEM; empty for those that the machine trusts
        pub ca_file: Option<PathBuf> = path().optional(),
        /// You are told if a certificate is valid for less than this, or for less than a sixth of its life
        pub alarm_before: Duration = duration("10d", "1m"..="90d"),
    }
}

impl CertificateSettings {
    /// Whether any certificate is to be obtained.
    pub fn is_on(&self) -> bool {
        !self.names.is_empty()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        for (at, name) in self.names.iter().enumerate() {
            if let Err(what) = self.check_name(name) {
                section.blame("names", what, "write a host name, such as \"www.example.org\"");
            }
            if self.names[..at].iter().any(|before| before.eq_ignore_ascii_case(name)) {
                section.blame("names", format!("{name:?} is there twice"), "name it once");
            }
        }
        if self.is_on() && !self.accept_terms {
            let what = "the authority wants you to agree to its terms of service".to_owned();
            section.blame("accept_terms", what, "read them, then set accept_terms = true");
        }
        if self.is_on() && (self.challenge == ChallengeKind::Dns) != self.hook.is_some() {
            let hint = "set both, or neither";
            section.blame("hook", "challenge = \"dns-01\" and hook belong together".to_owned(), hint);
        }
        if !self.listen.is_empty() && self.challenge != ChallengeKind::Http {
            let hint = "leave it out, or set challenge = \"http-01\"";
            section.blame("listen", "only http-01 is answered there".to_owned(), hint);
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        let (plain, wildcard) = match name.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let label = |label: &str| {
            let ends = label.starts_with('-') || label.ends_with('-');
            (1..=63).contains(&label.len())
                && !ends
                && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
        };
        let last = plain.rsplit('.').next().unwrap_or_default();
        let is_host = plain.len() <= 253 && plain.split('.').all(label) && !last.bytes().all(|o| o.is_ascii_digit());
        if !is_host {
            return Err(format!("{name:?} is not a host name"));
        }
        if wildcard && self.challenge != ChallengeKind::Dns {
            return Err(format!("{name:?} can only be proved with challenge = \"dns-01\""));
        }
        Ok(())
    }
}

fn https(text: &str) -> Result<(), String> {
    match text.parse::<http::Uri>() {
        Ok(uri) if uri.scheme_str() == Some("https") && uri.host().is_some() => Ok(()),
        _ => Err(format!("{text:?} is not an https:// address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_names_can_be_asked_for() {
        let settings = CertificateSettings::default();
        for name in ["www.example.org", "a", "xn--bcher-kva.example", "1.example"] {
            assert!(settings.check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(64);
        for name in [
            "",
            ".",
            "a..b",
            "-a.example",
            "a-.example",
            "a b",
            "192.0.2.1",
            "*.example.org",
            "a/b",
            "é.example",
            &long,
        ] {
            assert!(settings.check_name(name).is_err(), "{name}");
        }
        let dns = CertificateSettings { challenge: ChallengeKind::Dns, ..settings };
        assert!(dns.check_name("*.example.org").is_ok() && dns.check_name("*.*.example.org").is_err());
    }
}
