//! A link to a user's own page, for notices: who it is for and until when, signed with a secret of the site.
//!
//! It goes to the contact address and is bound to it: when the contact changes, older links become void. It is also bound to the situation
//! of the user's throttle: when a stop begins or ends, earlier links become void, because they were given for other mail. Nothing is
//! stored, and nothing acts on a click: the page behind it asks first.

use ring::hmac;
use weir_store::hex;

/// The name of the secret that links are signed with.
pub const SECRET: &str = "own-links";
/// How long a link is good: seven days, as the addresses beside it.
pub const GOOD_FOR_S: u64 = 7 * 86_400;
/// A longer key was not made by us.
const KEY_MAX: usize = 1_000;

/// Whose page a link opens.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The user.
    pub identity: &'a str,
    /// Their contact address, to which links go.
    pub contact: &'a str,
    /// The situation of their throttle when the link was made.
    pub situation: u32,
}

/// The key of a link for this owner.
pub fn key(secret: &str, owner: Owner<'_>, until_s: u64) -> String {
    let name = hex(owner.identity.as_bytes());
    format!("{until_s}.{name}.{}", hex(sign(secret, owner, until_s).as_ref()))
}

/// Whom a key is for. It is to be checked with [`is_good`].
pub fn identity_of(key: &str) -> Option<String> {
    let name = key.split('.').nth(1).filter(|_| key.len() <= KEY_MAX)?;
    String::from_utf8(weir_store::unhex(name)?).ok()
}

/// Whether a key is ours, for this owner, and not too old.
pub fn is_good(secret: &str, key: &str, owner: Owner<'_>, now_s: u64) -> bool {
    let mut parts = key.split('.');
    let (Some(until), Some(_), Some(mac), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some(until_s) = until.parse().ok().filter(|until| now_s < *until) else { return false };
    let signing = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let Some(mac) = weir_store::unhex(mac) else { return false };
    hmac::verify(&signing, &text(owner, until_s), &mac).is_ok()
}

fn sign(secret: &str, owner: Owner<'_>, until_s: u64) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &text(owner, until_s))
}

/// What is signed: no two links have the same text, as names and addresses have no line ends.
fn text(Owner { identity, contact, situation }: Owner<'_>, until_s: u64) -> Vec<u8> {
    format!("{until_s}\n{situation}\n{contact}\n{identity}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_for_whom_it_was_made_and_for_a_week() {
        let who = Owner { identity: "ann@example.org", contact: "ann@elsewhere.example", situation: 3 };
        let key = key("secret", who, 1_000);
        assert_eq!(identity_of(&key).as_deref(), Some(who.identity));
        assert!(is_good("secret", &key, who, 999));
        assert!(!is_good("secret", &key, who, 1_000), "too old");
        assert!(!is_good("other", &key, who, 0) && !is_good("secret", &key, Owner { identity: "bob", ..who }, 0));
        assert!(
            !is_good("secret", &key, Owner { contact: "other@elsewhere.example", ..who }, 0),
            "the contact changed"
        );
        assert!(!is_good("secret", &key, Owner { situation: 4, ..who }, 0), "there was a stop since");
        assert!(!is_good("secret", &key.replacen("1000", "9999", 1), who, 0), "nobody makes it live longer");
    }

    #[test]
    fn nonsense_is_no_link() {
        for key in ["", ".", "..", "1.2.3", "9.zz.zz", "9.é.é", "99999999999999999999.61.61", "1.61.61.61"] {
            assert!(!is_good("secret", key, Owner { identity: "a", contact: "", situation: 0 }, 0), "{key}");
            identity_of(key);
        }
        assert_eq!(identity_of(&format!("9.{}.00", "61".repeat(1_000))), None);
    }
}
