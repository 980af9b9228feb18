//! Decides whether a recipient exists: by a file, by the users in the records, by asking the next server, or by accepting everybody.
//!
//! If it cannot be found out, the answer is "not now" (451), never yes: mail is accepted only for recipients that are known to exist.

mod callout;
mod file;
mod memory;
mod store;

pub use callout::{Callout, CalloutSettings};
pub use file::FILE_MAX;
pub use memory::Remembering;

use crate::delivery::route::canonical;
use file::RecipientFile;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use store::UserAddresses;
use weir_smtp::envelope::RcptTo;
use weir_store::records::UserRecords;

/// By what recipients are known.
#[derive(Debug, Clone, Default)]
pub enum RecipientRule {
    /// Everybody in our domains exists. The next server refuses what it does not know, and we write the reports.
    #[default]
    Any,
    /// Those in this file.
    File(PathBuf),
    /// The addresses of the users in the records.
    Store,
    /// Those whom the next server takes mail for.
    Callout(Arc<Callout>),
}

impl RecipientRule {
    /// In words.
    pub fn about(&self) -> &'static str {
        match self {
            RecipientRule::Any => "any recipient",
            RecipientRule::File(_) => "recipients from a file",
            RecipientRule::Store => "recipients are the users",
            RecipientRule::Callout(_) => "recipients by callout",
        }
    }
}

/// Who exists.
#[derive(Debug)]
pub(super) enum Recipients {
    Any,
    File(RecipientFile),
    Store(UserAddresses),
    Callout(Arc<Callout>),
}

/// Whether a recipient exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Existence {
    Yes,
    /// It does not, and why.
    No(Box<str>),
    /// That cannot be said now, and why.
    NotNow(Box<str>),
}

impl Recipients {
    pub(super) fn new(rule: &RecipientRule, users: &UserRecords) -> io::Result<Recipients> {
        Ok(match rule {
            RecipientRule::Any => Recipients::Any,
            RecipientRule::File(path) => Recipients::File(RecipientFile::open(path)?),
            RecipientRule::Store => Recipients::Store(UserAddresses::new(users.clone())),
            RecipientRule::Callout(callout) => Recipients::Callout(Arc::clone(callout)),
        })
    }

    /// Whether this one does.
    pub(super) async fn find(&self, to: &RcptTo) -> Existence {
        let (local, domain) = (to.mailbox.local(), to.mailbox.domain());
        match self {
            Recipients::Any => Existence::Yes,
            // In boxes: a connection that waits for its client should not be large for them.
            Recipients::File(file) => Box::pin(file.find(local, domain)).await,
            Recipients::Store(users) => Box::pin(users.find(local, domain)).await,
            Recipients::Callout(callout) => Box::pin(callout.find(to)).await,
        }
    }
}

/// The form in which addresses are compared: both parts in lower case, the domain in ASCII.
fn key(local: &str, domain: &str) -> String {
    format!("{}@{}", local.to_lowercase(), domain_key(domain))
}

fn domain_key(domain: &str) -> String {
    canonical(domain)
}

/// The local part before the plus, if there is one.
fn without_tag(local: &str) -> Option<&str> {
    let (before, _) = local.split_once('+')?;
    (!before.is_empty() && !local.starts_with('"')).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_cut_off_plain_names_only() {
        assert_eq!(without_tag("ann+a+b"), Some("ann"));
        assert_eq!((without_tag("ann"), without_tag("+a"), without_tag("\"a+b\"")), (None, None, None));
        assert_eq!(key("Ann", "BÜCHER.example."), "ann@xn--bcher-kva.example");
    }
}
