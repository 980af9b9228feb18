//! The paper's specially crafted mail: an address that decides about held mail, good once.
//!
//! `weir+release-TOKEN@host` or `weir+delete-TOKEN@host`. The token is 128 random bits, of which the records keep a
//! digest with what it is for; whoever has the address may use it once, from anywhere, whatever the mail says. Link
//! scanners click links; they do not write mail.

pub use weir_foundation::secret::digest;
use weir_foundation::secret::{BASE32, base32};

/// How long a token is good, in nanoseconds: seven days.
pub const GOOD_FOR_NS: i64 = 7 * 86_400 * 1_000_000_000;
const TOKEN_BYTES: usize = 16;

/// What an address asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Everything that waits goes out.
    Release,
    /// Everything that waits is deleted.
    Delete,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Release => "release",
            Action::Delete => "delete",
        }
    }

    /// The address that asks for it.
    pub fn address(self, token: &str, hostname: &str) -> String {
        format!("weir+{}-{token}@{hostname}", self.word())
    }

    /// What the records keep beside the token's digest.
    pub fn purpose(self, identity: &str) -> String {
        format!("{} {identity}", self.word())
    }

    /// What a purpose says, and about whom.
    pub fn of_purpose(purpose: &str) -> Option<(Action, &str)> {
        let (word, identity) = purpose.split_once(' ')?;
        [Action::Release, Action::Delete].into_iter().find(|a| a.word() == word).map(|action| (action, identity))
    }
}

/// The action and the token in an address of ours; none if it is any other address.
pub fn parse<'a>(local: &'a str, domain: &str, hostname: &str) -> Option<(Action, &'a str)> {
    if !domain.eq_ignore_ascii_case(hostname) {
        return None;
    }
    let (word, token) = local.strip_prefix("weir+")?.split_once('-')?;
    let action = [Action::Release, Action::Delete].into_iter().find(|action| action.word() == word)?;
    let plausible = token.len() == 26 && token.bytes().all(|b| BASE32.contains(&b));
    plausible.then_some((action, token))
}

/// A fresh token; none if the machine gives no randomness.
pub fn new_token() -> Option<String> {
    let mut bytes = [0; TOKEN_BYTES];
    weir_store::random(&mut bytes).ok()?;
    Some(base32(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_it_was_made_for() {
        let token = new_token().unwrap();
        assert_ne!(token, new_token().unwrap());
        let address = Action::Delete.address(&token, "mail.example.org");
        let (local, domain) = address.split_once('@').unwrap();
        assert_eq!(parse(local, domain, "Mail.Example.org"), Some((Action::Delete, token.as_str())));
        assert_eq!(parse(local, "other.example", "mail.example.org"), None);
        assert_eq!(Action::of_purpose(&Action::Release.purpose("ann b")), Some((Action::Release, "ann b")));
        for strange in ["weir", "weir+release-", "weir+release-x", "weir+burn-aaaaaaaaaaaaaaaaaaaaaaaaaa", "ann"] {
            assert_eq!(parse(strange, "h", "h"), None, "{strange}");
        }
    }
}
