//! The API operations on the scan's feeds.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_mail::scan::{FeedsStatus, TuneView};

/// How the scan's feeds are doing.
pub const STATUS: Operation<(), FeedsStatus> = look("/feeds", "How the scan's feeds are doing");
/// What better limits would do.
pub const TUNE: Operation<Tune, TuneView> =
    administer("/feeds/tune", "What better limits would do; takes them if asked to");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(STATUS, status).with(TUNE, tune)
}

/// What becomes of better limits.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tune {
    /// They are taken.
    #[serde(default)]
    pub apply: bool,
}

async fn status(call: Call<Gates>, (): ()) -> Result<FeedsStatus, Problem> {
    Ok(call.state.mail.feeds.status()?)
}

async fn tune(call: Call<Gates>, tune: Tune) -> Result<TuneView, Problem> {
    Ok(call.state.mail.feeds.tune(tune.apply, &call.actor).await?)
}
