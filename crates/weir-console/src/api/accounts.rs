//! The API operations on accounts of the console.

use super::call::Call;
use super::operation::{Operation, administer, look};
use super::problem::Problem;
use super::table::Table;
use super::users::NewPassword;
use crate::gates::Gates;
use weir_foundation::console_accounts::{AccountView, NewAccount};

/// Accounts of the console.
pub const LIST: Operation<(), Vec<AccountView>> =
    look("/console/accounts", "Accounts of the console").for_administrators();
/// Makes an account.
pub const ADD: Operation<NewAccount, AccountView> = administer("/console/accounts", "Makes an account").makes();
/// Gives an account a new password.
pub const PASSWORD: Operation<NewPassword, Vec<AccountView>> =
    administer("/console/accounts/{name}/password", "Gives an account a new password");
/// Removes an account.
pub const REMOVE: Operation<(), Vec<AccountView>> = administer("/console/accounts/{name}/remove", "Removes an account");
/// Removes the second factor of somebody who has lost it.
pub const CODES_OFF: Operation<(), Vec<AccountView>> =
    administer("/console/accounts/{name}/codes-off", "Takes a lost second factor away");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(LIST, list).with(ADD, add).with(PASSWORD, password).with(REMOVE, remove).with(CODES_OFF, codes_off)
}

async fn list(call: Call<Gates>, (): ()) -> Result<Vec<AccountView>, Problem> {
    Ok(call.state.administration.accounts.list().await?)
}

async fn add(call: Call<Gates>, new: NewAccount) -> Result<AccountView, Problem> {
    Ok(call.state.administration.accounts.add(new, &call.actor).await?)
}

async fn password(call: Call<Gates>, new: NewPassword) -> Result<Vec<AccountView>, Problem> {
    call.state.administration.accounts.set_password(&call.name, &new.password, &call.actor).await?;
    list(call, ()).await
}

async fn codes_off(call: Call<Gates>, (): ()) -> Result<Vec<AccountView>, Problem> {
    call.state.administration.second_factor.end(&call.name, &call.actor).await?;
    list(call, ()).await
}

async fn remove(call: Call<Gates>, (): ()) -> Result<Vec<AccountView>, Problem> {
    call.state.administration.accounts.remove(&call.name, &call.actor).await?;
    list(call, ()).await
}
