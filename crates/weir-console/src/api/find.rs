//! The API operation that finds messages (message tracking).

use super::call::Call;
use super::operation::{Operation, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use weir_mail::operations::{MailFilter, MailFound};

/// Searches messages by what is known of them.
pub const FIND: Operation<MailFilter, MailFound> =
    look("/messages", "Messages by sender, recipient, subject, client, user, verdict, state or time, the newest first");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(FIND, find)
}

async fn find(call: Call<Gates>, filter: MailFilter) -> Result<MailFound, Problem> {
    Ok(call.state.mail.find.find(&filter).await?)
}
