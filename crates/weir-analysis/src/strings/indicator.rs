//! Classifies one word of text: a link, an IP address, a host name, a mail address, or none of them.
//!
//! Words are also read as people write them who do not want them clicked: `hxxp://evil[.]example`. Bare names of machines count only
//! under top-level domains that are not also endings of files; in links and mail addresses any will do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Something to look for elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Indicator {
    Url(String),
    Ip(String),
    Domain(String),
    Mail(String),
    Path(String),
    Registry(String),
}

/// Top-level domains of bare names. Left out are those that end files, such as `.sh`, `.py`, `.so`, `.pl`, `.rs`, `.zip`, `.in`.
const TOP: &[&str] = &[
    "com", "net", "org", "info", "biz", "xyz", "top", "online", "site", "club", "shop", "icu", "live", "space",
    "website", "tech", "store", "link", "click", "work", "cloud", "dev", "onion", "edu", "gov", "mil", "int", "eu",
    "de", "uk", "fr", "nl", "ru", "su", "cn", "br", "jp", "kr", "it", "es", "ua", "ch", "at", "be", "se", "fi", "dk",
    "cz", "tk", "ga", "gq", "cf", "ws", "pw", "me", "tv", "us", "ca", "au", "nz", "za", "tr", "ir", "il", "hk", "tw",
    "sg", "vn", "th", "mx", "ar", "cl", "kz", "by", "gr", "pt", "hu", "ro", "bg", "test", "example", "invalid",
];
const SCHEMES: &[&str] = &[
    "http",
    "https",
    "ftp",
    "ftps",
    "sftp",
    "ssh",
    "tcp",
    "udp",
    "ws",
    "wss",
    "ldap",
    "ldaps",
    "smb",
    "rtsp",
    "irc",
    "stratum+tcp",
];
/// Hosts that only name vocabularies.
const VOCABULARIES: &[&str] = &[
    "www.w3.org",
    "w3.org",
    "schemas.microsoft.com",
    "schemas.openxmlformats.org",
    "schemas.xmlsoap.org",
    "purl.org",
    "ns.adobe.com",
    "purl.oclc.org",
    "docs.oasis-open.org",
];
/// Several links can be glued together; more than this are noise.
const LINKS_MAX: usize = 16;

impl Indicator {
    /// The word that Cortex has for it.
    pub(super) fn data_type(&self) -> &'static str {
        match self {
            Indicator::Url(_) => "url",
            Indicator::Ip(_) => "ip",
            Indicator::Domain(_) => "domain",
            Indicator::Mail(_) => "mail",
            Indicator::Path(_) => "filename",
            Indicator::Registry(_) => "registry",
        }
    }

    pub(super) fn text(&self) -> &str {
        let (Indicator::Url(text)
        | Indicator::Ip(text)
        | Indicator::Domain(text)
        | Indicator::Mail(text)
        | Indicator::Path(text)
        | Indicator::Registry(text)) = self;
        text
    }

    pub(super) fn is_vocabulary(&self) -> bool {
        let host = match self {
            Indicator::Domain(name) => name,
            Indicator::Url(link) => {
                link.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""))
            }
            _ => return false,
        };
        VOCABULARIES.contains(&host)
    }
}

/// Whether no link or name goes on behind this.
pub(super) fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'<' | b'>' | b'`' | b'|' | b'^') || !byte.is_ascii_graphic()
}

/// Everything in one word. Cost: linear.
pub(super) fn all(word: &[u8], mut each: impl FnMut(Indicator)) {
    // Most words have nothing in them that all of these need.
    if !word.iter().any(|byte| matches!(byte, b'.' | b':')) && memchr::memmem::find(word, b"dot").is_none() {
        return;
    }
    let Ok(text) = std::str::from_utf8(word) else { return };
    let plain = refanged(text);
    let mut linked = false;
    for link in links(&plain) {
        linked = true;
        url(link, &mut each);
    }
    if !linked {
        bare(&plain, &mut each);
    }
}

