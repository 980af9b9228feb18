//! Mail that a person is to look at whatever the scan says, because its sender is not confirmed ([`Letter::hold`]). It is scanned like all
//! other mail, so that malware is still treated as malware; mail that would pass is kept as spam.

use super::Scanning;
use super::decision::{Decision, QuarantineQueue};
use super::quarantine::QuarantinedLetter;
use super::state::WaitingLetter;
use crate::letter::Letter;
use crate::pipeline::Transit;

/// What becomes of a letter that was scanned.
pub(super) fn applied(decision: Decision, letter: &Letter) -> Decision {
    match (decision, &letter.hold) {
        (Decision::Pass(_), Some(reason)) => Decision::Quarantine(QuarantineQueue::Spam, reason.clone()),
        (decision, _) => decision,
    }
}

impl Scanning {
    /// A letter that is not scanned goes on, unless a person is to look at it first.
    pub(super) fn let_go(&self, transit: Transit) -> Option<Transit> {
        let reason = transit.letter.hold.clone().filter(|_| transit.letter.cleared.is_none());
        let Some(reason) = reason else { return Some(transit) };
        tracing::info!(id = %transit.id, reason, "quarantined");
        let mut waiting = WaitingLetter::new(transit);
        waiting.size = self.shared.site.spool.body(waiting.id).map_or(0, |body| body.size());
        let letter = waiting.letter.clone();
        let kept = QuarantinedLetter::new(&waiting, letter, QuarantineQueue::Spam, reason, self.shared.now());
        self.shared.quarantine.keep_now(kept);
        None
    }
}
