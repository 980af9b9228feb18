//! Finds out whom a message claims to be from, as readers of the mail would see it.
//!
//! Programs differ over a From that is not well-formed, and over a second From. So every domain counts that some mail program may show as
//! the author's: all addresses of all From fields and, if no address of a field can be read, everything in it that looks like an address.

use crate::delivery::route::canonical;
use mail_parser::parsers::MessageStream;
use mail_parser::{Address, HeaderValue};
use weir_smtp::header_field;

/// Nobody writes with authors of more domains than this, and nobody is asked about more.
const DOMAINS_MAX: usize = 8;

/// The domains of all authors that a header may be read to have, each once, in the form in which the DNS is asked. None if they are too
/// many: whoever is not asked about would be let through.
pub(super) fn domains(header: &[u8]) -> Option<Vec<String>> {
    let mut domains: Vec<String> = Vec::new();
    let mut rest = header;
    while !rest.is_empty() {
        let (field, behind) = rest.split_at(header_field::end(rest).min(rest.len()));
        rest = behind;
        let Some(value) = from_value(field) else { continue };
        for domain in domains_in(value) {
            if !domains.contains(&domain) {
                domains.push(domain);
            }
            if domains.len() > DOMAINS_MAX {
                return None;
            }
        }
    }
    Some(domains)
}

/// The value of a field that is called From, with blanks around its name or without.
fn from_value(field: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', field)?;
    let (name, value) = (field.get(..colon)?, field.get(colon + 1..)?);
    name.trim_ascii().eq_ignore_ascii_case(b"from").then_some(value)
}

fn domains_in(value: &[u8]) -> Vec<String> {
    let read: Vec<String> = addresses(value).iter().filter_map(|address| domain(address)).collect();
    if !read.is_empty() {
        return read;
    }
    let text = String::from_utf8_lossy(value);
    let apart = |c: char| c.is_whitespace() || c.is_control() || "<>()[]\",;:\\".contains(c);
    text.split(apart).filter_map(domain).collect()
}

fn addresses(value: &[u8]) -> Vec<String> {
    // The reader wants to see the end of the field.
    let whole = [value.trim_ascii_end(), b"\r\n"].concat();
    match MessageStream::new(&whole).parse_address() {
        HeaderValue::Address(Address::List(list)) => {
            list.iter().filter_map(|one| one.address.as_deref().map(str::to_owned)).collect()
        }
        HeaderValue::Address(Address::Group(groups)) => groups
            .iter()
            .flat_map(|group| group.addresses.iter())
            .filter_map(|one| one.address.as_deref().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// The domain of an address, if the DNS can be asked about it.
fn domain(address: &str) -> Option<String> {
    let (_, domain) = address.rsplit_once('@')?;
    let domain = canonical(domain.trim());
    super::is_domain(&domain).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_of_from_counts() {
        let of = |text: &str| domains(text.as_bytes()).unwrap().join(" ");
        assert_eq!(of("From: a@B.example\r\nTo: x@y.example\r\n\r\n"), "b.example");
        assert_eq!(of("From: a@b.example\r\nFrom: c@d.example\r\n\r\n"), "b.example d.example");
        assert_eq!(of("from : \"x, y\" <a@b.example>, c@d.example\r\n\r\n"), "b.example d.example");
        assert_eq!(of("From: Group: a@b.example, c@d.example;\r\n\r\n"), "b.example d.example");
        assert_eq!(of("From:\r\n \"x@shown.example\"\r\n <a@b.example>\r\n\r\n"), "b.example");
        assert_eq!(of("From: \"x@shown.example\" (\r\n\r\n"), "shown.example");
        assert_eq!(of("Subject: x\r\n From: a@b.example\r\n\r\n"), "");
        assert_eq!(of("From: nobody\r\n\r\n"), "");
        let many: String = (0..100).map(|number| format!("a@d{number}.example, ")).collect();
        assert_eq!(domains(format!("From: {many}\r\n\r\n").as_bytes()), None);
    }
}
