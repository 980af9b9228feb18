//! Checks the values that a user of the mail gate may have: addresses, a contact, a reason for a lock. All are bounded and printable.

use super::OperationError;
use weir_core::address::canonical;
pub(super) use weir_foundation::names::{login, password, shown};

const ADDRESSES_MAX: usize = 1_000;
const REASON_MAX: usize = 200;

/// Addresses that a user may send as: whole addresses, or `@example.org` for a domain.
pub(super) fn addresses(list: &[String]) -> Result<(), OperationError> {
    let hint = "write ann@example.org, or @example.org for every address of a domain";
    if list.len() > ADDRESSES_MAX {
        return Err(OperationError::invalid(format!("a user can have at most {ADDRESSES_MAX} addresses"), hint));
    }
    for address in list {
        let whole = if address.starts_with('@') { format!("anybody{address}") } else { address.clone() };
        plain(&whole)
            .map_err(|why| OperationError::invalid(format!("the address {:?} {why}", shown(address)), hint))?;
    }
    Ok(())
}

/// Where notices go; empty for nowhere.
pub(super) fn contact(address: &str) -> Result<(), OperationError> {
    let hint = "give an address outside this mail system, where the user reads mail even when locked";
    match address {
        "" => Ok(()),
        _ => plain(address)
            .map_err(|why| OperationError::invalid(format!("the contact {:?} {why}", shown(address)), hint)),
    }
}

/// Why an account is locked, in the user's own reply.
pub(super) fn reason(text: &str) -> Result<(), OperationError> {
    if text.trim().is_empty() || text.chars().count() > REASON_MAX || text.contains(char::is_control) {
        let hint = "the user reads it when logging in fails, for example: your password was found in a leak";
        return Err(OperationError::invalid(format!("a reason is one line of 1 to {REASON_MAX} characters"), hint));
    }
    Ok(())
}

fn plain(address: &str) -> Result<(), &'static str> {
    if address.contains(['<', '>', ',', ';']) {
        return Err("must stand alone, without < > , ;");
    }
    canonical(address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_whole_domains_but_not_nonsense() {
        let list = |text: &str| [text.to_owned()];
        for good in ["ann@example.org", "@example.org"] {
            assert!(addresses(&list(good)).is_ok(), "{good}");
        }
        for bad in ["", "@", "ann", "ann@", "a@b, c@d", "<ann@example.org>", "a\r\n@b", "ann@exa mple.org"] {
            assert!(addresses(&list(bad)).is_err(), "{bad:?}");
        }
        assert!(addresses(&vec!["a@b".to_owned(); 1001]).is_err());
    }

    #[test]
    fn contact_and_reason_are_bounded() {
        assert!(contact("").is_ok() && contact("ann@elsewhere.example").is_ok() && contact("ann").is_err());
        assert!(reason("a leak").is_ok() && reason(" ").is_err() && reason("a\nb").is_err());
        assert!(reason(&"x".repeat(201)).is_err());
    }
}
