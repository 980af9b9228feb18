//! The API operations on quarantined mail.

use super::call::Call;
use super::operation::{Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{
    Authority, QuarantineDecision, QuarantineDone, QuarantineList, QuarantinePage, QuarantineSelection,
};

/// Quarantined mail, the newest first.
pub const LIST: Operation<Filter, QuarantineList> = look("/quarantine", "Quarantined mail, the newest first");
/// Releases quarantined mail unchanged.
pub const RELEASE: Operation<Which, QuarantineDone> =
    operate("/quarantine/release", "Sends quarantined mail as it is; infected mail needs the scope admin");
/// Drops quarantined mail.
pub const DELETE: Operation<Which, QuarantineDone> =
    operate("/quarantine/delete", "Drops quarantined mail; nobody is told");
/// Everything about one quarantined message.
pub const SHOW: Operation<(), QuarantinePage> =
    look("/quarantine/messages/{message}", "Everything about one quarantined message");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(RELEASE, release).with(DELETE, delete).with(SHOW, show)
}

/// Which quarantined mail is listed. Empty fields match everything.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// This message.
    pub message: String,
    /// In this quarantine.
    pub queue: String,
    /// To this recipient.
    pub recipient: String,
    /// From this envelope sender.
    pub sender: String,
    /// That has been there for at least this many seconds.
    pub older_than_s: u64,
    /// With this text in sender, recipient, subject or reason.
    pub text: String,
    /// Similar to this message: in the same quarantine, with the same subject and reason except for numbers.
    pub like: String,
}

/// Which quarantined mail is meant.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "QuarantineWhich")]
pub struct Which {
    /// This mail.
    #[serde(default)]
    pub selection: QuarantineSelection,
    /// The reason, in a few words: needed to release infected mail, which is released one message at a time.
    #[serde(default)]
    pub reason: String,
    /// Release it to this address instead of to its recipients.
    #[serde(default)]
    pub to: String,
}

async fn list(call: Call<Gates>, filter: Filter) -> Result<QuarantineList, Problem> {
    let Filter { message, queue, recipient, sender, older_than_s, text, like } = filter;
    let messages = if message.is_empty() { Vec::new() } else { vec![message] };
    let selection = QuarantineSelection { messages, queue, recipient, sender, older_than_s, text, like, all: true };
    Ok(call.state.mail.quarantine.list(&selection).await?)
}

async fn show(call: Call<Gates>, (): ()) -> Result<QuarantinePage, Problem> {
    Ok(call.state.mail.quarantine.show(&call.name).await?)
}

async fn release(call: Call<Gates>, which: Which) -> Result<QuarantineDone, Problem> {
    decide(&call, &which, QuarantineDecision::release(&which.to)?).await
}

async fn delete(call: Call<Gates>, which: Which) -> Result<QuarantineDone, Problem> {
    decide(&call, &which, QuarantineDecision::Delete).await
}

async fn decide(call: &Call<Gates>, which: &Which, decision: QuarantineDecision) -> Result<QuarantineDone, Problem> {
    // Whoever owns the data folder is an administrator.
    let authority = match call.rank {
        None | Some(Role::Admin) => Authority::Administrator { reason: which.reason.clone() },
        Some(Role::Operator | Role::User) => Authority::Operator,
    };
    Ok(call.state.mail.quarantine.decide(&which.selection, &decision, &authority, &call.actor).await?)
}
