//! What a proxy says of the request that it asks about: the fields of its question, read without I/O.
//!
//! Everything that the decision depends on is written by the proxy, in the fields that Caddy and Traefik write by themselves and nginx is told to: a client's
//! own fields of these names are overwritten there. If one is missing or there twice, somebody else may have written it, so nothing is decided.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, Method};

use crate::identity::Fields;

/// The request as the proxy names it: what the question and the log line have in common. Random, chosen by the proxy, used once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(Box<str>);

/// A shorter one could be guessed.
const ID_LEAST: usize = 16;
const ID_MOST: usize = 64;

impl RequestId {
    /// Letters, digits and `-`, as nginx's `$request_id` and UUIDs are written.
    pub fn read(text: &[u8]) -> Option<RequestId> {
        let plain = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'-';
        let good = (ID_LEAST..=ID_MOST).contains(&text.len()) && text.iter().all(plain);
        std::str::from_utf8(text).ok().filter(|_| good).map(|text| RequestId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a request whose end nobody tells. No proxy can write it.
    pub(super) fn own(number: u64) -> RequestId {
        RequestId(format!("#{number}").into())
    }
}

/// A request of somebody, as the proxy tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question<'a> {
    /// None where the proxy does not say when requests are over.
    pub id: Option<RequestId>,
    pub method: Method,
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The address that the proxy sees.
    pub client: IpAddr,
    /// Whether the client speaks HTTPS.
    pub secure: bool,
}

/// Why a question cannot be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unclear {
    Missing(&'static str),
    Doubled(&'static str),
    Unreadable(&'static str),
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unclear::Missing(field) => write!(f, "the proxy does not send {field}"),
            Unclear::Doubled(field) => {
                write!(f, "{field} is there twice: the proxy must overwrite what its client sends")
            }
            Unclear::Unreadable(field) => write!(f, "{field} cannot be read"),
        }
    }
}

const METHOD: &str = "x-forwarded-method";
const HOST: &str = "x-forwarded-host";
const TARGET: &str = "x-forwarded-uri";
const CLIENT: &str = "x-forwarded-for";
const SCHEME: &str = "x-forwarded-proto";
const ID: &str = "x-weir-request";

impl<'a> Question<'a> {
    /// Reads it; `with_id` says whether the proxy has to name the request.
    pub fn read(fields: &'a (impl Fields + ?Sized), with_id: bool) -> Result<Question<'a>, Unclear> {
        let method = only(fields, METHOD)?;
        let target = text(fields, TARGET)?;
        if !target.starts_with('/') {
            return Err(Unclear::Unreadable(TARGET));
        }
        let id = match with_id {
            true => Some(RequestId::read(only(fields, ID)?).ok_or(Unclear::Unreadable(ID))?),
            false => None,
        };
        Ok(Question {
            id,
            method: Method::from_bytes(method).map_err(|_| Unclear::Unreadable(METHOD))?,
            host: text(fields, HOST)?,
            target,
            client: last_address(only(fields, CLIENT)?).ok_or(Unclear::Unreadable(CLIENT))?,
            secure: match only(fields, SCHEME)? {
                b"https" | b"wss" => true,
                b"http" | b"ws" => false,
                _ => return Err(Unclear::Unreadable(SCHEME)),
            },
        })
    }

    pub fn path(&self) -> &'a str {
        self.target.split(['?', '#']).next().unwrap_or("/")
    }
}

/// The one line of a field.
fn only<'a>(fields: &'a (impl Fields + ?Sized), name: &'static str) -> Result<&'a [u8], Unclear> {
    let header = HeaderName::from_static(name);
    let lines: Vec<&[u8]> = fields.lines(&header).take(2).collect();
    match lines[..] {
        [line] if !line.is_empty() => Ok(line),
        [] | [_] => Err(Unclear::Missing(name)),
        _ => Err(Unclear::Doubled(name)),
    }
}

fn text<'a>(fields: &'a (impl Fields + ?Sized), name: &'static str) -> Result<&'a str, Unclear> {
    std::str::from_utf8(only(fields, name)?).map_err(|_| Unclear::Unreadable(name))
}

/// The address at the right end is the one that the proxy saw itself; what is left of it may be anybody's word.
fn last_address(line: &[u8]) -> Option<IpAddr> {
    let last = std::str::from_utf8(line.rsplit(|octet| *octet == b',').next()?).ok()?.trim();
    let bare = last.strip_prefix('[').and_then(|last| last.strip_suffix(']')).unwrap_or(last);
    let with_port = || last.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    const GOOD: [(&str, &str); 6] = [
        (METHOD, "GET"),
        (HOST, "shop.example"),
        (TARGET, "/list?x=1"),
        (CLIENT, "192.0.2.7"),
        (SCHEME, "https"),
        (ID, "0123456789abcdef0123456789abcdef"),
    ];

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    #[test]
    fn a_question_is_read_from_what_the_proxy_writes() {
        let fields = fields(&GOOD);
        let question = Question::read(&fields, true).unwrap();
        assert_eq!((question.host, question.path(), question.secure), ("shop.example", "/list", true));
        assert_eq!(question.client.to_string(), "192.0.2.7");
        assert_eq!(question.id, RequestId::read(GOOD[5].1.as_bytes()));
        assert_eq!(Question::read(&fields, false).unwrap().id, None, "nobody asked for it");
    }

    #[test]
    fn what_is_missing_doubled_or_unreadable_is_named() {
        for (at, (name, _)) in GOOD.iter().enumerate() {
            let mut lines = GOOD.to_vec();
            lines.remove(at);
            assert_eq!(Question::read(&fields(&lines), true).unwrap_err(), Unclear::Missing(name));
            lines.push((name, ""));
            assert_eq!(Question::read(&fields(&lines), true).unwrap_err(), Unclear::Missing(name));
            lines = GOOD.to_vec();
            lines.push(GOOD[at]);
            assert_eq!(Question::read(&fields(&lines), true).unwrap_err(), Unclear::Doubled(name));
        }
        let wrong = [
            (METHOD, "G T"),
            (HOST, "\u{e9}\u{e9}"),
            (TARGET, "http://elsewhere/"),
            (CLIENT, "unix:"),
            (CLIENT, "1.2.3.4, unknown"),
            (SCHEME, "gopher"),
            (ID, "short"),
            (ID, "0123456789abcdef 123456789abcdef"),
        ];
        for (name, value) in wrong {
            let lines: Vec<_> =
                GOOD.into_iter().map(|line| if line.0 == name { (name, value) } else { line }).collect();
            let fields = fields(&lines);
            let said = Question::read(&fields, true);
            // A host in other letters than ASCII is one that no route leads to.
            assert!(said == Err(Unclear::Unreadable(name)) || name == HOST, "{name} {value}: {said:?}");
        }
    }

    #[test]
    fn of_a_list_of_addresses_the_last_one_counts() {
        for (line, client) in [
            ("1.2.3.4", "1.2.3.4"),
            ("9.9.9.9, 1.2.3.4", "1.2.3.4"),
            ("x, [2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
            ("1.2.3.4:80", "1.2.3.4"),
        ] {
            assert_eq!(last_address(line.as_bytes()).unwrap().to_string(), client);
        }
    }
}
