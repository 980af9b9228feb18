//! The number of a machine for as long as it is connected. A machine that reconnects gets a new number.

/// A machine that is plugged in. One that comes back is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub(super) u64);
