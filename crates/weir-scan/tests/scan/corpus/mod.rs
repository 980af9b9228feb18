//! A corpus of mail, made here: what hides a forbidden or infected file, what nobody can open, and what real mailers write. The scanners' own
//! tests look at it in this process (`corpus_verdicts`), the end-to-end tests send it through the gate; a class that is named here is in both.

mod bad;
pub(crate) mod carriers;
pub(crate) mod expected;
mod good;
mod locked_pdf;
mod misread;
mod overlooked;
mod pages;
mod relatives;
mod saved;
mod strange;
mod undeclared;
pub(crate) mod unopened;
mod wrapped;

use expected::{Bad, Mail};
use std::collections::BTreeMap;

/// Fewer would not be the corpus that was promised.
pub(crate) const BAD_LEAST: usize = 400;
pub(crate) const HONEST_LEAST: usize = 200;
/// How many honest mails may be held.
pub(crate) const HELD_MOST: usize = 2;

/// What must not be delivered.
pub(crate) fn bad_mail() -> Vec<Bad> {
    let classes = [
        bad::all(),
        strange::all(),
        wrapped::all(),
        relatives::all(),
        misread::all(),
        overlooked::all(),
        unopened::all(),
        saved::all(),
        undeclared::all(),
    ];
    classes.into_iter().flatten().collect()
}

/// What must be: mail of real mailers, and the honest twin of each trick.
pub(crate) fn honest_mail() -> Vec<Mail> {
    [good::all(), misread::twins(), overlooked::twins(), unopened::twins(), saved::twins(), undeclared::twins()]
        .concat()
}

/// How many there are of each class.
pub(crate) fn by_class<'m>(mails: impl Iterator<Item = &'m Mail>) -> BTreeMap<&'static str, usize> {
    let mut classes = BTreeMap::new();
    for mail in mails {
        *classes.entry(mail.class).or_insert(0) += 1;
    }
    classes
}
