//! The API operations on the scan's feeds.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_mail::scan::{FeedsStatus, TuneView};

/// The state of the scan's feeds.
pub const STATUS: Operation<(), FeedsStatus> = look("/feeds", "How the scan's feeds are doing");
/// The effect of better limits.
pub const TUNE: Operation<Tune, TuneView> =
    administer("/feeds/tune", "What better limits would do; takes them if asked to");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(STATUS, status).with(TUNE, tune)
}

/// Whether better limits are applied.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tune {
    /// They are applied.
    #[serde(default)]
    pub apply: bool,
}

async fn status(call: Call<Gates>, (): ()) -> Result<FeedsStatus, Problem> {
    Ok(call.state.mail.feeds.status()?)
}

async fn tune(call: Call<Gates>, tune: Tune) -> Result<TuneView, Problem> {
    Ok(call.state.mail.feeds.tune(tune.apply, &call.actor).await?)
}
