//! The API operations on bans: addresses that the mail servers refuse for a while.

use super::call::Call;
use super::operation::{Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_mail::operations::{BanDone, BanView};

/// Addresses that have been banned.
pub const LIST: Operation<(), Vec<BanView>> =
    look("/bans", "Addresses that have been banned after failed logins or unknown recipients, and are not forgotten");
/// Lifts the ban of an address.
pub const LIFT: Operation<Address, BanDone> =
    operate("/bans/lift", "Lets an address connect again, and forgets its offences");
/// Bans an address.
pub const ADD: Operation<NewBan, BanDone> = operate("/bans", "Keeps an address out of both mail servers for a while");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(LIFT, lift).with(ADD, add)
}

/// The address that is meant.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BannedAddress")]
pub struct Address {
    /// An IP address; for an IPv6 address only the network counts.
    pub address: String,
}

/// Whom to ban, and for how long.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBan {
    /// An IP address; for an IPv6 address only the network counts.
    pub address: String,
    /// For how many seconds; at most `ban_longest`.
    #[serde(default = "hour")]
    pub for_s: u64,
}

fn hour() -> u64 {
    3600
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<BanView>, Problem> {
    Ok(call.state.mail.bans.list()?)
}

async fn lift(call: Call<Gates>, who: Address) -> Result<BanDone, Problem> {
    Ok(call.state.mail.bans.lift(&who.address, &call.actor).await?)
}

async fn add(call: Call<Gates>, new: NewBan) -> Result<BanDone, Problem> {
    Ok(call.state.mail.bans.add(&new.address, Duration::from_secs(new.for_s), &call.actor).await?)
}
