//! Held mail whose attachments go to the lab in bulk: what a locked account has tried to send.

use super::held::{HeldSelection, nothing_held};
use super::{Actor, Desk, OperationError, plural};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Held messages in one go.
const MESSAGES_MAX: usize = 1_000;

/// A stored message whose attachments are to be analysed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMail {
    /// Its id.
    pub message: String,
    /// Whose it is.
    pub owner: String,
    /// The message itself.
    pub file: PathBuf,
}

/// What became of held mail that was to be analysed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HeldAnalysed")]
pub struct Analysed {
    /// Messages that were looked into.
    pub messages: usize,
    /// Attachments in them, the same ones counted once.
    pub attachments: usize,
    /// Attachments that are new samples of the lab now.
    pub submitted: usize,
    /// Attachments that the lab has, or had, anyway.
    pub known: usize,
    /// The samples, by number.
    pub samples: Vec<i64>,
    /// What was left out, and why.
    pub problems: Vec<String>,
    /// Messages that there was no time for: asking again goes on with them.
    pub messages_left: usize,
}

impl Desk {
    /// Hands the attachments of held mail to the lab, each content once.
    pub async fn held_analyse(&self, selection: &HeldSelection, actor: &Actor) -> Result<Analysed, OperationError> {
        if *selection == HeldSelection::default() {
            return Err(OperationError::invalid(
                "which held mail is meant?",
                "name messages, a user, or say that you mean all",
            ));
        }
        let held = self.held_list(selection).await?.messages;
        if held.is_empty() {
            return Err(nothing_held(selection));
        }
        let scanning = self.scanning()?;
        let mut here: BTreeMap<String, StoredMail> = BTreeMap::new();
        let mut elsewhere = 0;
        for held in held {
            let file = self.parts.foundation.folder.held().join(format!("{}.eml", held.message));
            match held.relay == self.parts.rules.relay && !held.file_missing {
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
            analysed
                .problems
                .push(format!("{elsewhere} messages are kept by other relays, or their files are missing"));
        }
        Ok(analysed)
    }
}
