//! Submits the attachments of held mail to the lab in bulk, to find out what a stopped account has tried to send.

use super::{HeldOperations, HeldSelection, nothing_held};
use crate::counted::count;
use crate::operations::backend::scanning;
use crate::operations::{Actor, OperationError, plural};
use crate::scan::{Analysed, StoredMail};
use std::collections::BTreeMap;

/// Held messages in one go.
const MESSAGES_MAX: usize = 1_000;

impl HeldOperations {
    /// Hands the attachments of held mail to the lab, each content once.
    pub async fn analyse(&self, selection: &HeldSelection, actor: &Actor) -> Result<Analysed, OperationError> {
        if *selection == HeldSelection::default() {
            return Err(OperationError::invalid(
                "which held mail is meant?",
                "name messages, a user, or say that you mean all",
            ));
        }
        let held = self.list(selection).await?.messages;
        if held.is_empty() {
            return Err(nothing_held(selection));
        }
        let scanning = scanning(&*self.backend)?;
        let mut here: BTreeMap<String, StoredMail> = BTreeMap::new();
        let mut elsewhere = 0;
        for held in held {
            let file = self.folder.held().join(format!("{}.eml", held.message));
            match *held.relay == *self.relay && !held.file_missing {
                true => drop(
                    here.insert(held.message.clone(), StoredMail { message: held.message, owner: held.user, file }),
                ),
                false => elsewhere += 1,
            }
        }
        let left = here.len().saturating_sub(MESSAGES_MAX);
        let mails: Vec<StoredMail> = here.into_values().take(MESSAGES_MAX).collect();
        let users: BTreeMap<&str, usize> = mails.iter().fold(BTreeMap::new(), |mut users, mail| {
            *users.entry(mail.owner.as_str()).or_default() += 1;
            users
        });
        for (user, count) in users {
            let detail = format!("attachments of {count} held message{} go to the lab", plural(count));
            self.audit.write(actor, "held.analyse", user, detail).await?;
        }
        let mut analysed = scanning.analyse(&mails, actor.as_str()).await?;
        analysed.messages_left += left;
        if elsewhere > 0 {
            analysed.problems.push(format!(
                "not looked at: {} kept by other relays, or without a file",
                count(elsewhere, "message")
            ));
        }
        Ok(analysed)
    }
}
