//! The commands XCLIENT and XFORWARD, with which a trusted proxy says who the real client is (Postfix's XCLIENT_README and
//! XFORWARD_README).
//!
//! Attributes are `NAME=value` with the value in xtext; `[UNAVAILABLE]` and `[TEMPUNAVAIL]` mean "not known".

use std::net::IpAddr;

use super::peer::{Dialect, Forwarded, SmtpPeer};
use super::reply::{Reply, Status};
use super::sasl::is_user;
use super::xtext;

/// What EHLO offers to a listed peer.
pub(crate) const XCLIENT_KEYWORDS: &str = "XCLIENT NAME ADDR PORT PROTO HELO LOGIN DESTADDR DESTPORT";
/// What EHLO offers to a listed peer.
pub(crate) const XFORWARD_KEYWORDS: &str = "XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE";

const VALUE_MAX: usize = 255;

/// The peer that XCLIENT describes, and the user for whom it vouches.
pub(crate) fn xclient(peer: &SmtpPeer, text: &str) -> Result<(SmtpPeer, Option<Box<str>>), Reply> {
    let mut peer = peer.clone();
    let mut user = None;
    peer.forget_greeting();
    for attribute in attributes(text) {
        let (name, value) = attribute?;
        match (name.as_str(), value) {
            ("ADDR", Some(value)) => peer.client = address(&value).ok_or_else(|| bad(&name))?,
            ("NAME", value) => peer.name = value,
            ("HELO", value) => peer.helo = value,
            ("PROTO", Some(value)) => peer.dialect = dialect(&value).ok_or_else(|| bad(&name))?,
            ("LOGIN", Some(value)) if is_user(&value) => user = Some(value),
            ("LOGIN", Some(_)) => return Err(bad(&name)),
            ("ADDR" | "PROTO" | "LOGIN", None) | ("PORT" | "DESTADDR" | "DESTPORT", _) => {}
            _ => return Err(bad(&name)),
        }
    }
    Ok((peer, user))
}

/// Adds what XFORWARD says to what is known already.
pub(crate) fn xforward(known: Option<Box<Forwarded>>, text: &str) -> Result<Box<Forwarded>, Reply> {
    let mut forwarded = known.unwrap_or_default();
    for attribute in attributes(text) {
        let (name, value) = attribute?;
        let field = match name.as_str() {
            "NAME" => &mut forwarded.name,
            "ADDR" => &mut forwarded.addr,
            "PORT" => &mut forwarded.port,
            "HELO" => &mut forwarded.helo,
            "PROTO" => &mut forwarded.proto,
            "IDENT" => &mut forwarded.ident,
            "SOURCE" => &mut forwarded.source,
            _ => return Err(bad(&name)),
        };
        *field = value;
    }
    Ok(forwarded)
}

type Attribute = (String, Option<Box<str>>);

fn attributes(text: &str) -> impl Iterator<Item = Result<Attribute, Reply>> {
    text.split(' ').filter(|word| !word.is_empty()).map(|word| {
        let (name, value) = word.split_once('=').ok_or_else(|| bad(word))?;
        let name = name.to_ascii_uppercase();
        if value.eq_ignore_ascii_case("[UNAVAILABLE]") || value.eq_ignore_ascii_case("[TEMPUNAVAIL]") {
            return Ok((name, None));
        }
        let value = xtext::decode(value).filter(|value| (1..=VALUE_MAX).contains(&value.len()));
        match value {
            Some(value) => Ok((name, Some(value.into()))),
            None => Err(bad(&name)),
        }
    })
}

/// Parses an address in the form of XFORWARD.
pub fn address(text: &str) -> Option<IpAddr> {
    let v6 = text.split_at_checked(5).filter(|(tag, _)| tag.eq_ignore_ascii_case("IPV6:"));
    v6.map_or(text, |(_, address)| address).parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn dialect(text: &str) -> Option<Dialect> {
    match text.to_ascii_uppercase().as_str() {
        "SMTP" => Some(Dialect::Smtp),
        "ESMTP" => Some(Dialect::Esmtp),
        "LMTP" => Some(Dialect::Lmtp),
        _ => None,
    }
}

fn bad(name: &str) -> Reply {
    let shown: String = name.chars().take(40).collect();
    Reply::new(501, Status(5, 5, 4), format!("attribute {shown} is not valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> SmtpPeer {
        let address = "127.0.0.1:9".parse().unwrap();
        SmtpPeer { helo: Some("proxy".into()), user: Some("old".into()), ..SmtpPeer::new(1, address, address) }
    }

    #[test]
    fn xclient_replaces_what_is_known() {
        let (peer, user) =
            xclient(&peer(), "NAME=mail.example ADDR=IPV6:2001:db8::5 PROTO=ESMTP LOGIN=ann HELO=[UNAVAILABLE]")
                .unwrap();
        assert_eq!(peer.client, "2001:db8::5".parse::<IpAddr>().unwrap());
        assert_eq!((peer.name.as_deref(), user.as_deref()), (Some("mail.example"), Some("ann")));
        assert_eq!((peer.helo, peer.user, peer.dialect), (None, None, Dialect::Esmtp));
        assert!(!peer.client.is_loopback());
    }

    #[test]
    fn wrong_attributes_are_refused() {
        for text in [
            "ADDR=nonsense",
            "FOO=1",
            "ADDR",
            "NAME=",
            "LOGIN=a+0Ab",
            "PROTO=HTTP",
            &format!("NAME={}", "x".repeat(256)),
        ] {
            assert_eq!(xclient(&peer(), text).unwrap_err().code(), 501, "{text}");
        }
        assert_eq!(xforward(None, "LOGIN=ann").unwrap_err().code(), 501);
    }

    #[test]
    fn xforward_adds_up() {
        let first = xforward(None, "NAME=a ADDR=192.0.2.1").unwrap();
        let both = xforward(Some(first), "IDENT=QID SOURCE=LOCAL NAME=[UNAVAILABLE]").unwrap();
        assert_eq!((both.name, both.addr.as_deref(), both.ident.as_deref()), (None, Some("192.0.2.1"), Some("QID")));
    }
}
