//! Decides whether a visitor is known or a stranger.
//!
//! A modern flood comes from a hundred thousand networks and asks a few times from each: to a queue that is fair between subnets, each of
//! them looks like any visitor. So strangers are one subnet together, with a history of their own (`strangers`): when the backend is
//! saturated they share that, and in it a whole network is one session. Newcomers who bring back a cookie that is still young have three
//! quarters of it for themselves, in the order of the waiting room ([`super::waiting_room`]): a client that waits as it was told does not
//! have to queue behind clients that never come back. A visitor with standing belongs to its own subnet instead.
//!
//! Standing is a cookie of ours that is old enough, or a subnet with a history. An attacker cannot get either within a minute. While the
//! backend is not saturated, none of this matters.

use weir_core::fair::{Profile, SessionKey, SubnetKey, Weight};

use super::ask::{Ask, Standing};
use super::settings::Settings;
use super::streams::Owner;

/// The subnet of all strangers. Others have hashed keys, which cannot collide with it except by chance.
const STRANGERS: SubnetKey = SubnetKey(0x7374_7261_6e67_6572);

/// The subnet of visitors who came back with a young cookie.
const NEWCOMERS: SubnetKey = SubnetKey(0x6e65_7763_6f6d_6572);

/// The newcomers' part of the strangers' weight.
pub(super) const NEWCOMERS_PART: f64 = 0.75;

/// The session and subnet under which a request is queued.
pub(super) fn lane(ask: &Ask, profile: &Profile, settings: &Settings) -> Owner {
    let own = ask.owner();
    let known = ask.standing == Standing::Known || settings.strangers <= 0.0;
    if known || profile.history(ask.subnet).is_some() {
        return own;
    }
    // However many cookies a network has, it is one session, because cookies cost nothing.
    let subnet = if ask.standing == Standing::New { NEWCOMERS } else { STRANGERS };
    Owner { session: SessionKey(own.subnet.0 ^ subnet.0), subnet }
}

/// Whether it is queued among the newcomers.
pub(super) fn is_newcomer(lane: Owner) -> bool {
    lane.subnet == NEWCOMERS
}

/// Whether it is queued as a stranger.
pub(super) fn is_stranger(lane: Owner) -> bool {
    lane.subnet == STRANGERS
}

/// Its index in figures by standing: known, newcomers, strangers.
pub(super) fn place(lane: Owner) -> usize {
    match lane {
        lane if is_stranger(lane) => 2,
        lane if is_newcomer(lane) => 1,
        _ => 0,
    }
}

/// A profile in which strangers have their part, and clients with a key their weight.
pub(super) fn with_strangers(profile: Profile, settings: &Settings) -> Profile {
    let profile = settings
        .weights
        .iter()
        .fold(profile, |profile, (subnet, weight)| profile.with(*subnet, Weight::from_ratio(f64::from(*weight))));
    if settings.strangers <= 0.0 {
        return profile;
    }
    let part = |part: f64| Weight::from_ratio(settings.strangers * part);
    profile.with(STRANGERS, part(1.0 - NEWCOMERS_PART)).with(NEWCOMERS, part(NEWCOMERS_PART))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, settings};
    use super::super::{Admission, AdmissionRefusal, Grant, Permit, Waiting};
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn stranger(number: u64) -> Ask {
        Ask { standing: Standing::Stranger, ..ask(1_000 + number, 1_000 + number) }
    }

    fn wait(queue: &Arc<Admission>, ask: &Ask) -> Waiting {
        match queue.ask(ask, Waker::noop()) {
            Ok(Grant::Wait(waiting)) => waiting,
            other => panic!("it waits: {other:?}"),
        }
    }

    fn look(waiting: &mut Waiting) -> Option<Result<Permit, AdmissionRefusal>> {
        match pin!(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_known_does_not_wait_for_a_crowd_of_networks() {
        let queue = Admission::new(settings(1));
        let mut running = queue.ask(&stranger(0), Waker::noop()).map(|grant| match grant {
            Grant::Now(permit) => permit,
            Grant::Wait(_) => panic!("the slot is free"),
        });
        let mut crowd: Vec<Waiting> = (1..300).map(|number| wait(&queue, &stranger(number))).collect();
        let mut known = wait(&queue, &ask(1, 1));
        for _ in 0..3 {
            tokio::time::advance(std::time::Duration::from_millis(10)).await;
            drop(running);
            if let Some(Ok(_)) = look(&mut known) {
                return;
            }
            running = crowd.iter_mut().find_map(look).expect("somebody is served");
        }
        panic!("three of the crowd went first");
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_networks_cannot_push_out_the_known() {
        let queue = Admission::new(Settings { queue: 20, ..settings(1) });
        let _running = queue.ask(&stranger(0), Waker::noop());
        let mut known: Vec<Waiting> = (1..=3).map(|session| wait(&queue, &ask(session, 9))).collect();
        let _crowd: Vec<Waiting> = (1..=17).map(|number| wait(&queue, &stranger(number))).collect();
        for number in 20..200 {
            assert_eq!(queue.ask(&stranger(number), Waker::noop()).map(drop), Err(AdmissionRefusal::QueueFull));
        }
        assert!(known.iter_mut().all(|waiting| look(waiting).is_none()), "all still wait");
        known.push(wait(&queue, &ask(4, 9)));
        assert_eq!(queue.view().counters.refused[6], 1, "a stranger makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn among_strangers_the_largest_network_makes_room() {
        let queue = Admission::new(Settings { queue: 10, ..settings(1) });
        let _running = queue.ask(&stranger(0), Waker::noop());
        let greedy = Ask { session: SessionKey(5), ..stranger(5) };
        let mut flood: Vec<Waiting> = (0..10).map(|_| wait(&queue, &greedy)).collect();
        let new: Vec<Waiting> = (10..14).map(|number| wait(&queue, &stranger(number))).collect();
        let gone = flood.iter_mut().filter_map(look).filter(Result::is_err).count();
        assert_eq!((gone, new.len(), queue.view().counters.refused[6]), (4, 4, 4));
        assert_eq!(queue.ask(&greedy, Waker::noop()).map(drop), Err(AdmissionRefusal::QueueFull), "it has the most");
        // A known visitor pushes out requests of the same network.
        let _known = wait(&queue, &ask(1, 1));
        assert_eq!(flood.iter_mut().filter_map(look).filter(Result::is_err).count(), 1);
    }

    #[test]
    fn a_history_is_standing_and_so_is_an_old_cookie() {
        let (settings, none) = (settings(1), Profile::default());
        let known = none.clone().with(SubnetKey(1_001), Weight::ONE);
        assert_eq!(lane(&stranger(1), &known, &settings), stranger(1).owner());
        assert_eq!(lane(&ask(5, 5), &none, &settings), ask(5, 5).owner());
        let off = Settings { strangers: 0.0, ..settings.clone() };
        assert_eq!(lane(&stranger(1), &none, &off), stranger(1).owner());
        assert_eq!(lane(&stranger(1), &none, &settings).subnet, STRANGERS);
        // However many cookies a network has, it is a few sessions.
        let new = |session| Ask { standing: Standing::New, ..ask(session, 7) };
        let mut lanes: Vec<SessionKey> =
            (0..1_000).map(|session| lane(&new(session), &none, &settings).session).collect();
        lanes.sort_unstable();
        lanes.dedup();
        assert_eq!(lanes.len(), 1);
        assert_eq!(lane(&new(1), &none, &settings).subnet, NEWCOMERS);
    }
}
