//! The settings of a single user: throttle parameters that differ from the profile's, and recipients that the user trusts.
//!
//! Stored with the user as JSON that a person can read. Mail to a trusted recipient goes at once, uses no slack and
//! counts against no cap; the throttle decides about the other recipients of the message as if they were the only ones. That is stronger
//! than the working set, which is small on purpose and forgets. The list is bounded: a user who writes to thousands needs a profile.

use serde_json::{Map, Value};
use weir_core::address::canonical;

/// Most recipients that one user can trust.
pub const TRUSTED_MAX: usize = 1_000;

/// Most mailboxes that one user reads besides their own.
pub const READS_MAX: usize = 50;

const TRUSTED: &str = "trusted";
const READS: &str = "reads";

/// A user's own settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Own {
    throttle: Map<String, Value>,
    /// In canonical form, in order.
    trusted: Vec<String>,
    /// Mailboxes that they read besides their own, likewise.
    reads: Vec<String>,
}

impl Own {
    /// Reads what [`Own::write`] wrote; anything else reads as no settings at all.
    pub fn read(text: &str) -> Own {
        let Ok(Value::Object(mut throttle)) = serde_json::from_str(text) else { return Own::default() };
        let mut list = |name: &str| {
            let list = throttle.remove(name).and_then(|list| serde_json::from_value(list).ok());
            let mut list: Vec<String> = list.unwrap_or_default();
            list.sort_unstable();
            list.dedup();
            list
        };
        let (trusted, reads) = (list(TRUSTED), list(READS));
        Own { throttle, trusted, reads }
    }

    /// As stored.
    pub fn write(&self) -> String {
        let mut all = self.throttle.clone();
        if !self.trusted.is_empty() {
            all.insert(TRUSTED.to_owned(), Value::from(self.trusted.clone()));
        }
        if !self.reads.is_empty() {
            all.insert(READS.to_owned(), Value::from(self.reads.clone()));
        }
        Value::Object(all).to_string()
    }

    /// Whether reading `text` for trusted recipients is worth the trouble.
    pub(crate) fn may_trust(text: &str) -> bool {
        text.contains(TRUSTED)
    }

    /// Whether mail to this address needs no asking.
    pub fn trusts(&self, address: &str) -> bool {
        canonical(address).is_ok_and(|address| self.trusted.binary_search(&address).is_ok())
    }

    /// The trusted recipients in canonical form, in order.
    pub fn trusted(&self) -> &[String] {
        &self.trusted
    }

    /// Trusts a recipient from now on; false if it was already.
    pub fn trust(&mut self, address: &str) -> Result<bool, OwnError> {
        if address.contains('*') || address.trim_start_matches([' ', '<']).starts_with('@') {
            return Err(OwnError::Pattern);
        }
        let address = canonical(address).map_err(OwnError::Address)?;
        match self.trusted.binary_search(&address) {
            Ok(_) => Ok(false),
            Err(_) if self.trusted.len() >= TRUSTED_MAX => Err(OwnError::Full),
            Err(at) => {
                self.trusted.insert(at, address);
                Ok(true)
            }
        }
    }

    /// Trusts it no longer; false if it was not.
    pub fn distrust(&mut self, address: &str) -> bool {
        let Ok(address) = canonical(address) else { return false };
        let found = self.trusted.binary_search(&address);
        found.is_ok_and(|at| !self.trusted.remove(at).is_empty())
    }

