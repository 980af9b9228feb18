//! The API operations on rules that people add for the scan.

use super::call::Call;
use super::operation::{Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{NewRule, RuleView};

/// Rules that people made for the scan.
pub const LIST: Operation<(), Vec<RuleView>> = look("/scan/rules", "Rules that people made for the scan");
/// Makes a rule.
pub const ADD: Operation<NewRule, RuleView> =
    operate("/scan/rules", "Makes a rule of a hash, or one of YARA, which needs the scope admin").makes();
/// Removes a rule.
pub const REMOVE: Operation<(), Vec<RuleView>> =
    operate("/scan/rules/{rule}/remove", "Removes a rule; one of YARA needs the scope admin");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(ADD, add).with(REMOVE, remove)
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<RuleView>, Problem> {
    Ok(call.state.mail.rules.list().await?)
}

async fn add(call: Call<Gates>, new: NewRule) -> Result<RuleView, Problem> {
    yara_is_for_administrators(new.is_yara(), call.rank)?;
    Ok(call.state.mail.rules.add(new, &call.actor).await?)
}

async fn remove(call: Call<Gates>, (): ()) -> Result<Vec<RuleView>, Problem> {
    yara_is_for_administrators(call.state.mail.rules.show(&call.name).await?.is_yara(), call.rank)?;
    call.state.mail.rules.remove(&call.name, &call.actor).await?;
    list(call, ()).await
}

/// The text of a YARA rule may match any mail.
fn yara_is_for_administrators(is_yara: bool, rank: Option<Role>) -> Result<(), Problem> {
    match rank {
        Some(role) if is_yara && role < Role::Admin => {
            let hint = "an operator blocks single contents, by their hash";
            Err(Problem::refused("rules of YARA are made and removed by administrators", hint))
        }
        _ => Ok(()),
    }
}