/// The word as it was before somebody made it harmless.
fn refanged(text: &str) -> String {
    if !text.contains(['[', '(', '{']) && !text.contains("xx") && !text.contains("XX") {
        return text.to_owned();
    }
    let mut plain = text.to_owned();
    for (from, to) in [
        ("[.]", "."),
        ("(.)", "."),
        ("{.}", "."),
        ("[dot]", "."),
        ("(dot)", "."),
        ("[:]", ":"),
        ("[://]", "://"),
        ("[at]", "@"),
        ("(at)", "@"),
        ("[@]", "@"),
        ("hxxp", "http"),
        ("hXXp", "http"),
        ("HXXP", "http"),
        ("fxp:", "ftp:"),
    ] {
        if plain.contains(from) {
            plain = plain.replace(from, to);
        }
    }
    plain
}

/// From each scheme to the next, or to the end.
fn links(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = Vec::new();
    for (at, _) in text.match_indices("://").take(LINKS_MAX) {
        let before = &text[..at];
        let from = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '+')).map_or(0, |place| place + 1);
        // What is glued to the scheme does not belong to it.
        let scheme =
            SCHEMES.iter().filter(|scheme| ends_with(&before[from..], scheme)).max_by_key(|scheme| scheme.len());
        if let Some(scheme) = scheme {
            starts.push(at - scheme.len());
        }
    }
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end)).collect()
}

