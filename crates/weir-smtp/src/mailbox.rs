//! A mailbox in MAIL and RCPT, and the path around it (RFC 5321 sections 4.1.2 and 4.5.3.1).
//!
//! We have our own parser because smtp-proto drops the quotes of a local part (so `"a@b"@c` and `a@b@c` become the same), does not know
//! address literals, and returns nothing for `<postmaster>`. Source routes are dropped. A quoted local part that needs no quotes loses
//! them, so each mailbox has only one spelling of its local part.

use std::fmt;

const LOCAL_MAX: usize = 64;
const DOMAIN_MAX: usize = 255;
const PATH_MAX: usize = 256;

/// `local@domain`, in a form that can be sent in `<…>` as it is; or `postmaster` alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mailbox {
    text: Box<str>,
    /// Where the domain begins; the length of the text if there is none.
    domain_at: u16,
}

/// What is between `<` and `>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Path {
    /// `<>`, the sender of bounces.
    Null,
    /// `<postmaster>` without a domain.
    Postmaster,
    /// A mailbox with a domain.
    Mailbox(Mailbox),
}

/// Why a path is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// `<` or `>` is missing.
    #[error("the address must stand in < >")]
    Brackets,
    /// Something is wrong before the `@`.
    #[error("the part before the @ is not valid")]
    Local,
    /// Something is wrong after the `@`.
    #[error("the domain is not valid")]
    Domain,
    /// Longer than the protocol allows.
    #[error("the address is too long")]
    TooLong,
}

impl Mailbox {
    /// Parses `local@domain` without brackets.
    pub fn parse(text: &str) -> Result<Mailbox, PathError> {
        match parse_path(&format!("<{text}>"))? {
            (Path::Mailbox(mailbox), "") => Ok(mailbox),
            _ => Err(PathError::Domain),
        }
    }

    /// `postmaster` without a domain: that of whichever server receives the mail.
    pub fn postmaster() -> Mailbox {
        Mailbox { text: "postmaster".into(), domain_at: 10 }
    }

    /// The whole mailbox, as it is written into `<…>`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The local part, quoted if necessary.
    pub fn local(&self) -> &str {
        let end = usize::from(self.domain_at).saturating_sub(usize::from(!self.domain().is_empty()));
        self.text.get(..end).unwrap_or_default()
    }

    /// The domain or address literal as typed; empty for `postmaster` alone.
    pub fn domain(&self) -> &str {
        self.text.get(usize::from(self.domain_at)..).unwrap_or_default()
    }

    /// Whether it has characters beyond ASCII.
    pub fn is_international(&self) -> bool {
        !self.text.is_ascii()
    }

    fn new(local: &str, domain: &str) -> Mailbox {
        let text = format!("{local}@{domain}").into_boxed_str();
        Mailbox { domain_at: u16::try_from(local.len() + 1).unwrap_or(u16::MAX), text }
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.text)
    }
}

/// Parses `<path>` at the beginning of `text`. Returns the path, and the text after the `>`.
pub fn parse_path(text: &str) -> Result<(Path, &str), PathError> {
    let text = text.trim_start_matches(' ').strip_prefix('<').ok_or(PathError::Brackets)?;
    if let Some(rest) = text.strip_prefix('>') {
        return Ok((Path::Null, rest));
    }
    let text = without_route(text)?;
    if let Some(rest) = strip_postmaster(text) {
        return Ok((Path::Postmaster, rest));
    }
    let (local, rest) = if text.starts_with('"') { quoted_local(text)? } else { plain_local(text)? };
    let domain_and_rest = rest.strip_prefix('@').ok_or(PathError::Local)?;
    let (domain, rest) = domain_and_rest.split_once('>').ok_or(PathError::Brackets)?;
    if local.len() > LOCAL_MAX || domain.len() > DOMAIN_MAX || local.len() + domain.len() + 3 > PATH_MAX {
        return Err(PathError::TooLong);
    }
    if is_domain(domain) || is_literal(domain) {
        return Ok((Path::Mailbox(Mailbox::new(&local, domain)), rest));
    }
    Err(PathError::Domain)
}

/// Removes the route from `@a,@b:user@c`. Such routes have no meaning any more (RFC 5321 appendix C).
fn without_route(text: &str) -> Result<&str, PathError> {
    if !text.starts_with('@') {
        return Ok(text);
    }
    let (route, rest) = text.split_once(':').ok_or(PathError::Local)?;
    let hops_valid = route.split(',').all(|hop| hop.strip_prefix('@').is_some_and(is_domain));
    if hops_valid && route.len() <= PATH_MAX { Ok(rest) } else { Err(PathError::Local) }
}

fn strip_postmaster(text: &str) -> Option<&str> {
    let (word, rest) = text.split_at_checked("postmaster>".len())?;
    word.eq_ignore_ascii_case("postmaster>").then_some(rest)
}

