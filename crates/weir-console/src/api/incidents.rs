//! The API operations that list incidents and tell the story of one.

use super::call::Call;
use super::operation::{Operation, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use crate::incidents::{Incident, Incidents};

/// The incidents, open ones first.
pub const LIST: Operation<(), Vec<Incident>> =
    look("/incidents", "What goes wrong now and what went wrong lately, each with its story");
/// One of them.
pub const SHOW: Operation<(), Incident> = look("/incidents/{id}", "One incident with its story");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(SHOW, show)
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<Incident>, Problem> {
    Ok(Incidents::new(&call.state.administration.foundation).list().await?)
}

async fn show(call: Call<Gates>, (): ()) -> Result<Incident, Problem> {
    Ok(Incidents::new(&call.state.administration.foundation).show(&call.name).await?)
}
