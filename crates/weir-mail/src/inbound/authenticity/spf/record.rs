//! An SPF record, read by the grammar of RFC 7208 section 12. Whatever the grammar does not allow makes the whole record an error: a
//! record that is half understood would say something that its owner did not mean.

use super::domain_spec::{DomainSpec, Malformed};
use mail_auth::SpfResult;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a domain says of its senders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpfRecord {
    pub(super) directives: Vec<Directive>,
    /// Whose record decides if no directive does.
    pub(super) redirect: Option<DomainSpec>,
}

/// A mechanism, and what it means if it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) result: SpfResult,
    pub(super) mechanism: Mechanism,
}

/// What a client may match. Without a domain of its own a mechanism is about the domain that is being checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mechanism {
    All,
    Include(DomainSpec),
    Address(Option<DomainSpec>, Prefixes),
    Exchangers(Option<DomainSpec>, Prefixes),
    ClaimedName(Option<DomainSpec>),
    Network(IpAddr, u32),
    Exists(DomainSpec),
}

/// How many bits of an address count, in each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefixes {
    pub(super) v4: u32,
    pub(super) v6: u32,
}

const VERSION: &[u8] = b"v=spf1";

/// Whether a TXT record is an SPF record, well-formed or not.
pub(super) fn is_spf(text: &[u8]) -> bool {
    let version = text.get(..VERSION.len()).is_some_and(|start| start.eq_ignore_ascii_case(VERSION));
    version && matches!(text.get(VERSION.len()), None | Some(b' '))
}

impl SpfRecord {
    /// Reads a TXT record for which [`is_spf`] holds.
    pub(super) fn parse(text: &[u8]) -> Result<SpfRecord, Malformed> {
        let terms = text.get(VERSION.len()..).unwrap_or_default();
        if !terms.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(Malformed);
        }
        let terms = std::str::from_utf8(terms).map_err(|_| Malformed)?;
        let (mut directives, mut redirect, mut explanation) = (Vec::new(), None, None);
        for term in terms.split(' ').filter(|term| !term.is_empty()) {
            match modifier(term) {
                None => directives.push(Directive::parse(term)?),
                Some((name, value)) if name.eq_ignore_ascii_case("redirect") => once(&mut redirect, value)?,
                Some((name, value)) if name.eq_ignore_ascii_case("exp") => once(&mut explanation, value)?,
                // A modifier that nobody knows is passed over, if it is one.
                Some((_, value)) => DomainSpec::parse_text(value).map(drop)?,
            }
        }
        Ok(SpfRecord { directives, redirect })
    }
}

/// The two modifiers that we know may stand there once.
fn once(place: &mut Option<DomainSpec>, value: &str) -> Result<(), Malformed> {
    match place.replace(DomainSpec::parse(value)?) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}

/// `name=value`, where the name is one.
fn modifier(term: &str) -> Option<(&str, &str)> {
    let (name, value) = term.split_once('=')?;
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (begins && plain).then_some((name, value))
}

impl Directive {
    fn parse(term: &str) -> Result<Directive, Malformed> {
        let (result, rest) = match term.as_bytes().first() {
            Some(b'+') => (SpfResult::Pass, term.get(1..)),
            Some(b'-') => (SpfResult::Fail, term.get(1..)),
            Some(b'~') => (SpfResult::SoftFail, term.get(1..)),
            Some(b'?') => (SpfResult::Neutral, term.get(1..)),
            _ => (SpfResult::Pass, Some(term)),
        };
        Ok(Directive { result, mechanism: Mechanism::parse(rest.unwrap_or_default())? })
    }
}

impl Mechanism {
    fn parse(text: &str) -> Result<Mechanism, Malformed> {
        let end = text.find([':', '/']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let argument = rest.strip_prefix(':');
        match name.to_ascii_lowercase().as_str() {
            "all" if rest.is_empty() => Ok(Mechanism::All),
            "include" => Ok(Mechanism::Include(DomainSpec::parse(argument.ok_or(Malformed)?)?)),
            "exists" => Ok(Mechanism::Exists(DomainSpec::parse(argument.ok_or(Malformed)?)?)),
            "ptr" if rest.is_empty() => Ok(Mechanism::ClaimedName(None)),
            "ptr" => Ok(Mechanism::ClaimedName(Some(DomainSpec::parse(argument.ok_or(Malformed)?)?))),
            "a" => with_prefixes(rest).map(|(domain, prefixes)| Mechanism::Address(domain, prefixes)),
            "mx" => with_prefixes(rest).map(|(domain, prefixes)| Mechanism::Exchangers(domain, prefixes)),
            "ip4" => network::<Ipv4Addr>(argument.ok_or(Malformed)?, 32),
            "ip6" => network::<Ipv6Addr>(argument.ok_or(Malformed)?, 128),
            _ => Err(Malformed),
        }
    }
}

fn network<A: std::str::FromStr + Into<IpAddr>>(text: &str, most: u32) -> Result<Mechanism, Malformed> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, prefix(bits, most)?),
        None => (text, most),
    };
    let address: A = address.parse().map_err(|_| Malformed)?;
    Ok(Mechanism::Network(address.into(), bits))
}

