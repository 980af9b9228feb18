//! A backend's queue as the exchange between front-ends sees it.

use std::sync::Arc;

use weir_core::fair::{PeerId, Profile, Report};

use super::Admission;
use crate::exchange::{Board, BoardId};

impl Board for Admission {
    fn id(&self) -> BoardId {
        self.settings.board
    }

    fn drain(&self, most: usize, out: &mut Vec<Report>) {
        let mut inner = self.lock();
        while out.len() < most
            && let Some(report) = inner.fair.next_report()
        {
            out.push(report);
        }
    }

    fn hear(&self, peer: PeerId, number: u64, report: &Report) {
        let mut inner = self.lock();
        // What does not fit is left out; totals make up for it later.
        if inner.fair.hear(peer, number, report).is_err() {
            inner.counters.reports_refused += 1;
        }
    }

    fn forget_peer(&self, peer: PeerId) {
        self.lock().fair.forget_peer(peer);
    }

    fn report_all(&self) {
        self.lock().fair.report_all();
    }

    fn adopt(&self, profile: &Arc<Profile>) {
        self.lock().fair.set_profile(Profile::clone(profile));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, settings};
    use super::super::{Entry, Settings};
    use super::*;
    use std::task::Waker;

    /// Service at one front-end is charged at the other.
    #[tokio::test(start_paused = true)]
    async fn what_one_front_end_reports_another_charges() {
        let one = Admission::new(Settings { report: true, ..settings(1) });
        let two = Admission::new(settings(1));
        let carry = |number| {
            let mut reports = Vec::new();
            one.drain(100, &mut reports);
            reports.iter().for_each(|report| two.hear(PeerId(7), number, report));
            reports.len()
        };
        let Ok(Entry::Now(permit)) = one.ask(&ask(1, 1), Waker::noop()) else { panic!("a slot is free") };
        let _running = two.ask(&ask(9, 9), Waker::noop());
        let _waiting = two.ask(&ask(8, 8), Waker::noop());
        assert_eq!(carry(1), 1);
        tokio::time::advance(std::time::Duration::from_millis(500)).await;
        drop(permit);
        assert_eq!(carry(2), 1);
        let standing = two.lock().fair.standing(weir_core::fair::SessionKey(1)).unwrap();
        assert!(standing.debt.0 > 300_000_000, "{standing:?}");
        two.forget_peer(PeerId(7));
        one.report_all();
        assert!(carry(3) <= 1);
    }
}
