//! The API operations on held mail.

use super::call::Call;
use super::operation::{Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_mail::operations::{Analysed, Decision, HeldDone, HeldList, HeldPage, HeldSelection, LearnedView};

/// Held mail in the order of its queues.
pub const LIST: Operation<Filter, HeldList> = look("/held", "Held mail in the order of its queues");
/// Sends held mail now.
pub const RELEASE: Operation<Release, HeldDone> =
    operate("/held/release", "Sends held mail now; with trust it never waits again");
/// Drops held mail.
pub const DELETE: Operation<Which, HeldDone> = operate("/held/delete", "Drops held mail; nobody is told");
/// Submits attachments to the lab.
pub const ANALYSE: Operation<Which, Analysed> =
    operate("/held/analyse", "Hands the attachments of held mail to the lab, each content once");
/// What learn-only mode recorded.
pub const LEARNED: Operation<Days, Vec<LearnedView>> = look("/held/learned", "What learn-only mode would have held");
/// Everything about one held message.
pub const SHOW: Operation<(), HeldPage> = look("/held/messages/{message}", "Everything about one held message");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table
        .with(LIST, list)
        .with(RELEASE, release)
        .with(DELETE, delete)
        .with(ANALYSE, analyse)
        .with(LEARNED, learned)
        .with(SHOW, show)
}

/// Which held mail is listed. Empty fields match everything.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// This message.
    pub message: String,
    /// Of this user.
    pub user: String,
    /// To this recipient.
    pub recipient: String,
}

/// Which held mail is released.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HeldRelease")]
pub struct Release {
    /// This mail.
    #[serde(default)]
    pub selection: HeldSelection,
    /// Mail of the same user to the same recipients never has to wait again.
    #[serde(default)]
    pub trust: bool,
}

/// Which held mail is meant.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HeldDelete")]
pub struct Which {
    /// This mail.
    #[serde(default)]
    pub selection: HeldSelection,
}

/// How far back.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Days {
    /// This many days.
    #[serde(default = "month")]
    pub days: i64,
}

fn month() -> i64 {
    30
}

/// The selection, with its user under the name that is known here.
async fn meant(call: &Call<Gates>, selection: HeldSelection) -> Result<HeldSelection, Problem> {
    Ok(HeldSelection { user: call.state.mail.users.called_in_queues(&selection.user).await?, ..selection })
}

async fn list(call: Call<Gates>, filter: Filter) -> Result<HeldList, Problem> {
    let messages = if filter.message.is_empty() { Vec::new() } else { vec![filter.message] };
    let selection = HeldSelection { messages, user: filter.user, recipient: filter.recipient, all: true };
    Ok(call.state.mail.held.list(&meant(&call, selection).await?).await?)
}

async fn show(call: Call<Gates>, (): ()) -> Result<HeldPage, Problem> {
    Ok(call.state.mail.held.show(&call.name).await?)
}

async fn release(call: Call<Gates>, release: Release) -> Result<HeldDone, Problem> {
    let decision = if release.trust { Decision::Trust } else { Decision::Release };
    Ok(call.state.mail.held.decide(&meant(&call, release.selection).await?, decision, &call.actor).await?)
}

async fn delete(call: Call<Gates>, which: Which) -> Result<HeldDone, Problem> {
    Ok(call.state.mail.held.decide(&meant(&call, which.selection).await?, Decision::Delete, &call.actor).await?)
}

async fn analyse(call: Call<Gates>, which: Which) -> Result<Analysed, Problem> {
    Ok(call.state.mail.held.analyse(&meant(&call, which.selection).await?, &call.actor).await?)
}

async fn learned(call: Call<Gates>, back: Days) -> Result<Vec<LearnedView>, Problem> {
    Ok(call.state.mail.throttles.learned(back.days).await?)
}
