use super::*;
use http::Method;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::{Context, Poll};

pub(super) fn settings(slots: u32) -> Settings {
    let first_estimate = Duration::from_millis(10);
    Settings {
        slots: Slots::Fixed(slots),
        first_estimate,
        queue_timeout: Duration::from_secs(30),
        ..Settings::default()
    }
}

pub(super) fn ask(session: u64, subnet: u64) -> Ask {
    Ask {
        session: SessionKey(session),
        subnet: SubnetKey(subnet),
        client: Ipv4Addr::LOCALHOST.into(),
        class: Class::new(0, &Method::GET),
        bytes: 1_000,
    }
}

fn now(entry: Result<Entry, Refused>) -> Permit {
    match entry {
        Ok(Entry::Now(permit)) => permit,
        other => panic!("a slot should be free: {other:?}"),
    }
}

fn wait(entry: Result<Entry, Refused>) -> Waiting {
    match entry {
        Ok(Entry::Wait(waiting)) => waiting,
        other => panic!("no slot should be free: {other:?}"),
    }
}

fn poll(waiting: &mut Waiting) -> Poll<Result<Permit, Refused>> {
    pin!(waiting).poll(&mut Context::from_waker(Waker::noop()))
}

fn permit(waiting: &mut Waiting) -> Option<Permit> {
    match poll(waiting) {
        Poll::Ready(Ok(permit)) => Some(permit),
        Poll::Ready(Err(refused)) => panic!("{refused:?}"),
        Poll::Pending => None,
    }
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

fn assert_empty(queue: &Admission) {
    let view = queue.view();
    assert_eq!((view.waiting, view.running, view.waiting_bytes, view.streams), (0, 0, 0, 0), "{view:?}");
    let inner = queue.lock();
    assert_eq!((inner.places.iter().count(), inner.waiting_ns, inner.places.running_tickets().len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn slots_are_given_at_once_until_there_are_none_then_in_fair_order() {
    let queue = Admission::new(settings(2));
    let (first, second) = (now(queue.ask(&ask(1, 1), Waker::noop())), now(queue.ask(&ask(1, 1), Waker::noop())));
    let mut greedy: Vec<Waiting> = (0..5).map(|_| wait(queue.ask(&ask(1, 1), Waker::noop()))).collect();
    let mut polite = wait(queue.ask(&ask(2, 2), Waker::noop()));
    assert!(permit(&mut polite).is_none() && greedy.iter_mut().all(|waiting| permit(waiting).is_none()));
    pass(10).await;
    drop(first);
    let served = permit(&mut polite).expect("the newcomer is before the one who has had two");
    drop((served, second));
    assert_eq!(greedy.iter_mut().filter_map(permit).collect::<Vec<_>>().len(), 2);
    drop((greedy, polite));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_is_forgotten_and_charged_nothing() {
    let queue = Admission::new(settings(1));
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let (left, granted) = (wait(queue.ask(&ask(2, 2), Waker::noop())), wait(queue.ask(&ask(3, 3), Waker::noop())));
    drop(left);
    pass(10).await;
    drop(running);
    // The third has been given the slot and leaves before it knows.
    assert_eq!(queue.view().running, 1);
    drop(granted);
    assert_empty(&queue);
    let debt = |session| queue.lock().fair.standing(SessionKey(session)).map_or(Work::ZERO, |standing| standing.debt);
    assert_eq!((debt(2), debt(3)), (Work::ZERO, Work::ZERO));
    assert_eq!(queue.view().counters.left, 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end() {
    let queue = Admission::new(settings(1));
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let waiting = wait(queue.ask(&ask(2, 2), Waker::noop()));
    assert_eq!(waiting.await.unwrap_err(), Refused::Timeout);
    drop(running);
    assert_empty(&queue);
    let counters = queue.view().counters;
    assert_eq!((counters.refused[4], counters.left), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_requests_and_bytes() {
    let queue = Admission::new(Settings { queue: 2, queue_bytes: 1_500, ..settings(1) });
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let waiting = wait(queue.ask(&ask(2, 2), Waker::noop()));
    assert_eq!(queue.ask(&ask(3, 3), Waker::noop()).unwrap_err(), Refused::QueueBytes);
    let small = |session| Ask { bytes: 100, ..ask(session, session) };
    let second = wait(queue.ask(&small(3), Waker::noop()));
    assert_eq!(queue.ask(&small(4), Waker::noop()).unwrap_err(), Refused::QueueFull);
    assert!(queue.retry_after() >= Duration::from_secs(1));
    drop((running, waiting, second));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn an_overrun_is_charged_while_it_runs() {
    let queue = Admission::new(settings(1));
    let slow = now(queue.ask(&ask(1, 1), Waker::noop()));
    let mut waiting: Vec<Waiting> =
        (2..=5).map(|session| wait(queue.ask(&ask(session, session), Waker::noop()))).collect();
    for _ in 0..10 {
        pass(100).await;
        queue.tick();
    }
    // A second of service, while each of the four who wait was due a quarter of it.
    let debt = queue.lock().fair.standing(SessionKey(1)).unwrap().debt;
    assert!(debt > Work(600_000_000), "{debt:?}");
    let mut last = wait(queue.ask(&ask(1, 1), Waker::noop()));
    drop(slow);
    let served: Vec<Permit> = waiting.iter_mut().filter_map(permit).collect();
    assert_eq!(served.len(), 1);
    assert!(permit(&mut last).is_none());
    drop((waiting, last, served));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_long_response_becomes_a_stream_and_streams_are_bounded() {
    let queue = Admission::new(Settings { streams_per_session: 2, ..settings(1) });
    let long = now(queue.ask(&ask(1, 1), Waker::noop()));
    long.answered();
    let mut waiting = wait(queue.ask(&ask(1, 1), Waker::noop()));
    pass(500).await;
    queue.tick();
    assert!(permit(&mut waiting).is_none(), "not yet");
    pass(600).await;
    queue.tick();
    let upgraded = permit(&mut waiting).expect("the slot is free").into_stream();
    assert_eq!((queue.view().streams, queue.view().running), (2, 0));
    assert_eq!(queue.ask(&ask(1, 1), Waker::noop()).unwrap_err(), Refused::Streams);
    drop(now(queue.ask(&ask(2, 1), Waker::noop())));
    drop(long);
    drop(now(queue.ask(&ask(1, 1), Waker::noop())));
    drop(upgraded);
    drop(waiting);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn observing_lets_nobody_wait_and_knows_who_would_have() {
    let queue = Admission::new(Settings { observe: true, ..settings(1) });
    let all: Vec<Permit> = (1..=3).map(|session| now(queue.ask(&ask(session, session), Waker::noop()))).collect();
    pass(10).await;
    drop(all);
    // In the shadow they run one after another: 0, 10 and 20 ms of waiting.
    pass(15).await;
    queue.tick();
    let view = queue.view();
    assert_eq!((view.waiting, view.running, view.counters.finished), (0, 1, 3));
    pass(10).await;
    queue.tick();
    let counters = queue.view().counters;
    assert_eq!((counters.dispatched, counters.waited), (3, 2));
    assert!((counters.wait_s - 0.030).abs() < 0.001, "{counters:?}");
    pass(100).await;
    queue.tick();
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn what_would_have_waited_too_long_is_taken_out_of_the_shadow() {
    let queue = Admission::new(Settings { observe: true, queue_timeout: Duration::from_millis(50), ..settings(1) });
    let first = now(queue.ask(&ask(1, 1), Waker::noop()));
    let second = now(queue.ask(&ask(2, 2), Waker::noop()));
    pass(100).await;
    queue.tick();
    assert_eq!(queue.view().counters.refused[4], 1);
    drop((first, second));
    pass(200).await;
    queue.tick();
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn automatic_slots_grow_while_the_backend_keeps_up() {
    let slots = Slots::Auto { start: 2, least: 1, most: 8 };
    let queue = Admission::new(Settings { slots, ..settings(1) });
    for _ in 0..600 {
        let mut all = Vec::new();
        let waiting = loop {
            match queue.ask(&ask(1, 1), Waker::noop()) {
                Ok(Entry::Now(permit)) => all.push(permit),
                other => break other,
            }
        };
        pass(20).await;
        queue.tick();
        drop((waiting, all));
    }
    assert!(queue.view().slots >= 4, "{:?}", queue.view());
    assert!(queue.lock().limit.as_ref().unwrap().is_unpressed(3), "{:?}", queue.lock().limit);
    assert_empty(&queue);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_nothing_is_left_over(steps in proptest::collection::vec((0_u8..7, 0_u64..6, 0_u64..40), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let queue = Admission::new(Settings { queue: 8, streams_per_session: 3, ..settings(2) });
            let (mut permits, mut waits, mut streams) = (Vec::new(), Vec::new(), Vec::new());
            for (step, session, ms) in steps {
                match step {
                    0 | 1 => match queue.ask(&ask(session, session / 2), Waker::noop()) {
                        Ok(Entry::Now(permit)) => permits.push(permit),
                        Ok(Entry::Wait(waiting)) => waits.push(waiting),
                        Err(_) => {}
                    },
                    2 if !permits.is_empty() => drop(permits.swap_remove(ms as usize % permits.len())),
                    3 if !waits.is_empty() => drop(waits.swap_remove(ms as usize % waits.len())),
                    4 if !permits.is_empty() => streams.push(permits.swap_remove(ms as usize % permits.len()).into_stream()),
                    5 => permits.iter().for_each(Permit::answered),
                    _ => {
                        pass(ms * 20).await;
                        queue.tick();
                    }
                }
                let mut at = 0;
                while at < waits.len() {
                    match poll(&mut waits[at]) {
                        Poll::Ready(outcome) => {
                            permits.extend(outcome);
                            drop(waits.swap_remove(at));
                        }
                        Poll::Pending => at += 1,
                    }
                }
                let view = queue.view();
                assert!(view.running <= 2, "{view:?}");
                assert!(view.waiting == 0 || view.running == 2, "a slot is free while a request waits: {view:?}");
            }
            drop((permits, waits, streams));
            assert_empty(&queue);
        });
    }
}