/// `[:domain][/bits][//bits]`. A slash may also stand inside a domain with macros, so the bits are looked for from behind.
fn with_prefixes(text: &str) -> Result<(Option<DomainSpec>, Prefixes), Malformed> {
    let mut prefixes = Prefixes { v4: 32, v6: 128 };
    let mut rest = text;
    if let Some((before, bits)) = split_bits(rest, "//") {
        prefixes.v6 = prefix(bits, 128)?;
        rest = before;
    }
    if let Some((before, bits)) = split_bits(rest, "/") {
        prefixes.v4 = prefix(bits, 32)?;
        rest = before;
    }
    match rest.strip_prefix(':') {
        Some(domain) => Ok((Some(DomainSpec::parse(domain)?), prefixes)),
        None if rest.is_empty() => Ok((None, prefixes)),
        None => Err(Malformed),
    }
}

/// What stands before and behind the last mark, if nothing but digits is behind it.
fn split_bits<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let (before, bits) = text.rsplit_once(mark)?;
    (!bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit())).then_some((before, bits))
}

fn prefix(digits: &str, most: u32) -> Result<u32, Malformed> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let bits = digits.parse().map_err(|_| Malformed)?;
    if plain && bits <= most { Ok(bits) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_grammar_does_not_allow_is_an_error() {
        for bad in [
            "v=spf1 ip4:192.0.2.0/99 -all",
            "v=spf1 ip4:192.0.2.0/ -all",
            "v=spf1 ip4:192.0.2 -all",
            "v=spf1 ip4:192.0.2.0/024",
            "v=spf1 ip6:192.0.2.1",
            "v=spf1 ip5:192.0.2.1 -all",
            "v=spf1 unknown:thing -all",
            "v=spf1 unknown -all",
            "v=spf1 -all/8",
            "v=spf1 all:x.example",
            "v=spf1 include -all",
            "v=spf1 include: -all",
            "v=spf1 a:",
            "v=spf1 a/33",
            "v=spf1 a//129",
            "v=spf1 a:host",
            "v=spf1 a:host.123",
            "v=spf1 mx:x.example:25",
            "v=spf1 -redirect=x.example",
            "v=spf1 redirect=x.example redirect=y.example",
            "v=spf1 exp=x.example exp=x.example",
            "v=spf1 exists:%{z}.example",
            "v=spf1 exists:%{d0}.example",
            "v=spf1 exists:%{c}.example",
            "v=spf1 exists:%d.example",
            "v=spf1 \tall",
            "v=spf1 a:b\u{e9}.example",
        ] {
            assert_eq!(SpfRecord::parse(bad.as_bytes()), Err(Malformed), "{bad}");
        }
    }

    #[test]
    fn what_the_grammar_allows_is_read() {
        for good in [
            "v=spf1",
            "V=SPF1  -ALL  ",
            "v=spf1 a/24//64 mx:x.example/0 ptr:x.example. ~all",
            "v=spf1 exists:%{l}/%{d2r.-}%%%_%-.example ?all",
            "v=spf1 a:%{d}/24",
            "v=spf1 moo.cow-far_out=anything:%{s} op=auth -all",
            "v=spf1 IP6:2001:DB8::/32 include:_spf.x.example redirect=%{d}",
        ] {
            assert!(is_spf(good.as_bytes()) && SpfRecord::parse(good.as_bytes()).is_ok(), "{good}");
        }
        let parsed = SpfRecord::parse(b"v=spf1 -a:%{d}/24//64").unwrap();
        let Mechanism::Address(Some(_), prefixes) = &parsed.directives[0].mechanism else { panic!("{parsed:?}") };
        assert_eq!(*prefixes, Prefixes { v4: 24, v6: 64 });
        assert!(!is_spf(b"v=spf10 -all") && !is_spf(b"v=spf1-all") && !is_spf(b"") && !is_spf(b" v=spf1"));
    }
}
