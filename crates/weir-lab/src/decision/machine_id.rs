//! The number of a machine for as long as it is connected. A machine that reconnects gets a new number.

/// A connected machine. One that connects again gets another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub(super) u64);
