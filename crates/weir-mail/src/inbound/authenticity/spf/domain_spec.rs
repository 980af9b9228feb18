//! A domain in an SPF record, with macros such as `%{ir}.%{v}._spf.%{d2}` (RFC 7208 section 7).

use super::super::names::NAME_MAX;
use std::fmt::Write;
use std::net::IpAddr;

/// What was read does not follow the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A domain with macros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DomainSpec(Vec<MacroPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum MacroPart {
    Text(String),
    Macro(Macro),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Macro {
    letter: char,
    /// Only so many parts from the right.
    parts: Option<usize>,
    reversed: bool,
    delimiters: String,
    escaped: bool,
}

const DELIMITERS: &str = ".-+,/_=";

/// What macros stand for.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) client: IpAddr,
    pub(super) helo: &'a str,
    pub(super) local: &'a str,
    pub(super) sender_domain: &'a str,
    /// The domain whose record it is.
    pub(super) domain: &'a str,
    /// The name of the client that was confirmed; asked for only where a macro wants it.
    pub(super) confirmed_name: &'a str,
}

impl DomainSpec {
    /// Reads a domain: it ends with a top label or a macro.
    pub(super) fn parse(text: &str) -> Result<DomainSpec, Malformed> {
        let spec = DomainSpec::parse_text(text)?;
        let ends_well = match spec.0.last() {
            Some(MacroPart::Macro(_)) => true,
            Some(MacroPart::Text(end)) => ends_in_top_label(end),
            None => false,
        };
        if ends_well { Ok(spec) } else { Err(Malformed) }
    }

    /// Reads any text with macros.
    pub(super) fn parse_text(text: &str) -> Result<DomainSpec, Malformed> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find('%') {
            let (before, macro_text) = rest.split_at(at);
            if !before.is_empty() {
                pieces.push(MacroPart::Text(before.to_owned()));
            }
            let length = match macro_text.as_bytes().get(1) {
                Some(b'{') => {
                    let inside = macro_text.get(2..).and_then(|text| text.split_once('}')).ok_or(Malformed)?.0;
                    pieces.push(MacroPart::Macro(Macro::parse(inside)?));
                    inside.len() + 3
                }
                Some(b'%') => literal(&mut pieces, "%"),
                Some(b'_') => literal(&mut pieces, " "),
                Some(b'-') => literal(&mut pieces, "%20"),
                _ => return Err(Malformed),
            };
            rest = macro_text.get(length..).unwrap_or_default();
        }
        if !rest.is_empty() {
            pieces.push(MacroPart::Text(rest.to_owned()));
        }
        Ok(DomainSpec(pieces))
    }

    /// Whether the name of the client has to be looked up first.
    pub(super) fn wants_confirmed_name(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, MacroPart::Macro(one) if one.letter == 'p'))
    }

    /// The domain with these values. What is too long loses labels on the left.
    pub(super) fn expand(&self, values: &Values<'_>) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                MacroPart::Text(text) => out.push_str(text),
                MacroPart::Macro(one) => out.push_str(&one.expand(values)),
            }
        }
        let mut name = out.strip_suffix('.').unwrap_or(&out);
        while name.len() > NAME_MAX {
            let Some((_, shorter)) = name.split_once('.') else { break };
            name = shorter;
        }
        name.to_owned()
    }
}

/// How long the macro was.
fn literal(pieces: &mut Vec<MacroPart>, text: &str) -> usize {
    pieces.push(MacroPart::Text(text.to_owned()));
    2
}

/// Something, a dot, and a label that can be a top-level domain.
fn ends_in_top_label(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let Some((_, label)) = text.rsplit_once('.') else { return false };
    let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let hyphens = label.starts_with('-') || label.ends_with('-');
    !label.is_empty() && plain && !hyphens && !label.bytes().all(|byte| byte.is_ascii_digit())
}

