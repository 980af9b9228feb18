//! The API operations on outgoing mail that waits for delivery.

use super::call::Call;
use super::operation::{Operation, administer, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_mail::operations::{QueueDone, QueueList, QueueSelection};

/// Mail that waits for delivery.
pub const LIST: Operation<Filter, QueueList> = look("/queue", "Mail that waits for delivery");
/// Tries delivery again now.
pub const RETRY: Operation<QueueSelection, QueueDone> = operate("/queue/retry", "Tries delivery again now");
/// Drops mail that waits for delivery.
pub const DELETE: Operation<QueueSelection, QueueDone> =
    administer("/queue/delete", "Drops mail that waits for delivery");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(RETRY, retry).with(DELETE, delete)
}

/// Which mail is listed. Empty fields match everything.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// This message.
    pub message: String,
    /// Of this user.
    pub user: String,
    /// With a recipient at this domain.
    pub domain: String,
}

/// The selection, with its user under the name that is known here.
async fn meant(call: &Call<Gates>, selection: QueueSelection) -> Result<QueueSelection, Problem> {
    Ok(QueueSelection { user: call.state.mail.users.called_in_queues(&selection.user).await?, ..selection })
}

async fn list(call: Call<Gates>, filter: Filter) -> Result<QueueList, Problem> {
    let messages = if filter.message.is_empty() { Vec::new() } else { vec![filter.message] };
    let selection = QueueSelection { messages, user: filter.user, domain: filter.domain, all: true };
    Ok(call.state.mail.queue.list(&meant(&call, selection).await?).await?)
}

async fn retry(call: Call<Gates>, selection: QueueSelection) -> Result<QueueDone, Problem> {
    Ok(call.state.mail.queue.retry(&meant(&call, selection).await?, &call.actor).await?)
}

async fn delete(call: Call<Gates>, selection: QueueSelection) -> Result<QueueDone, Problem> {
    Ok(call.state.mail.queue.delete(&meant(&call, selection).await?, &call.actor).await?)
}