    /// The mailboxes of this login: the login itself if it is an address, an address that it is the local part of, and those that an
    /// administrator has named. To be allowed to send as an address is not to read what comes for it.
    pub fn mailboxes(&self, login: &str, addresses: &[String]) -> Vec<String> {
        let is_own = |address: &&String| {
            let local = address.rsplit_once('@').map(|(local, _)| local);
            local.is_some_and(|local| !local.is_empty() && local.eq_ignore_ascii_case(login))
        };
        let own = canonical(login).ok().into_iter();
        let own = own.chain(addresses.iter().filter(is_own).filter_map(|address| canonical(address).ok()));
        let mut all: Vec<String> = own.chain(self.reads.iter().cloned()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Names all mailboxes that the user reads besides their own.
    pub fn set_reads(&mut self, addresses: &[String]) -> Result<(), OwnError> {
        let one = |address: &String| {
            if address.contains('*') || address.trim_start_matches([' ', '<']).starts_with('@') {
                return Err(OwnError::Pattern);
            }
            canonical(address).map_err(OwnError::Address)
        };
        if addresses.len() > READS_MAX {
            return Err(OwnError::TooMany);
        }
        let mut reads = addresses.iter().map(one).collect::<Result<Vec<String>, OwnError>>()?;
        reads.sort_unstable();
        reads.dedup();
        self.reads = reads;
        Ok(())
    }

    /// The names of the parameters that are the user's own.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.throttle.keys().map(String::as_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.throttle.insert(name.to_owned(), value.into());
    }

    pub(crate) fn forget_parameters(&mut self) {
        self.throttle.clear();
    }
}

/// Why a recipient cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// It is no address.
    #[error("the address {0}")]
    Address(&'static str),
    /// It stands for many.
    #[error(
        "it stands for more than one person; the people of a whole domain are colleagues if it is in throttle.own_domains or throttle.partner_domains"
    )]
    Pattern,
    /// These are too many mailboxes.
    #[error("a user can read at most {READS_MAX} mailboxes besides their own")]
    TooMany,
    /// There are too many.
    #[error("a user can trust at most {TRUSTED_MAX} recipients; the profiles list and application are made for more")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_by_canonical_address_and_survives_as_text() {
        let mut own = Own::read("{\"stop_at\":50}");
        assert_eq!(own.trust("Bob+list@EXAMPLE.org"), Ok(true));
        assert_eq!(own.trust("Bob@example.org"), Ok(false));
        assert!(own.trust("nobody").is_err());
        for many in ["*@example.org", "@example.org", "<*@example.org>", "b*@example.org", " <@example.org>"] {
            assert_eq!(own.trust(many), Err(OwnError::Pattern), "{many}");
        }
        own.set("max_slack", 7);
        let again = Own::read(&own.write());
        assert_eq!(again, own);
        assert!(again.trusts("Bob+other@example.org") && !again.trusts("eve@example.org") && !again.trusts(""));
        assert_eq!(again.parameters().collect::<Vec<_>>(), ["max_slack", "stop_at"]);
        assert!(own.distrust("Bob@example.org") && !own.distrust("Bob@example.org"));
        own.forget_parameters();
        assert_eq!(own.write(), "{}");
    }

    #[test]
    fn whom_one_may_send_as_is_not_whose_mail_one_reads() {
        let send_as = ["info@example.org", "ann@example.org", "@example.net"].map(str::to_owned);
        let mut own = Own::default();
        assert_eq!(own.mailboxes("ann", &send_as), ["ann@example.org"]);
        assert_eq!(own.mailboxes("ann@example.org", &send_as), ["ann@example.org"]);
        assert!(own.mailboxes("u17", &send_as).is_empty() && own.mailboxes("", &send_as).is_empty());
        own.set_reads(&["Info@Example.org".to_owned()]).unwrap();
        let again = Own::read(&own.write());
        assert_eq!(again.mailboxes("u17", &send_as).len(), 1);
        assert!(again.parameters().next().is_none(), "it is no parameter of the throttle");
        for wrong in ["@example.org", "*@example.org", "nobody"] {
            assert!(own.set_reads(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        own.set_reads(&[]).unwrap();
        assert_eq!(own.write(), "{}");
    }

    #[test]
    fn the_list_is_bounded_and_nonsense_is_nothing() {
        let mut own = Own::default();
        for number in 0..TRUSTED_MAX {
            own.trust(&format!("to{number}@example.org")).unwrap();
        }
        assert_eq!(own.trust("one@more.example"), Err(OwnError::Full));
        for text in ["", "null", "[]", "{\"trusted\":3}"] {
            assert_eq!(Own::read(text), Own::default(), "{text}");
        }
    }
}
