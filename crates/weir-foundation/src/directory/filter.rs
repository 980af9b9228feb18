//! A search filter from the configuration (RFC 4515), such as `(&(objectClass=person)(uid={login}))`.
//!
//! It is parsed once. The login that somebody types becomes the value of a comparison, octet by octet. It is never part of a text that is
//! parsed as a filter, so no login can change the query.

use super::ber::{OCTETS, element, nested};

/// Stands for the login in a filter.
pub(super) const LOGIN: &str = "{login}";
/// Stands for the name of the person's entry in a filter for groups.
pub(super) const ENTRY: &str = "{entry}";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SearchFilter {
    And(Vec<SearchFilter>),
    Or(Vec<SearchFilter>),
    Not(Box<SearchFilter>),
    /// The attribute has any value.
    Present(String),
    /// The attribute has this value.
    Equal(String, String),
}

/// The deepest nesting that is accepted.
const DEPTH_MAX: usize = 16;

impl SearchFilter {
    pub(super) fn read(text: &str) -> Result<SearchFilter, String> {
        let wrong = || format!("{text:?} is not a filter: write (uid={LOGIN}) or (&(objectClass=person)(uid={LOGIN}))");
        match parse(text.trim(), DEPTH_MAX) {
            Some((filter, "")) => Ok(filter),
            _ => Err(wrong()),
        }
    }

    /// Whether the login restricts what is found. A login below a `!` does not count.
    pub(super) fn asks_for_login(&self) -> bool {
        match self {
            SearchFilter::And(parts) | SearchFilter::Or(parts) => parts.iter().any(SearchFilter::asks_for_login),
            SearchFilter::Not(_) | SearchFilter::Present(_) => false,
            SearchFilter::Equal(_, value) => value == LOGIN,
        }
    }

    /// The filter as it is sent, with the login and the entry in place of [`LOGIN`] and [`ENTRY`].
    pub(super) fn octets(&self, login: &str, entry: &str) -> Vec<u8> {
        let all = |parts: &[SearchFilter]| parts.iter().map(|part| part.octets(login, entry)).collect::<Vec<_>>();
        match self {
            SearchFilter::And(parts) => nested(0xa0, &all(parts)),
            SearchFilter::Or(parts) => nested(0xa1, &all(parts)),
            SearchFilter::Not(part) => nested(0xa2, &[part.octets(login, entry)]),
            SearchFilter::Present(attribute) => element(0x87, attribute.as_bytes()),
            SearchFilter::Equal(attribute, value) => {
                let value = match value.as_str() {
                    LOGIN => login,
                    ENTRY => entry,
                    other => other,
                };
                nested(0xa3, &[element(OCTETS, attribute.as_bytes()), element(OCTETS, value.as_bytes())])
            }
        }
    }
}

/// The filter at the beginning of the text, and the text after it.
fn parse(text: &str, depth: usize) -> Option<(SearchFilter, &str)> {
    let inside = text.strip_prefix('(').filter(|_| depth > 0)?;
    let (filter, rest) = match inside.chars().next()? {
        '&' => parse_all(&inside[1..], depth).map(|(parts, rest)| (SearchFilter::And(parts), rest))?,
        '|' => parse_all(&inside[1..], depth).map(|(parts, rest)| (SearchFilter::Or(parts), rest))?,
        '!' => parse(&inside[1..], depth - 1).map(|(part, rest)| (SearchFilter::Not(Box::new(part)), rest))?,
        _ => {
            let (comparison, rest) = inside.split_at(inside.find(')')?);
            (compare(comparison)?, rest)
        }
    };
    Some((filter, rest.strip_prefix(')')?))
}

fn parse_all(mut text: &str, depth: usize) -> Option<(Vec<SearchFilter>, &str)> {
    let mut parts = Vec::new();
    while text.starts_with('(') {
        let (part, rest) = parse(text, depth - 1)?;
        parts.push(part);
        text = rest;
    }
    (!parts.is_empty()).then_some((parts, text))
}

/// `attribute=value` or `attribute=*`. Other stars, `>=`, `<=`, `~=` and escapes are not supported, because nothing here needs them.
fn compare(text: &str) -> Option<SearchFilter> {
    let (attribute, value) = text.split_once('=')?;
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-.;".contains(&octet);
    if attribute.is_empty() || !attribute.bytes().all(plain) || value.is_empty() {
        return None;
    }
    match value {
        "*" => Some(SearchFilter::Present(attribute.to_owned())),
        _ if value.contains(['*', '\\', '(']) => None,
        _ => Some(SearchFilter::Equal(attribute.to_owned(), value.to_owned())),
    }
}

/// A login, escaped as part of an entry's name (RFC 4514, 2.4).
pub(super) fn escaped_name(login: &str) -> String {
    let mut name = String::with_capacity(login.len());
    for (at, letter) in login.char_indices() {
        let edge = (at == 0 && matches!(letter, ' ' | '#')) || (at + letter.len_utf8() == login.len() && letter == ' ');
        if edge || matches!(letter, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=') {
            name.push('\\');
            name.push(letter);
        } else if letter.is_control() {
            let mut octets = [0; 4];
            letter.encode_utf8(&mut octets).bytes().for_each(|octet| name.push_str(&format!("\\{octet:02x}")));
        } else {
            name.push(letter);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_or_refused() {
        let filter = SearchFilter::read("(&(objectClass=person)(|(uid={login})(mail={login}))(!(locked=*)))").unwrap();
        assert!(filter.asks_for_login());
        assert!(!SearchFilter::read("(&(uid=ann)(!(uid={login})))").unwrap().asks_for_login());
        for text in [
            "",
            "uid={login}",
            "(uid={login}",
            "(uid={login}))",
            "(&)",
            "(uid=a*)",
            "(=x)",
            "(uid=)",
            "(u d=x)",
            "(uid>=5)",
        ] {
            assert!(SearchFilter::read(text).is_err(), "{text}");
        }
        assert!(SearchFilter::read(&"(!".repeat(10_000)).is_err(), "no depth without an end");
    }

    #[test]
    fn a_login_is_a_value_and_never_a_filter() {
        let filter = SearchFilter::read("(uid={login})").unwrap();
        let login = "*)(uid=*))(|(uid=*";
        let value = element(OCTETS, login.as_bytes());
        assert_eq!(filter.octets(login, ""), nested(0xa3, &[element(OCTETS, b"uid"), value]));
    }

    #[test]
    fn a_login_cannot_leave_its_place_in_a_name() {
        assert_eq!(escaped_name("ann,ou=admins"), "ann\\,ou\\=admins");
        assert_eq!(escaped_name(" #x\\\"+<>; "), "\\ #x\\\\\\\"\\+\\<\\>\\;\\ ");
        assert_eq!(escaped_name("#a\u{1}"), "\\#a\\01");
    }
}