impl Macro {
    /// Reads what stands between the braces.
    fn parse(text: &str) -> Result<Macro, Malformed> {
        let mut characters = text.chars();
        let letter = characters.next().ok_or(Malformed)?;
        // c, r and t are for explanations alone.
        if !"slodiphv".contains(letter.to_ascii_lowercase()) {
            return Err(Malformed);
        }
        let rest = characters.as_str();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        let parts = match number {
            "" => None,
            // A number that does not fit means all parts.
            number => Some(number.parse().unwrap_or(usize::MAX)),
        };
        let (reversed, delimiters) = match rest.strip_prefix(['r', 'R']) {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        if parts == Some(0) || !delimiters.chars().all(|c| DELIMITERS.contains(c)) {
            return Err(Malformed);
        }
        let delimiters = if delimiters.is_empty() { "." } else { delimiters };
        let escaped = letter.is_ascii_uppercase();
        let letter = letter.to_ascii_lowercase();
        Ok(Macro { letter, parts, reversed, delimiters: delimiters.to_owned(), escaped })
    }

    fn expand(&self, values: &Values<'_>) -> String {
        let value = match self.letter {
            's' => format!("{}@{}", values.local, values.sender_domain),
            'l' => values.local.to_owned(),
            'o' => values.sender_domain.to_owned(),
            'd' => values.domain.to_owned(),
            'i' => dotted(values.client),
            'p' => values.confirmed_name.to_owned(),
            'h' => values.helo.to_owned(),
            _ if values.client.is_ipv4() => "in-addr".to_owned(),
            _ => "ip6".to_owned(),
        };
        let mut parts: Vec<&str> = value.split(|c| self.delimiters.contains(c)).collect();
        if self.reversed {
            parts.reverse();
        }
        let skipped = parts.len().saturating_sub(self.parts.unwrap_or(usize::MAX));
        let joined = parts.split_off(skipped).join(".");
        if self.escaped { escaped(&joined) } else { joined }
    }
}

/// An address with a dot between its parts: the octets of IPv4, the hexadecimal digits of IPv6.
fn dotted(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let digits: Vec<String> = format!("{:032x}", v6.to_bits()).chars().map(String::from).collect();
            digits.join(".")
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7208 section 7.4.
    #[test]
    fn the_examples_of_the_rfc() {
        let of = |client: &str, text: &str| {
            let values = Values {
                client: client.parse().unwrap(),
                helo: "mx.example.org",
                local: "strong-bad",
                sender_domain: "email.example.com",
                domain: "email.example.com",
                confirmed_name: "mx.example.org",
            };
            DomainSpec::parse_text(text).unwrap().expand(&values)
        };
        for (text, expanded) in [
            ("%{s}", "strong-bad@email.example.com"),
            ("%{d4}", "email.example.com"),
            ("%{d2}", "example.com"),
            ("%{d1}", "com"),
            ("%{dr}", "com.example.email"),
            ("%{d2r}", "example.email"),
            ("%{l-}", "strong.bad"),
            ("%{lr-}", "bad.strong"),
            ("%{l1r-}", "strong"),
            ("%{ir}.%{v}._spf.%{d2}", "3.2.0.192.in-addr._spf.example.com"),
            ("%{lr-}.lp._spf.%{d2}", "bad.strong.lp._spf.example.com"),
            ("%{d2}.trusted-domains.example.net", "example.com.trusted-domains.example.net"),
            ("%{S}", "strong-bad%40email.example.com"),
        ] {
            assert_eq!(of("192.0.2.3", text), expanded, "{text}");
        }
        let v6 = of("2001:db8::cb01", "%{ir}.%{v}._spf.%{d2}");
        assert_eq!(v6, "1.0.b.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6._spf.example.com");
        let long = of("192.0.2.3", &format!("{}.%{{d}}", vec!["a".repeat(60); 5].join(".")));
        assert!(long.len() <= NAME_MAX && long.starts_with("aaaa") && long.ends_with("email.example.com"));
    }
}
