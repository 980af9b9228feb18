//! The mail that one user sent, reduced to what a run needs, with addresses as keys.

use crate::trace::Mail;
use std::collections::{BTreeMap, HashMap};
use weir_core::throttle::RecipientKey;
use weir_core::time::Instant;

/// A key with this bit is a colleague's.
pub(super) const COLLEAGUE: u64 = 1 << 62;
/// A key with this bit is somebody's who has written to the user first.
pub(super) const WROTE_FIRST: u64 = 1 << 61;

/// What one user sent, in order of time.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    /// The mails.
    pub mails: Vec<Sending>,
}

/// One mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    /// When.
    pub at: Instant,
    /// To whom; each address has one key.
    pub to: Vec<RecipientKey>,
}

impl Outbox {
    /// When the user was first seen.
    pub fn first_seen(&self) -> Instant {
        self.mails.first().map_or(Instant::ZERO, |mail| mail.at)
    }

    /// The part of the mail that has one recipient, or the part that has several.
    pub fn only(&self, single: bool) -> Outbox {
        Outbox { mails: self.mails.iter().filter(|mail| (mail.to.len() == 1) == single).cloned().collect() }
    }
}

/// Splits a trace by user and numbers each user's recipients: equal addresses, equal keys, no collisions.
pub fn by_user(trace: &[Mail]) -> BTreeMap<&str, Outbox> {
    by_user_with(trace, |_| false)
}

/// The same, where `is_colleague` says of an address whether it belongs to the user's own site.
pub fn by_user_with(trace: &[Mail], is_colleague: impl Fn(&str) -> bool) -> BTreeMap<&str, Outbox> {
    let mut users: BTreeMap<&str, (Outbox, HashMap<&str, u64>)> = BTreeMap::new();
    for mail in trace {
        let (outbox, numbers) = users.entry(&mail.user).or_default();
        let mut key = |address| {
            let next = numbers.len() as u64;
            let new = || if is_colleague(address) { next | COLLEAGUE } else { next };
            RecipientKey(*numbers.entry(address).or_insert_with(new))
        };
        let to = mail.to.iter().map(|address| key(address.as_str())).collect();
        outbox.mails.push(Sending { at: mail.at, to });
    }
    let sorted = |(user, (mut outbox, _)): (_, (Outbox, _))| {
        outbox.mails.sort_by_key(|mail| mail.at);
        (user, outbox)
    };
    users.into_iter().map(sorted).collect()
}
