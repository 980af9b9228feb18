//! Checks that the contact address of a user, where notices go, is not a mailbox of the same account.

use super::OperationError;
use crate::own::Own;
use weir_core::address::canonical;
use weir_store::records::UserRow;

/// What is wrong with such a contact.
pub const OWN_CONTACT: &str =
    "is a mailbox of this account, so a thief who has its password would be the only one to hear of a stop";

/// Refuses a contact that the account itself reads: it would tell the thief of a password, and nobody else, and let the thief release what is
/// held.
pub(super) fn elsewhere(contact: &str, name: &str, addresses: &[String], own: &Own) -> Result<(), OperationError> {
    let Some(contact) = own_mailbox(contact, name, addresses, own) else { return Ok(()) };
    let what = format!("{contact} {OWN_CONTACT}");
    let hint = "give a contact that is read elsewhere, such as a private address, or leave it out";
    Err(OperationError::invalid(what, hint))
}

/// Whether a user has such a contact from the time before it was refused.
pub(super) fn is_own(user: &UserRow) -> bool {
    !user.contact.is_empty()
        && own_mailbox(&user.contact, &user.name, &user.addresses, &Own::read(&user.params)).is_some()
}

/// The contact, if it is a mailbox of the account or an address that it sends as.
fn own_mailbox(contact: &str, name: &str, addresses: &[String], own: &Own) -> Option<String> {
    let contact = canonical(contact).ok()?;
    let sends_as = addresses.iter().filter_map(|address| canonical(address).ok());
    let mut all = own.mailboxes(name, addresses).into_iter().chain(sends_as);
    all.any(|own| own.eq_ignore_ascii_case(&contact)).then_some(contact)
}
