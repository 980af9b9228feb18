//! Decides whether an address belongs to a login: it does if the address or its whole domain is listed for it.

use weir_core::address::canonical;

/// Whether `address` is one of `owned`: `ann@example.org` (plus tags allowed), or `@example.org` for a whole domain.
pub(crate) fn belongs(address: &str, owned: &[String]) -> bool {
    let Ok(address) = canonical(address) else { return false };
    owned.iter().any(|own| match own.strip_prefix('@') {
        Some(domain) => address.rsplit_once('@').is_some_and(|(_, of)| of.eq_ignore_ascii_case(domain)),
        None => canonical(own).is_ok_and(|own| own.eq_ignore_ascii_case(&address)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_by_name_or_by_domain() {
        let owned = ["ann@example.org".to_owned(), "@example.net".to_owned()];
        for address in ["ann@example.org", "Ann@EXAMPLE.org", "ann+list@example.org", "who@example.net"] {
            assert!(belongs(address, &owned), "{address}");
        }
        for address in ["bob@example.org", "ann@sub.example.net", "ann@example.org.evil.example", "", "@example.net"] {
            assert!(!belongs(address, &owned), "{address}");
        }
    }
}
