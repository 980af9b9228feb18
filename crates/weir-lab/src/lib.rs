//! The lab gate: machines that elect their scheduler, take in samples and analyse them.
//!
//! After R. R. Branco and G. N. Barbosa, *Distributed Malware Analysis Scheduling*. The disciplines are in `weir-core`
//! (`election`, `runq`); here is what they need of the world.

pub mod cluster;
pub mod decision;
pub mod desk;
pub mod dispatcher;
pub mod file_type;
pub mod fuzz;
pub mod history;
pub mod intake;
pub mod job;
pub mod leader;
pub mod neutered;
pub mod node;
mod notices;
pub mod plugin;
pub mod report;
pub mod verdict;
pub mod vm;
pub mod wire;
