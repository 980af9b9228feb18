//! Implements [`SharedQueue`] for [`Admission`]: a backend's queue as the exchange between front-ends uses it.

use std::sync::Arc;

use weir_core::fair::{PeerId, Profile, Report};

use super::queue::Admission;
use super::standing::with_strangers;
use crate::exchange::{QueueId, SharedQueue};

impl SharedQueue for Admission {
    fn id(&self) -> QueueId {
        self.queue_id
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
        // Reports for which there is no room are left out; later totals make up for them.
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
        let mut inner = self.lock();
        let settings = Arc::clone(&inner.settings);
        inner.fair.set_profile(with_strangers(Profile::clone(profile), &settings));
        inner.profile = Arc::clone(profile);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, settings};
    use super::super::{Grant, Settings};
    use super::*;
    use std::task::Waker;

    #[test]
    fn as_many_front_ends_are_heard_as_are_configured() {
        use weir_core::fair::{SessionKey, SubnetKey, Work};
        let queue = Admission::new(Settings { peers: 200, ..settings(1) });
        let report =
            |life| Report { session: SessionKey(1), subnet: SubnetKey(1), life, served: Work(1), active: true };
        (1..=200).for_each(|peer| queue.hear(PeerId(peer), 1, &report(1)));
        assert_eq!(queue.view().counters.reports_refused, 0);
        queue.hear(PeerId(201), 1, &report(1));
        assert_eq!(queue.view().counters.reports_refused, 1);
    }

    #[test]
    fn service_is_counted_by_history() {
        use weir_core::fair::{SubnetKey, Weight};
        let queue = Admission::new(settings(1));
        let profile = Profile::default().with(SubnetKey(1), Weight::from_ratio(0.5)).with(SubnetKey(2), Weight::ONE);
        queue.adopt(&Arc::new(profile));
        for subnet in [1, 2, 2, 3, 3, 3] {
            drop(queue.ask(&ask(subnet, subnet), Waker::noop()));
        }
        assert_eq!(queue.view().counters.finished_by_history, [3, 1, 2]);
    }

    /// Under the same name, and at the same front-end.
    #[tokio::test(start_paused = true)]
    async fn a_queue_in_the_place_of_another_is_heard() {
        use weir_core::fair::SessionKey;
        let before = Admission::new(Settings { report: true, ..settings(1) });
        let other = Admission::new(settings(1));
        let carry = |from: &Admission, number| {
            let mut reports = Vec::new();
            from.drain(100, &mut reports);
            reports.iter().for_each(|report| other.hear(PeerId(7), number, report));
            other.lock().fair.standing(SessionKey(1)).unwrap()
        };
        // It is remembered there as long as it is served there too.
        let _served = other.ask(&ask(1, 1), Waker::noop());
        for session in (1..=50).rev() {
            drop(before.ask(&ask(session, session), Waker::noop()));
        }
        assert_eq!(carry(&before, 1).active_at, 1);
        before.tick();
        let after = Admission::new(Settings { report: true, ..settings(1) });
        let incarnations = |queue: &Admission| queue.lock().fair.lives();
        assert!(incarnations(&after).wrapping_sub(incarnations(&before)).cast_signed() > 0);
        let running = after.ask(&ask(1, 1), Waker::noop());
        assert_eq!(carry(&after, 2).active_at, 2);
        tokio::time::advance(std::time::Duration::from_millis(500)).await;
        drop(running);
        let standing = carry(&after, 3);
        assert!(standing.active_at == 1 && standing.debt.0 > 300_000_000, "{standing:?}");
    }

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
        let Ok(Grant::Now(permit)) = one.ask(&ask(1, 1), Waker::noop()) else { panic!("a slot is free") };
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
