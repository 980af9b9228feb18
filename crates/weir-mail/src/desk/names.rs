//! What may be called what: logins, addresses, contacts, reasons, passwords. Everything bounded and printable.

use super::DeskError;
use weir_core::address::canonical;

const NAME_MAX: usize = 255;
const ADDRESSES_MAX: usize = 1_000;
const REASON_MAX: usize = 200;
const PASSWORD_MIN: usize = 8;
const PASSWORD_MAX: usize = 1_000;

/// A login: printable, without blanks at its ends.
pub(super) fn login(name: &str) -> Result<(), DeskError> {
    let hint = "a name is 1 to 255 bytes without blanks or control characters, such as ann or ann@example.org";
    let bad = name.contains(|c: char| c.is_control() || c.is_whitespace());
    if name.is_empty() || name.len() > NAME_MAX || bad || name.starts_with('-') {
        return Err(DeskError::invalid(format!("{:?} cannot be a user's name", shown(name)), hint));
    }
    Ok(())
}

/// Addresses that a user may send as: whole addresses, or `@example.org` for a domain.
pub(super) fn addresses(list: &[String]) -> Result<(), DeskError> {
    let hint = "write ann@example.org, or @example.org for every address of a domain";
    if list.len() > ADDRESSES_MAX {
        return Err(DeskError::invalid(format!("a user can have at most {ADDRESSES_MAX} addresses"), hint));
    }
    for address in list {
        let whole = if address.starts_with('@') { format!("anybody{address}") } else { address.clone() };
        plain(&whole).map_err(|why| DeskError::invalid(format!("the address {:?} {why}", shown(address)), hint))?;
    }
    Ok(())
}

/// Where notices go; empty for nowhere.
pub(super) fn contact(address: &str) -> Result<(), DeskError> {
    let hint = "give an address outside this mail system, where the user reads mail even when locked";
    match address {
        "" => Ok(()),
        _ => plain(address).map_err(|why| DeskError::invalid(format!("the contact {:?} {why}", shown(address)), hint)),
    }
}

/// Why an account is locked, in the user's own reply.
pub(super) fn reason(text: &str) -> Result<(), DeskError> {
    if text.trim().is_empty() || text.chars().count() > REASON_MAX || text.contains(char::is_control) {
        let hint = "the user reads it when logging in fails, for example: your password was found in a leak";
        return Err(DeskError::invalid(format!("a reason is one line of 1 to {REASON_MAX} characters"), hint));
    }
    Ok(())
}

/// A new password.
pub(super) fn password(text: &str) -> Result<(), DeskError> {
    let hint = "use a passphrase, or let weir make one with --generate";
    if text.chars().count() < PASSWORD_MIN || text.len() > PASSWORD_MAX {
        let what = format!("a password has at least {PASSWORD_MIN} characters and at most {PASSWORD_MAX} bytes");
        return Err(DeskError::invalid(what, hint));
    }
    if text.contains(char::is_control) {
        return Err(DeskError::invalid("a password has no control characters", hint));
    }
    Ok(())
}

/// Text that came from outside, for a message: cut, with nothing in it that a terminal would obey.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
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
    fn names_that_are_none_are_refused() {
        for good in ["ann", "ann@example.org", "Ärger", "a/b", "x".repeat(255).as_str()] {
            assert!(login(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "a\n", "a\0", "-x", "\u{1b}[2J", "x".repeat(256).as_str()] {
            assert!(login(bad).is_err(), "{bad:?}");
        }
    }

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
    fn contact_reason_and_password_are_bounded() {
        assert!(contact("").is_ok() && contact("ann@elsewhere.example").is_ok() && contact("ann").is_err());
        assert!(reason("a leak").is_ok() && reason(" ").is_err() && reason("a\nb").is_err());
        assert!(reason(&"x".repeat(201)).is_err());
        assert!(password("correct horse").is_ok() && password("short").is_err() && password("1234567\0").is_err());
        assert!(password(&"x".repeat(1001)).is_err());
    }
}
