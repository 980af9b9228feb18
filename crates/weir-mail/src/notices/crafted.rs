//! The specially crafted address of the paper: mail to it decides about held mail, once.
//!
//! `weir+release-TOKEN@host` or `weir+delete-TOKEN@host`. The token is 128 random bits, of which the
//! records keep a digest with what it is for; whoever has the address may use it once, from anywhere, whatever the mail says.
//! Link scanners click links; they do not write mail.
//!
//! An address only affects the mail that its notice was about, and only as long as the situation is the same. Mail that was held later is
//! not touched by it, and when the user is stopped or unlocked, the address becomes void: somebody who allowed a harmless delay has not
//! allowed the worm that came afterwards.

use serde::{Deserialize, Serialize};
use weir_core::time::Instant;
pub use weir_foundation::secret::digest;
use weir_foundation::secret::{BASE32, base32};
use weir_store::records::TokenRecords;

/// How long a token is good, in nanoseconds: seven days.
pub const GOOD_FOR_NS: i64 = 7 * 86_400 * 1_000_000_000;
const TOKEN_BYTES: usize = 16;

/// What an address asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// What waited goes out; if the user is stopped, whoever was told is asked once more.
    Release,
    /// What waited goes out, although the user is stopped.
    Confirm,
    /// What waited is deleted.
    Delete,
}

impl Action {
    /// The word in the address. A confirmation has that of a release: a server in front of Weir that lets these two words through needs
    /// no change, and the records know which of them it is.
    fn word(self) -> &'static str {
        match self {
            Action::Release | Action::Confirm => "release",
            Action::Delete => "delete",
        }
    }

    /// The address that asks for it.
    pub fn address(self, token: &str, hostname: &str) -> String {
        format!("weir+{}-{token}@{hostname}", self.word())
    }
}

/// What an address is good for, as the records keep it beside the digest of its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What it asks for.
    pub action: Action,
    /// Whose mail it is about.
    pub identity: String,
    /// The newest entry of the delay queue that waited when the notice was written; negative if none did.
    pub up_to: i64,
    /// The situation of the throttle at that time.
    pub situation: u32,
    /// Who was told.
    pub told: String,
    /// The one mail that it is about; none for all that the notice was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

impl Order {
    /// As the records keep it.
    pub fn purpose(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a purpose says. Nothing if it names no situation, as those of release 0.1.0 do: they would release whatever waits.
    pub fn of_purpose(purpose: &str) -> Option<Order> {
        serde_json::from_str(purpose).ok()
    }
}

/// The word and the token in an address of ours; none if it is any other address.
pub fn parse<'a>(local: &'a str, domain: &str, hostname: &str) -> Option<(Action, &'a str)> {
    if !domain.eq_ignore_ascii_case(hostname) {
        return None;
    }
    let (word, token) = local.strip_prefix("weir+")?.split_once('-')?;
    let action = [Action::Release, Action::Delete].into_iter().find(|action| action.word() == word)?;
    let plausible = token.len() == 26 && token.bytes().all(|b| BASE32.contains(&b));
    plausible.then_some((action, token))
}

/// An address that asks for this once; none if the records do not take it.
pub(crate) async fn offer(tokens: &TokenRecords, order: &Order, hostname: &str, now: Instant) -> Option<String> {
    let (token, now) = (new_token()?, now.0 as i64);
    let expires = now.saturating_add(GOOD_FOR_NS);
    tokens.add(&digest(&token), &order.purpose(), expires, now).await.ok()?;
    Some(order.action.address(&token, hostname))
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
        for strange in ["weir", "weir+release-", "weir+release-x", "weir+burn-aaaaaaaaaaaaaaaaaaaaaaaaaa", "ann"] {
            assert_eq!(parse(strange, "h", "h"), None, "{strange}");
        }
    }

    #[test]
    fn the_records_keep_all_of_an_order_and_those_without_a_situation_are_good_for_nothing() {
        let order = Order {
            action: Action::Release,
            identity: "ann \"b\"".into(),
            up_to: 20,
            situation: 3,
            told: "ann@private.example".into(),
            only: Some("m1".into()),
        };
        assert_eq!(Order::of_purpose(&order.purpose()), Some(order));
        assert_eq!(Order::of_purpose("release ann"), None);
        let older = r#"{"action":"delete","identity":"ann","up_to":3,"situation":0,"told":"x"}"#;
        assert_eq!(Order::of_purpose(older).map(|order| order.only), Some(None));
    }
}
