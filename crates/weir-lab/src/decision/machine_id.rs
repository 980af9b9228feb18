//! The number of a machine, as long as it is plugged in.

/// A machine that is plugged in. One that comes back is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub(super) u64);
