//! The API operations on senders that people allow or block.

use super::call::Call;
use super::operation::{Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_mail::operations::{NewSender, SenderView};

/// Senders that are allowed or blocked.
pub const LIST: Operation<(), Vec<SenderView>> = look("/senders", "Senders that are allowed or blocked");
/// Allows or blocks a sender.
pub const SET: Operation<NewSender, SenderView> = operate(
    "/senders",
    "Allows or blocks an address, or a domain with everything below it; an allowed sender must be confirmed by SPF, DKIM or DMARC, and is excused from spam filters alone",
);
/// Removes a sender from the list.
pub const REMOVE: Operation<SenderName, Vec<SenderView>> =
    operate("/senders/remove", "Neither allows nor blocks a sender any more");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(SET, set).with(REMOVE, remove)
}

/// The sender that is meant.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SenderName {
    /// An address or a domain.
    pub who: String,
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<SenderView>, Problem> {
    Ok(call.state.mail.senders.list().await?)
}

async fn set(call: Call<Gates>, new: NewSender) -> Result<SenderView, Problem> {
    Ok(call.state.mail.senders.set(&new, &call.actor).await?)
}

async fn remove(call: Call<Gates>, name: SenderName) -> Result<Vec<SenderView>, Problem> {
    Ok(call.state.mail.senders.remove(&name.who, &call.actor).await?)
}
