//! Counts how much mail on this disk belongs to each user: messages in the spool, and held ones in files of their own.
//!
//! The counts are only in memory. The spool subtracts each message that is finished. At each start, the code that opens the spool says
//! again to whom the messages belong that were found. Cost: one lock and two map operations per message; about 60 bytes per message, and
//! nothing for users without mail.

use super::MessageId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much each owner has.
#[derive(Debug, Default)]
pub struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    owners: HashMap<Arc<str>, Share>,
    messages: HashMap<(MessageId, MailLocation), (Arc<str>, u64)>,
}

/// Where a message is. It may be in both places: the part that is sent at once is in the spool, and the part that waits in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MailLocation {
    /// In the spool.
    Spool,
    /// Among the held mail.
    Held,
}

/// What one owner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Messages.
    pub messages: u64,
    /// What they take on the disk.
    pub octets: u64,
}

/// What one owner may have; 0 for any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareLimits {
    /// Messages.
    pub messages: u64,
    /// What they take on the disk.
    pub octets: u64,
}

impl ShareLimits {
    /// Whether somebody who has this much may have another message of this size.
    pub fn allow(&self, share: Share, octets: u64) -> bool {
        (self.messages == 0 || share.messages < self.messages)
            && (self.octets == 0 || share.octets.saturating_add(octets) <= self.octets)
    }
}

impl Shares {
    /// Counts a message, unless its owner has too much already; then returns how much that is.
    pub fn charge(&self, id: MessageId, owner: &str, octets: u64, limits: &ShareLimits) -> Result<(), Share> {
        let mut table = self.table();
        let share = table.owners.get(owner).copied().unwrap_or_default();
        if !limits.allow(share, octets) {
            return Err(share);
        }
        table.add((id, MailLocation::Spool), owner, octets);
        Ok(())
    }

    /// Counts a message that is here, whatever its owner may have. Calling this again changes nothing.
    pub fn add(&self, id: MessageId, place: MailLocation, owner: &str, octets: u64) {
        self.table().add((id, place), owner, octets);
    }

    /// The message is no longer there.
    pub fn release(&self, id: MessageId, place: MailLocation) {
        let mut table = self.table();
        let Some((owner, octets)) = table.messages.remove(&(id, place)) else { return };
        let Some(share) = table.owners.get_mut(&owner) else { return };
        share.messages -= 1;
        share.octets -= octets;
        if share.messages == 0 {
            table.owners.remove(&owner);
        }
    }

    /// What an owner has.
    pub fn of(&self, owner: &str) -> Share {
        self.table().owners.get(owner).copied().unwrap_or_default()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, key: (MessageId, MailLocation), owner: &str, octets: u64) {
        if self.messages.contains_key(&key) {
            return;
        }
        let owner = match self.owners.get_key_value(owner) {
            Some((owner, _)) => Arc::clone(owner),
            None => owner.into(),
        };
        let share = self.owners.entry(Arc::clone(&owner)).or_default();
        share.messages += 1;
        share.octets += octets;
        self.messages.insert(key, (owner, octets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back_once() {
        let (shares, limits) = (Shares::default(), ShareLimits { messages: 2, octets: 100 });
        let id = |number: u128| MessageId::of(number);
        assert_eq!(shares.charge(id(1), "ann", 60, &limits), Ok(()));
        assert_eq!(shares.charge(id(2), "ann", 60, &limits), Err(Share { messages: 1, octets: 60 }));
        assert_eq!(shares.charge(id(2), "ann", 40, &limits), Ok(()));
        assert_eq!(shares.charge(id(3), "ann", 0, &limits), Err(Share { messages: 2, octets: 100 }));
        assert_eq!(shares.charge(id(3), "bob", 100, &limits), Ok(()));
        shares.add(id(2), MailLocation::Held, "ann", 40);
        shares.add(id(2), MailLocation::Held, "ann", 40);
        assert_eq!(shares.of("ann"), Share { messages: 3, octets: 140 });
        for _ in 0..2 {
            shares.release(id(1), MailLocation::Spool);
            shares.release(id(2), MailLocation::Spool);
        }
        assert_eq!(shares.of("ann"), Share { messages: 1, octets: 40 });
        shares.release(id(2), MailLocation::Held);
        shares.release(id(3), MailLocation::Spool);
        assert!(shares.table().owners.is_empty() && shares.table().messages.is_empty());
        assert!(ShareLimits::default().allow(Share { messages: 9, octets: 9 }, 9), "0 is no limit");
    }
}