fn ends_with(text: &str, ending: &str) -> bool {
    text.len()
        .checked_sub(ending.len())
        .and_then(|at| text.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

fn url(link: &str, each: &mut impl FnMut(Indicator)) {
    let link = trimmed(link);
    let Some((_, rest)) = link.split_once("://") else { return };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    let host = match host.strip_prefix('[') {
        Some(inside) => inside.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        each(Indicator::Ip(address.to_string()));
    } else if is_name(host) {
        each(Indicator::Domain(host.to_ascii_lowercase()));
    } else {
        return;
    }
    each(Indicator::Url(link.to_owned()));
}

/// Without the marks that end a sentence or close a bracket which was opened before.
fn trimmed(text: &str) -> &str {
    let mut text = text;
    // Once: a word may be all brackets.
    let first = ['(', '[', '{'].map(|bracket| text.find(bracket).unwrap_or(usize::MAX));
    while let Some(last) = text.chars().next_back() {
        let opened = match last {
            ')' => first[0] < text.len(),
            ']' => first[1] < text.len(),
            '}' => first[2] < text.len(),
            '.' | ',' | ';' | ':' | '!' | '?' | '\\' | '(' | '[' | '{' | '*' => false,
            _ => return text,
        };
        if opened {
            return text;
        }
        text = &text[..text.len() - last.len_utf8()];
    }
    text
}

/// A word without a link: an address, a mailbox, a name. Its pieces are what stands between marks that none of them has.
fn bare(text: &str, each: &mut impl FnMut(Indicator)) {
    for piece in text.split(['/', '\\', '=', ',', ';', '(', ')', '{', '}', '[', ']', '!', '?', '#', '&', '*', '$', '%'])
    {
        let piece = piece.trim_matches(['.', ':', '-', '+', '~']);
        if let Some(found) = mail(piece).or_else(|| address(piece)).or_else(|| name(piece)) {
            each(found);
        }
    }
}

fn mail(piece: &str) -> Option<Indicator> {
    let piece = piece.get(..7).filter(|start| start.eq_ignore_ascii_case("mailto:")).map_or(piece, |_| &piece[7..]);
    let (local, host) = piece.split_once('@')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let fit = (1..=64).contains(&local.len()) && local.chars().all(fits) && !local.starts_with('.') && is_name(host);
    fit.then(|| Indicator::Mail(format!("{local}@{}", host.to_ascii_lowercase())))
}

fn address(piece: &str) -> Option<Indicator> {
    if let Ok(six) = piece.parse::<Ipv6Addr>() {
        // `a::b` is also a name in many languages.
        let groups = six.segments().iter().filter(|group| **group != 0).count();
        return (groups >= 3).then(|| Indicator::Ip(six.to_string()));
    }
    let (host, port) = piece.split_once(':').map_or((piece, None), |(host, port)| (host, Some(port)));
    let four: Ipv4Addr = host.parse().ok()?;
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let told = four.octets()[0] != 0 && !four.is_loopback() && !four.is_broadcast() && !four.is_multicast();
    // Versions of programs look like addresses: those that end in zeros are.
    let version = four.octets()[2..] == [0, 0];
    (port_fits && told && !version).then(|| Indicator::Ip(four.to_string()))
}

fn name(piece: &str) -> Option<Indicator> {
    let (host, port) = piece.split_once(':').map_or((piece, None), |(host, port)| (host, Some(port)));
    let top = host.rsplit('.').next()?;
    // `System.Net` is a name of a class.
    let written = top.bytes().all(|c| c.is_ascii_lowercase()) || host.bytes().all(|c| !c.is_ascii_lowercase());
    let known = TOP.iter().any(|known| known.eq_ignore_ascii_case(top));
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok());
    // `e.com` is what is left of a broken word more often than a name.
    let long = host.rsplit('.').nth(1).is_some_and(|second| second.len() >= 2);
    (port_fits && written && known && long && is_name(host)).then(|| Indicator::Domain(host.to_ascii_lowercase()))
}

/// Two labels or more, and the last one of letters.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let (Some(top), labels) = (host.rsplit('.').next(), host.split('.').count()) else { return false };
    host.len() <= 253
        && labels >= 2
        && host.split('.').all(label)
        && (2..=24).contains(&top.len())
        && (top.bytes().all(|c| c.is_ascii_alphabetic()) || top.starts_with("xn--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(word: &str) -> Vec<Indicator> {
        let mut found = Vec::new();
        all(word.as_bytes(), |indicator| found.push(indicator));
        found
    }

    fn texts(word: &str) -> Vec<String> {
        found(word).iter().map(|indicator| format!("{} {}", indicator.data_type(), indicator.text())).collect()
    }

    #[test]
    fn links() {
        assert_eq!(
            texts("http://Evil.example:8080/a?b=c."),
            ["domain evil.example", "url http://Evil.example:8080/a?b=c"]
        );
        assert_eq!(texts("(https://a.example/x)"), ["domain a.example", "url https://a.example/x"]);
        assert_eq!(texts("https://de.example/wiki/A_(b)"), ["domain de.example", "url https://de.example/wiki/A_(b)"]);
        assert_eq!(texts("http://10.1.2.3/x"), ["ip 10.1.2.3", "url http://10.1.2.3/x"]);
        assert_eq!(texts("http://[2001:db8::1]:80/"), ["ip 2001:db8::1", "url http://[2001:db8::1]:80/"]);
        assert_eq!(texts("xhttp://a.example/http://b.example/").len(), 4, "two that are glued together");
        assert_eq!(texts("http://"), Vec::<String>::new());
        let closed = format!("http://a.example/x{}", ")]}((".repeat(300));
        assert_eq!(texts(&closed).len(), 2);
        assert_eq!(trimmed("http://a.example/x))]].(("), "http://a.example/x");
        assert_eq!(texts("std::x://y"), Vec::<String>::new());
    }

    #[test]
    fn links_that_were_made_harmless() {
        assert_eq!(texts("hxxps://evil[.]example/a"), ["domain evil.example", "url https://evil.example/a"]);
        assert_eq!(texts("hxxp[:]//evil(.)example/a"), ["domain evil.example", "url http://evil.example/a"]);
        assert_eq!(texts("203[.]0[.]113[.]7"), ["ip 203.0.113.7"]);
        assert_eq!(texts("evil[dot]com"), ["domain evil.com"]);
        assert_eq!(texts("joe[at]evil[.]com"), ["mail joe@evil.com"]);
    }

    #[test]
    fn addresses_names_and_mailboxes() {
        assert_eq!(texts("203.0.113.7:4444"), ["ip 203.0.113.7"]);
        assert_eq!(texts("2001:db8:0:1::7"), ["ip 2001:db8:0:1::7"]);
        assert_eq!(texts("mailto:Joe.Doe+x@Mail.Example"), ["mail Joe.Doe+x@mail.example"]);
        assert_eq!(texts("c2.evil.com:443,"), ["domain c2.evil.com"]);
        assert_eq!(texts("host=c2.evil.com"), ["domain c2.evil.com"]);
        assert_eq!(texts("EVIL.COM"), ["domain evil.com"]);
    }

    #[test]
    fn what_only_looks_like_them() {
        for word in [
            "libc.so.6",
            "main.rs",
            "run.sh",
            "System.Net",
            "a::b",
            "de::ad",
            "1.2.0.0",
            "127.0.0.1",
            "0.0.0.0",
            "1.2.3.4.5",
            "256.1.1.1",
            "foo@bar",
            "..",
            "x.com-",
            "a.b",
            "-.com",
            "@@@@",
            "e.com",
        ] {
            assert_eq!(texts(word), Vec::<String>::new(), "{word}");
        }
    }
}
