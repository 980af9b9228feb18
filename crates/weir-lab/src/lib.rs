//! The lab gate: machines that elect their scheduler, take in samples and analyse them.
//!
//! The method is from R. R. Branco and G. N. Barbosa, *Distributed Malware Analysis Scheduling*. The algorithms are in `weir-core`
//! (`election`, `runq`); this crate connects them to the network, the records, plugins and VMs.

// Only this workspace uses these items, so they have a doc comment only where it says more than the name.
#![allow(missing_docs)]

pub mod active;
mod cgroup;
pub mod choices;
mod chosen;
pub mod cluster;
pub mod decision;
pub mod dispatcher;
mod display_name;
pub mod file_type;
pub mod fuzz;
pub mod history;
pub mod intake;
pub mod job;
pub mod json_text;
pub mod leader;
pub mod neutered;
pub mod node;
pub mod operations;
pub mod plugin;
pub mod report;
mod sample_page;
mod server;
mod settings;
pub mod site;
mod start_error;
pub mod tasks;
pub mod verdict;
pub mod vm;
pub mod wire;

pub use settings::{LabAddress, LabSettings};
pub use start_error::LabStartError;
