//! A virtual machine of a group, and the run that it carries.
//!
//! ```text
//! OnRevert ──ready──► Free ──start──► InUse ──finished, failed, stopped, lost──► OnRevert
//!                      └──lost──► OnRevert
//! ```
//!
//! A VM begins on revert and is assigned only after its dispatcher has said that it is ready.

use super::needs::{Offer, Plugins};
use crate::time::Instant;

/// What a VM does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VmState {
    /// Clean and waiting.
    Free,
    /// Analysing.
    InUse(Run),
    /// Being made clean again.
    OnRevert,
}

/// One attempt on a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// The sample's slot.
    pub(super) sample: u32,
    /// The attempt's number.
    pub(super) number: u32,
    /// When it started.
    pub(super) since: Instant,
    /// What it was started for.
    pub(super) plugins: Plugins,
    /// Those plugins that have not reported yet.
    pub(super) pending: Plugins,
    /// Whether it brought an accepted result.
    pub(super) fruitful: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub(super) offer: Offer,
    pub(super) state: VmState,
}
