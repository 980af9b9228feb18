//! What is in a message: scanners, their outcomes, and the verdict that they come to.
//!
//! This crate reads hostile bytes and nothing else: it knows no queue, no spool and no SMTP. The mail gate hands it a
//! [`Content`](content::Content) and gets a [`Verdict`](verdict::Verdict).

pub mod address;
pub mod attachments;
pub mod budget;
pub mod clamd;
pub mod content;
pub mod deadline;
pub mod eicar;
pub mod examine;
pub mod fuzz;
pub mod inspect;
pub mod little_endian;
pub mod made;
pub mod panel;
pub mod plain;
pub mod rspamd;
pub mod samples;
mod spamd;
pub mod verdict;
pub mod walk;
pub mod worker;
pub mod yara;
