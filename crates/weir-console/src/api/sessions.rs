//! The API operations on sessions of the console: who is logged in, and ending a session.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use crate::session::SessionLine;
use std::time::Instant;
use weir_foundation::OperationError;

/// Who is logged in.
pub const LIST: Operation<(), Vec<SessionLine>> =
    look("/console/sessions", "Who is logged in at the console").for_administrators();
/// Ends a session.
pub const END: Operation<(), Vec<SessionLine>> =
    administer("/console/sessions/{number}/end", "Ends a session of the console; whoever has it logs in again");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(END, end)
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<SessionLine>, Problem> {
    Ok(call.state.sessions.list(Instant::now()))
}

async fn end(call: Call<Gates>, (): ()) -> Result<Vec<SessionLine>, Problem> {
    let ended = call.name.parse().ok().and_then(|number| call.state.sessions.end_number(number));
    let Some(whose) = ended else {
        let what = format!("there is no session {}", call.name.chars().take(20).collect::<String>());
        return Err(OperationError::unknown(what, "`weir console sessions` lists those that there are").into());
    };
    call.state.administration.audit.note(&call.actor, "console.session.end", &whose, &call.name).await?;
    list(call, ()).await
}
