//! Rules for logins and passwords. Both are bounded in length and free of control characters.

use crate::OperationError;

const NAME_BYTES_MAX: usize = 255;
const PASSWORD_CHARACTERS_MIN: usize = 8;
const PASSWORD_BYTES_MAX: usize = 1_000;

/// Checks a login: printable, without blanks.
pub fn login(name: &str) -> Result<(), OperationError> {
    let hint = "a name is 1 to 255 bytes without blanks or control characters, such as ann or ann@example.org";
    let bad = name.contains(|c: char| c.is_control() || c.is_whitespace());
    if name.is_empty() || name.len() > NAME_BYTES_MAX || bad || name.starts_with('-') {
        return Err(OperationError::invalid(format!("{:?} cannot be a user's name", shown(name)), hint));
    }
    Ok(())
}

/// Checks a new password.
pub fn password(text: &str) -> Result<(), OperationError> {
    let hint = "use a passphrase, or let weir make one with --generate";
    if text.chars().count() < PASSWORD_CHARACTERS_MIN || text.len() > PASSWORD_BYTES_MAX {
        let what = format!(
            "a password has at least {PASSWORD_CHARACTERS_MIN} characters and at most {PASSWORD_BYTES_MAX} bytes"
        );
        return Err(OperationError::invalid(what, hint));
    }
    if text.contains(char::is_control) {
        return Err(OperationError::invalid("a password has no control characters", hint));
    }
    Ok(())
}

/// Shortens text from outside for a message, and removes control characters, which a terminal would obey.
pub fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
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
    fn passwords_are_bounded() {
        assert!(password("correct horse").is_ok() && password("short").is_err() && password("1234567\0").is_err());
        assert!(password(&"x".repeat(1001)).is_err());
    }
}
