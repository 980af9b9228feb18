//! The domain of the From header (RFC 5322 section 3.6.2), taken from its first address.

use super::canonical::fields;

/// The domain, in lower case; none if there is no From, or no address in it.
pub(super) fn domain(header: &[u8]) -> Option<String> {
    let from = fields(header).find(|field| field.name.eq_ignore_ascii_case(b"from"))?;
    let text = plain(&String::from_utf8_lossy(from.value));
    // The first address in angle brackets, or else the first word with an @.
    let address = match text.split_once('<') {
        Some((_, rest)) => rest.split('>').next().unwrap_or_default(),
        None => text.split([',', ';', ' ']).find(|word| word.contains('@')).unwrap_or_default(),
    };
    let (_, domain) = address.rsplit_once('@')?;
    let domain = crate::client::command::ascii_domain(domain.trim().trim_end_matches('.'))?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!domain.is_empty() && domain.bytes().all(valid)).then_some(domain)
}

/// The text without comments and quoted strings, because these may contain anything.
fn plain(text: &str) -> String {
    let (mut out, mut depth, mut quoted) = (String::new(), 0u32, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted || depth > 0 => drop(chars.next()),
            '"' if depth == 0 => {
                quoted = !quoted;
                // A quoted local part must leave something before the @.
                out.push('q');
            }
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            '\r' | '\n' | '\t' if !quoted && depth == 0 => out.push(' '),
            c if !quoted && depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_counts() {
        for (from, expected) in [
            ("ann@Example.org", Some("example.org")),
            ("Ann <ann@example.org>", Some("example.org")),
            ("\"evil@a <b@b.example>\" <ann@example.org>", Some("example.org")),
            ("\"a@b\"@example.org", Some("example.org")),
            ("Ann (work <x@y>) <ann@example.org>, b@c", Some("example.org")),
            ("a@example.org, <b@other.example>", Some("other.example")),
            ("ann@example.org (Ann)", Some("example.org")),
            ("\r\n Ann\r\n <ann@example.org>", Some("example.org")),
            ("Ann <ann@bücher.example>", Some("xn--bcher-kva.example")),
            ("Ann", None),
            ("<ann>", None),
            ("<ann@>", None),
            ("<ann@exa mple>", None),
        ] {
            assert_eq!(domain(format!("To: x@y\r\nFrom: {from}\r\n").as_bytes()).as_deref(), expected, "{from}");
        }
        assert_eq!(domain(b"To: x@y\r\n"), None);
    }
}
