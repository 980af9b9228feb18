//! The canonical form of a recipient, so that the same mailbox counts once.
//!
//! The domain is lower case, without a final dot, its international labels in ASCII (RFC 3492, after plain
//! lower-casing; the full preparation of RFC 5891 is left out). The local part loses its plus tag; its case is
//! kept, as RFC 5321 says that it may matter. Angle brackets and surrounding blanks fall away. A local part that routes to somebody else
//! (`bob%far.example`, `far!bob`) is kept as it is: the part after a plus may name the real recipient.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

const ADDRESS_MAX: usize = 512;

/// The canonical form of `address`, or why it is not an address.
pub fn canonical(address: &str) -> Result<String, &'static str> {
    written(address, |mailbox| match mailbox.split_once('+') {
        Some((before, _)) if !is_way(mailbox) => before,
        _ => mailbox,
    })
}

/// Whether a local part contains a route to a mailbox at another server, as old mail servers read it and some still do: `bob%far.example@here`,
/// `far!bob@here`, `"bob@far.example"@here`.
pub fn names_a_way(address: &str) -> bool {
    address.rsplit_once('@').is_some_and(|(local, _)| is_way(local.trim_start().trim_start_matches('<')))
}

fn is_way(local: &str) -> bool {
    local.contains(['%', '!', '@'])
}

/// The canonical form, but with the plus tag. At a domain that is not ours nobody knows what a plus means: at some `ann+a` and `ann+b`
/// are one person, at others two.
pub fn canonical_with_tag(address: &str) -> Result<String, &'static str> {
    written(address, |mailbox| mailbox)
}

/// The canonical form; `mailbox` says which part of an unquoted local part is kept.
fn written(address: &str, mailbox: impl Fn(&str) -> &str) -> Result<String, &'static str> {
    let bare = address.trim();
    let bare = bare.strip_prefix('<').and_then(|b| b.strip_suffix('>')).unwrap_or(bare);
    let (local, domain) = bare.rsplit_once('@').ok_or("has no @")?;
    let quoted = local.starts_with('"');
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    if local.is_empty() || domain.is_empty() || domain.split('.').any(str::is_empty) {
        return Err("lacks a part before or after the @");
    }
    if bare.len() > ADDRESS_MAX {
        return Err("is longer than 512 bytes");
    }
    if bare.chars().any(|c| c.is_control() || (c.is_whitespace() && !quoted)) || domain.contains(char::is_whitespace) {
        return Err("has a blank or a control character in it");
    }
    let local = if quoted { local } else { Some(mailbox(local)).filter(|kept| !kept.is_empty()).unwrap_or(local) };
    let labels: Vec<String> = domain.to_lowercase().split('.').map(ascii_label).collect();
    Ok(format!("{local}@{}", labels.join(".")))
}

fn ascii_label(label: &str) -> String {
    if label.is_ascii() { label.to_string() } else { format!("xn--{}", punycode(label)) }
}

/// RFC 3492, section 6.3.
fn punycode(label: &str) -> String {
    let points: Vec<u32> = label.chars().map(u32::from).collect();
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = out.len() as u32;
    if basic > 0 {
        out.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (128u32, 0u32, 72u32, basic);
    while let Some(next) = points.iter().copied().filter(|p| *p >= n).min() {
        // A label has at most 512 characters below 2^21: nothing here can overflow 32 bits.
        delta += (next - n) * (handled + 1);
        n = next;
        for point in &points {
            delta += u32::from(*point < n);
            if *point == n {
                digits(&mut out, delta, bias);
                bias = adapted(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta += 1;
        n += 1;
    }
    out
}

fn digits(out: &mut String, mut q: u32, bias: u32) {
    let digit = |d: u32| char::from(if d < 26 { b'a' + d as u8 } else { b'0' + (d - 26) as u8 });
    for k in (36u32..).step_by(36) {
        let threshold = k.saturating_sub(bias).clamp(1, 26);
        if q < threshold {
            break;
        }
        out.push(digit(threshold + (q - threshold) % (36 - threshold)));
        q = (q - threshold) / (36 - threshold);
    }
    out.push(digit(q));
}

fn adapted(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > 35 * 26 / 2 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mailbox_has_one_form() {
        for (given, form) in [
            ("bob@x.org", "bob@x.org"),
            (" <Bob+list@X.ORG.> ", "Bob@x.org"),
            ("+tag@x.org", "+tag@x.org"),
            ("a+b+c@x.org", "a@x.org"),
            ("\"a b+c\"@x.org", "\"a b+c\"@x.org"),
            ("eve@BÜCHER.example", "eve@xn--bcher-kva.example"),
            ("eve@xn--bcher-kva.example", "eve@xn--bcher-kva.example"),
            ("eve@他们为什么不说中文.cn", "eve@xn--ihqwcrb4cv8a8dqg056pqjye.cn"),
            ("eve@Pročprostěnemluvíčesky.cz", "eve@xn--proprostnemluvesky-uyb24dma41a.cz"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(form), "{given}");
        }
    }

    #[test]
    fn an_address_that_names_a_way_is_somebody_of_its_own() {
        for (given, form) in [
            ("info+%far1.test@x.org", "info+%far1.test@x.org"),
            ("info+a!b@x.org", "info+a!b@x.org"),
            ("bob%far.test@X.org", "bob%far.test@x.org"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(form), "{given}");
        }
        for way in ["bob%far.test@x.org", "<far!bob@x.org>", "\"bob@far.test\"@x.org", "info+%far.test@x.org"] {
            assert!(names_a_way(way), "{way}");
        }
        for plain in ["bob@x.org", "bob+tag@x.org", "\"a b\"@x.org", "bob"] {
            assert!(!names_a_way(plain), "{plain}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for given in ["", "bob", "@x.org", "bob@", "bob@x..org", "bo b@x.org", "bob@x .org", "bob@x\u{0}.org", "<>"] {
            assert!(canonical(given).is_err(), "{given:?}");
        }
        assert!(canonical(&format!("a@{}", "\u{10ffff}".repeat(200))).is_err());
        assert!(canonical(&format!("a@{}", "\u{10ffff}".repeat(100))).is_ok());
    }
}
