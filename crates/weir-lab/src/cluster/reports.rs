//! Log messages about machines that are not what they claim to be. The same message about a machine is not repeated for each of its
//! attempts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_core::election::NodeId;

/// The same thing is logged about one machine at most this often.
const EVERY: Duration = Duration::from_secs(30);

/// What was logged recently. Cheap to clone. Holds no more than machines with a certificate of the lab can cause in [`EVERY`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<HashMap<(NodeId, MachineReport), Instant>>>);

/// What can be logged about a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MachineReport {
    /// Another process has the id and the key of this machine.
    Clone,
    /// A known id with another key.
    OtherKey,
    /// A message with another priority than the registered one.
    Priority,
    /// It leads in an epoch below the last that this machine, outside the lab, has seen.
    OldEpoch,
    /// A certificate with another key, role or priority than registered.
    NotAsRegistered,
    /// A certificate of a machine that is not registered.
    NotRegistered,
    /// Two addresses under one name.
    TwoPlaces,
    /// It asks for a sample that it was not given.
    Curious,
}

impl Reports {
    /// Whether this should be logged about a machine now; it then counts as logged.
    pub(crate) fn is_due(&self, id: NodeId, report: MachineReport) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| at.elapsed() < EVERY);
        match told.entry((id, report)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Instant::now());
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_and_other_things_beside_it() {
        let reports = Reports::default();
        assert!(reports.is_due(NodeId(1), MachineReport::TwoPlaces));
        assert!(!reports.clone().is_due(NodeId(1), MachineReport::TwoPlaces));
        assert!(reports.is_due(NodeId(1), MachineReport::NotAsRegistered));
        assert!(reports.is_due(NodeId(2), MachineReport::TwoPlaces));
        reports.0.lock().unwrap().values_mut().for_each(|at| *at = at.checked_sub(EVERY).unwrap());
        assert!(reports.is_due(NodeId(1), MachineReport::TwoPlaces));
        assert_eq!(reports.0.lock().unwrap().len(), 1, "what is old is forgotten");
    }
}
