//! What is always true of a throttle between two calls. Asserted where debug assertions are on; each costs O(1).

use super::{LaneId, State, Throttle};

impl Throttle {
    pub(super) fn check_invariants(&self) {
        let params = &self.params;
        debug_assert!(self.slack <= params.max_slack, "slack is above its maximum");
        debug_assert!(self.multi_slack <= params.max_multi_slack, "multi-slack is above its maximum");
        for lane in LaneId::WIDER {
            let (slack, remembered) = self.lane(lane).map_or((0, 0), |lane| (lane.slack(), lane.remembered()));
            debug_assert!(slack <= params.lane(lane).slack, "the slack of a lane is above its maximum");
            debug_assert!(remembered <= params.lane(lane).remembered, "a lane remembers too many");
        }
        debug_assert!(self.working_set.keys().len() <= params.working_set, "the working set is too large");
        debug_assert!(
            !matches!(self.state, State::Stopped(_)) || !self.nothing_waits(),
            "a stopped user has nothing that somebody could decide on"
        );
        debug_assert!(
            self.newest().is_none_or(|last| last.0 < self.next_entry || self.next_entry == u64::MAX),
            "the id of a waiting entry would be given again"
        );
    }
}
