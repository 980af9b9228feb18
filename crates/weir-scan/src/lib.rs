//! What is in a message: scanners, their outcomes, and the verdict that follows from them.
//!
//! This crate reads hostile bytes and nothing else: it knows no queue, no spool and no SMTP. The mail gate hands it a
//! [`Content`](content::Content) and gets a [`Verdict`](verdict::Verdict). [`scanner`] explains how to add a scanner.

pub mod address;
pub mod attachments;
pub mod budget;
pub mod clamd;
pub mod content;
pub mod deadline;
pub mod eicar;
pub mod examine;
pub mod file_name;
pub mod fuzz;
pub mod health;
pub mod inspect;
pub mod little_endian;
pub mod made;
mod markup;
mod memo;
pub mod memory_bounds;
mod obfuscation;
pub mod panel;
pub mod plain;
pub mod registry;
pub mod rspamd;
pub mod samples;
pub mod scanner;
pub mod sight;
pub mod spam;
pub mod spamd;
mod start_error;
pub mod suspicion;
pub mod test_files;
pub mod verdict;
pub mod walk;
pub mod wishes;
pub mod worker;
pub mod yara;