fn plain_local(text: &str) -> Result<(std::borrow::Cow<'_, str>, &str), PathError> {
    let end = text.find(['@', '>']).ok_or(PathError::Brackets)?;
    let (local, rest) = text.split_at(end);
    if is_dot_string(local) { Ok((local.into(), rest)) } else { Err(PathError::Local) }
}

fn quoted_local(text: &str) -> Result<(std::borrow::Cow<'_, str>, &str), PathError> {
    let mut chars = text.char_indices().skip(1);
    let mut content = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let rest = text.get(at + 1..).unwrap_or_default();
                return if content.is_empty() { Err(PathError::Local) } else { Ok((requoted(content).into(), rest)) };
            }
            '\\' => content.push(chars.next().ok_or(PathError::Local)?.1),
            _ => content.push(c),
        }
        // Whatever is written into `<…>` must stay on one line, for us and for the next server.
        if content.ends_with(char::is_control) {
            return Err(PathError::Local);
        }
        if content.len() > LOCAL_MAX {
            return Err(PathError::TooLong);
        }
    }
    Err(PathError::Local)
}

fn requoted(content: String) -> String {
    if is_dot_string(&content) {
        return content;
    }
    format!("\"{}\"", content.replace('\\', "\\\\").replace('"', "\\\""))
}

fn is_dot_string(local: &str) -> bool {
    local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atext))
}

fn is_atext(c: char) -> bool {
    c.is_ascii_alphanumeric() || (!c.is_ascii() && !c.is_control()) || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_domain(domain: &str) -> bool {
    let label_valid = |label: &str| {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || (!c.is_ascii() && !c.is_control());
        (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(inside)
    };
    domain.split('.').all(label_valid)
}

/// `[192.0.2.1]` or `[IPv6:2001:db8::1]`.
fn is_literal(domain: &str) -> bool {
    let Some(inside) = domain.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else { return false };
    let v6 = inside.split_at_checked(5).filter(|(tag, _)| tag.eq_ignore_ascii_case("IPv6:"));
    match v6 {
        Some((_, address)) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => inside.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(text: &str) -> (String, String, String) {
        let (Path::Mailbox(mailbox), "") = parse_path(text).unwrap() else { panic!("{text}") };
        (mailbox.as_str().into(), mailbox.local().into(), mailbox.domain().into())
    }

    #[test]
    fn paths_that_are_taken() {
        for (text, local, domain) in [
            ("<a@b.example>", "a", "b.example"),
            (" <a.b+c@d>", "a.b+c", "d"),
            ("<\"a b\"@c>", "\"a b\"", "c"),
            ("<\"a\"@c>", "a", "c"),
            ("<\"a@b\"@c>", "\"a@b\"", "c"),
            ("<\"a>b\"@c>", "\"a>b\"", "c"),
            (r#"<"a\"b\\"@c>"#, r#""a\"b\\""#, "c"),
            ("<@x.example,@y:a@c>", "a", "c"),
            ("<a@[192.0.2.1]>", "a", "[192.0.2.1]"),
            ("<a@[IPv6:2001:db8::1]>", "a", "[IPv6:2001:db8::1]"),
            ("<jürgen@bücher.example>", "jürgen", "bücher.example"),
        ] {
            assert_eq!(mailbox(text), (format!("{local}@{domain}"), local.into(), domain.into()), "{text}");
        }
        assert_eq!(parse_path("<> SIZE=1"), Ok((Path::Null, " SIZE=1")));
        assert_eq!(parse_path("<PostMaster>"), Ok((Path::Postmaster, "")));
        assert_eq!((Mailbox::postmaster().local(), Mailbox::postmaster().domain()), ("postmaster", ""));
    }

    #[test]
    fn paths_that_are_refused() {
        for text in [
            "",
            "a@b",
            "<a@b",
            "<a>",
            "<a@>",
            "<@b>",
            "<a@b@c>",
            "<a..b@c>",
            "<.a@c>",
            "<a@b..c>",
            "<a@-b>",
            "<a b@c>",
            "<a@b c>",
            "<\"a@c>",
            "<\"\"@c>",
            "<a@[1.2.3]>",
            "<a@[IPv6:zz]>",
            "<@x a@c>",
            "<@x:>",
            "<a(x)@c>",
            "<a\u{85}@c>",
        ] {
            assert!(parse_path(text).is_err(), "{text}");
        }
        assert_eq!(parse_path(&format!("<{}@b>", "a".repeat(65))), Err(PathError::TooLong));
        assert_eq!(parse_path(&format!("<\"{}\"@b>", " ".repeat(65))), Err(PathError::TooLong));
        assert!(parse_path(&format!("<a@{}>", "b.".repeat(200) + "c")).is_err());
    }
}
