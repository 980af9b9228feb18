//! The API operation that tells the whole story of one message or sample, by any of its ids.

use super::call::Call;
use super::operation::{Operation, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use crate::trace::{NoTrace, Trace};

/// Everything that happened to a message or a sample.
pub const SHOW: Operation<(), Trace> =
    look("/trace/{id}", "The way of a message, by any of its ids or its Message-ID, or of a sample, by its hash");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(SHOW, show)
}

async fn show(call: Call<Gates>, (): ()) -> Result<Trace, Problem> {
    let trace = Trace::of(&call.state.mail.traces, call.state.lab.as_ref(), &call.name).await;
    trace.map_err(|error| match error {
        NoTrace::Mail(error) => error.into(),
        NoTrace::Lab(error) => error.into(),
    })
}
