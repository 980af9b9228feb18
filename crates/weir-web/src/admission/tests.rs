use super::*;
use http::Method;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::{Context, Poll};
use weir_core::fair::{SessionKey, Work};

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
        standing: Standing::Known,
        session: SessionKey(session),
        subnet: SubnetKey(subnet),
        client: Ipv4Addr::LOCALHOST.into(),
        class: Class::new(0, &Method::GET),
        bytes: 1_000,
        patience: Duration::MAX,
    }
}

fn now(entry: Result<Grant, AdmissionRefusal>) -> Permit {
    match entry {
        Ok(Grant::Now(permit)) => permit,
        other => panic!("a slot should be free: {other:?}"),
    }
}

fn wait(entry: Result<Grant, AdmissionRefusal>) -> Waiting {
    match entry {
        Ok(Grant::Wait(waiting)) => waiting,
        other => panic!("no slot should be free: {other:?}"),
    }
}

fn poll(waiting: &mut Waiting) -> Poll<Result<Permit, AdmissionRefusal>> {
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
    assert_eq!((inner.requests.iter().count(), inner.waiting_ns, inner.requests.running_tickets().len()), (0, 0, 0));
    assert!((inner.backlog.requests(), inner.backlog.bytes()) == (0, 0), "{:?}", inner.backlog);
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
    let served = permit(&mut polite).expect("the newcomer is before the one owner has had two");
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
    // The third has been given the slot and leaves before it notices.
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
    assert_eq!(waiting.await.unwrap_err(), AdmissionRefusal::Timeout);
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
    assert_eq!(queue.ask(&ask(3, 3), Waker::noop()).unwrap_err(), AdmissionRefusal::QueueBytes);
    let small = |session| Ask { bytes: 100, ..ask(session, session) };
    let second = wait(queue.ask(&small(3), Waker::noop()));
    assert_eq!(queue.ask(&small(4), Waker::noop()).unwrap_err(), AdmissionRefusal::QueueFull);
    assert!(queue.retry_after(Standing::Known) >= Duration::from_secs(1));
    drop((running, waiting, second));
    assert_empty(&queue);
}

/// Which of them are told that another request needed their place.
fn pushed_out(all: &mut [Waiting]) -> Vec<usize> {
    let gone = |waiting: &mut Waiting| matches!(poll(waiting), Poll::Ready(Err(AdmissionRefusal::PushedOut)));
    all.iter_mut().enumerate().filter_map(|(at, waiting)| gone(waiting).then_some(at)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_makes_room_for_who_has_less_in_it() {
    let queue = Admission::new(Settings { queue: 10, ..settings(1) });
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    // A session for each request: the subnet is what counts.
    let mut greedy: Vec<Waiting> = (1..=10).map(|session| wait(queue.ask(&ask(session, 1), Waker::noop()))).collect();
    assert_eq!(
        queue.ask(&ask(11, 1), Waker::noop()).unwrap_err(),
        AdmissionRefusal::QueueFull,
        "its own subnet has the most"
    );
    let mut polite = vec![wait(queue.ask(&ask(100, 2), Waker::noop()))];
    assert_eq!(pushed_out(&mut greedy), [9], "the newest");
    polite.extend((0..4).map(|_| wait(queue.ask(&ask(100, 2), Waker::noop()))));
    assert_eq!(pushed_out(&mut greedy), [5, 6, 7, 8]);
    assert_eq!(
        queue.ask(&ask(100, 2), Waker::noop()).unwrap_err(),
        AdmissionRefusal::QueueFull,
        "half is its equal part"
    );
    let mut third = wait(queue.ask(&ask(200, 3), Waker::noop()));
    let counters = queue.view().counters;
    assert_eq!((counters.refused[0], counters.refused[6], queue.view().waiting), (2, 6, 10));
    pass(10).await;
    drop(running);
    let served =
        permit(&mut third).or_else(|| permit(&mut polite[0])).expect("a newcomer is before the one owner was served");
    drop((served, greedy, polite, third));
    assert_eq!(queue.view().counters.left, 9, "owner was pushed out, and did not know it yet, has not left");
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn memory_of_the_queue_goes_to_who_has_less_of_it() {
    let queue = Admission::new(Settings { queue_bytes: 10_000, ..settings(1) });
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let mut greedy: Vec<Waiting> = (1..=10).map(|session| wait(queue.ask(&ask(session, 1), Waker::noop()))).collect();
    assert_eq!(queue.ask(&ask(11, 1), Waker::noop()).unwrap_err(), AdmissionRefusal::QueueBytes);
    // As many as are needed.
    let big = |session, subnet| Ask { bytes: 2_500, ..ask(session, subnet) };
    let polite = wait(queue.ask(&big(100, 2), Waker::noop()));
    assert_eq!(pushed_out(&mut greedy), [7, 8, 9]);
    let whole = Ask { bytes: 10_001, ..ask(200, 3) };
    assert_eq!(queue.ask(&whole, Waker::noop()).unwrap_err(), AdmissionRefusal::QueueBytes, "it would have the most");
    assert_eq!(queue.view().waiting, 8);
    drop((running, greedy, polite));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_from_the_middle_leaves_the_order_of_the_others() {
    let queue = Admission::new(Settings { queue: 4, ..settings(1) });
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let mut greedy: Vec<Waiting> = (0..4).map(|_| wait(queue.ask(&ask(1, 1), Waker::noop()))).collect();
    // The newest but one, then the newest.
    drop(greedy.remove(2));
    drop(greedy.remove(2));
    greedy.extend((0..2).map(|_| wait(queue.ask(&ask(1, 1), Waker::noop()))));
    drop(greedy.remove(0));
    greedy.push(wait(queue.ask(&ask(1, 1), Waker::noop())));
    let polite = (wait(queue.ask(&ask(2, 2), Waker::noop())), wait(queue.ask(&ask(2, 2), Waker::noop())));
    assert_eq!(pushed_out(&mut greedy), [2, 3]);
    drop((running, greedy, polite));
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
    // A second of service, while each of the four who wait was entitled to a quarter of it.
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

/// Takes nothing of its response since it was made, and notes that it was broken off.
#[derive(Debug)]
pub(super) struct Noted {
    cut: std::sync::atomic::AtomicBool,
    since: Option<Instant>,
}

impl Reader for Noted {
    fn cut(&self) {
        self.cut.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn blocks(&self, _: bool) {}

    fn blocked(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Noted {
    pub(super) fn new(blocks: bool) -> Arc<Noted> {
        Arc::new(Noted { cut: Default::default(), since: blocks.then(Instant::now) })
    }

    fn is_cut(&self) -> bool {
        self.cut.load(std::sync::atomic::Ordering::Relaxed)
    }
}

async fn pass_ticking(queue: &Admission, ms: u64) {
    for _ in 0..ms / 100 {
        pass(100).await;
        queue.tick();
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_response_holds_its_slot_and_pays_for_it() {
    let queue = Admission::new(settings(1));
    let (long, reader) = (now(queue.ask(&ask(1, 1), Waker::noop())), Noted::new(false));
    long.flows(Arc::clone(&reader) as Arc<dyn Reader>);
    let mut waiting = wait(queue.ask(&ask(2, 2), Waker::noop()));
    pass_ticking(&queue, 4_000).await;
    assert!(permit(&mut waiting).is_none() && !reader.is_cut(), "the server still works on it");
    let debt = queue.lock().fair.standing(SessionKey(1)).unwrap().debt;
    assert!(debt > Work(1_500_000_000), "{debt:?}");
    drop(long);
    assert!(permit(&mut waiting).is_some());
    drop(waiting);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn streams_leave_their_slot_and_are_bounded() {
    let queue = Admission::new(Settings { streams_per_session: 2, ..settings(1) });
    let open: Vec<Stream> = (0..2).map(|_| now(queue.ask(&ask(1, 1), Waker::noop())).into_stream().unwrap()).collect();
    assert_eq!((queue.view().streams, queue.view().running), (2, 0));
    // Requests are served as before; only the next stream is refused.
    let third = now(queue.ask(&ask(1, 1), Waker::noop()));
    assert_eq!(third.into_stream().unwrap_err(), AdmissionRefusal::Streams);
    assert_eq!(queue.view().running, 0, "the slot is free");
    drop(now(queue.ask(&ask(2, 1), Waker::noop())).into_stream().unwrap());
    drop(open);
    drop(now(queue.ask(&ask(1, 1), Waker::noop())).into_stream().unwrap());
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_free_but_streams_of_their_subnet_are_bounded() {
    let queue = Admission::new(Settings { streams_per_subnet: 3, ..settings(8) });
    let stream = |session, subnet| now(queue.ask(&ask(session, subnet), Waker::noop())).into_stream();
    let open: Vec<Stream> = (0..5).filter_map(|session| stream(session, 1).ok()).collect();
    assert_eq!((open.len(), queue.view().counters.refused[3]), (3, 2));
    assert!(stream(9, 2).is_ok(), "of another subnet");
    drop(open);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_takes_is_broken_off_when_its_slot_is_needed() {
    let queue = Admission::new(settings(1));
    let (long, reader) = (now(queue.ask(&ask(2, 1), Waker::noop())), Noted::new(true));
    long.flows(Arc::clone(&reader) as Arc<dyn Reader>);
    pass_ticking(&queue, 5_000).await;
    assert!(!reader.is_cut(), "nobody else wants the slot");
    let waiting = wait(queue.ask(&ask(3, 2), Waker::noop()));
    queue.tick();
    assert!(reader.is_cut());
    queue.tick();
    assert_eq!(queue.view().counters.refused[7], 1, "once");
    drop((long, waiting));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_does_not_come_loses_its_slot_to_who_waits() {
    let queue = Admission::new(settings(1));
    let (upload, clock) = (now(queue.ask(&ask(1, 1), Waker::noop())), Arc::new(UploadClock::default()));
    upload.uploads(Arc::clone(&clock));
    let waiting = wait(queue.ask(&ask(2, 2), Waker::noop()));
    // The time that the backend takes is its own.
    pass_ticking(&queue, 3_000).await;
    assert!(clock.waits(Waker::noop()));
    pass_ticking(&queue, 900).await;
    assert!(clock.waits(Waker::noop()), "not yet");
    pass_ticking(&queue, 200).await;
    assert!(!clock.waits(Waker::noop()));
    assert_eq!(queue.view().counters.refused[5], 1, "once");
    drop((upload, waiting));
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn an_upload_keeps_its_slot_while_nobody_waits() {
    let queue = Admission::new(settings(1));
    let (upload, clock) = (now(queue.ask(&ask(1, 1), Waker::noop())), Arc::new(UploadClock::default()));
    upload.uploads(Arc::clone(&clock));
    assert!(clock.waits(Waker::noop()));
    pass_ticking(&queue, 20_000).await;
    assert!(clock.waits(Waker::noop()));
    clock.moves();
    drop(upload);
    assert_empty(&queue);
    // The time that the client took is no sign of a slow backend.
    assert!(queue.view().mean_cost_ms < 1.0);
}

#[tokio::test(start_paused = true)]
async fn observing_lets_nobody_wait_and_knows_who_would_have() {
    let queue = Admission::new(Settings { observe: true, ..settings(1) });
    let all: Vec<Permit> = (1..=3).map(|session| now(queue.ask(&ask(session, session), Waker::noop()))).collect();
    // The server has one worker, so that the last of them is answered after 30 ms.
    for permit in all {
        pass(10).await;
        drop(permit);
    }
    // In the shadow they wait for 0, 10 and 20 ms, and take 10 ms each.
    pass(1).await;
    queue.tick();
    let counters = queue.view().counters;
    assert!((counters.service_s - 0.030).abs() < 0.001, "{counters:?}");
    assert_eq!((counters.dispatched, counters.waited), (3, 2));
    assert!((counters.wait_s - 0.030).abs() < 0.001, "{counters:?}");
    pass(100).await;
    queue.tick();
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn observing_refuses_nobody() {
    let settings = Settings { observe: true, queue: 1, queue_bytes: 1_500, streams_per_session: 1, ..settings(1) };
    let queue = Admission::new(settings);
    let all: Vec<Permit> = (0..5).map(|session| now(queue.ask(&ask(session, session), Waker::noop()))).collect();
    let counters = queue.view().counters;
    assert_eq!((counters.asked, counters.refused.iter().sum::<u64>()), (5, 3), "{counters:?}");
    let streams: Vec<Stream> = all.into_iter().map(|permit| permit.into_stream().unwrap()).collect();
    assert_eq!(queue.view().streams, 0);
    drop(streams);
    pass_ticking(&queue, 1_000).await;
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn who_would_have_been_pushed_out_is_counted_and_runs_on() {
    let queue = Admission::new(Settings { observe: true, queue: 2, ..settings(1) });
    let mut all: Vec<Permit> = (0..3).map(|_| now(queue.ask(&ask(1, 1), Waker::noop()))).collect();
    all.push(now(queue.ask(&ask(2, 2), Waker::noop())));
    assert_eq!((queue.view().counters.refused[6], queue.view().waiting), (1, 2));
    drop(all);
    pass_ticking(&queue, 1_000).await;
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
                Ok(Grant::Now(permit)) => all.push(permit),
                other => break other,
            }
        };
        pass(20).await;
        queue.tick();
        drop((waiting, all));
    }
    assert!(queue.view().slots >= 4, "{:?}", queue.view());
    assert!(queue.lock().limit.as_ref().unwrap().is_unloaded(3), "{:?}", queue.lock().limit);
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
                        Ok(Grant::Now(permit)) => permits.push(permit),
                        Ok(Grant::Wait(waiting)) => waits.push(waiting),
                        Err(refused) => {
                            assert_eq!(refused, AdmissionRefusal::QueueFull);
                            let inner = queue.lock();
                            let held = |subnet| inner.backlog.requests_of(SubnetKey(subnet));
                            assert!((0..3).all(|other| held(other) <= held(session / 2) + 1), "{:?}", inner.backlog);
                        }
                    },
                    2 if !permits.is_empty() => drop(permits.swap_remove(ms as usize % permits.len())),
                    3 if !waits.is_empty() => drop(waits.swap_remove(ms as usize % waits.len())),
                    4 if !permits.is_empty() => streams.extend(permits.swap_remove(ms as usize % permits.len()).into_stream()),
                    5 => permits.iter().for_each(|permit| permit.flows(Noted::new(true))),
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
                assert!(view.running <= 2 && view.waiting <= 8, "{view:?}");
                let waiting: u64 = (0..3).map(|subnet| queue.lock().backlog.requests_of(SubnetKey(subnet))).sum();
                assert_eq!(waiting, view.waiting as u64, "everybody owner waits is counted once");
                assert!(view.waiting == 0 || view.running == 2, "a slot is free while a request waits: {view:?}");
            }
            drop((permits, waits, streams));
            assert_empty(&queue);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_keeps_its_place_when_the_settings_change() {
    let queue = Admission::new(settings(1));
    let running = now(queue.ask(&ask(1, 1), Waker::noop()));
    let mut first = wait(queue.ask(&ask(2, 2), Waker::noop()));
    let mut second = wait(queue.ask(&ask(3, 3), Waker::noop()));
    let mut third = wait(queue.ask(&ask(4, 4), Waker::noop()));
    // Two slots more: two are let in at once, in their order.
    queue.change(&settings(3), &[Some(0)]);
    let granted = (permit(&mut first), permit(&mut second), permit(&mut third));
    assert!(granted.0.is_some() && granted.1.is_some() && granted.2.is_none());
    // Fewer again: those that run run on, and nobody is let in before they have made room.
    queue.change(&Settings { queue: 1, ..settings(1) }, &[Some(0)]);
    drop(granted);
    assert!(permit(&mut third).is_none(), "one still runs");
    assert_eq!(queue.ask(&ask(5, 5), Waker::noop()).map(drop), Err(AdmissionRefusal::QueueFull), "the new bound");
    drop(running);
    let last = permit(&mut third).expect("the slot is free");
    assert!(!queue.is_idle());
    drop(last);
    assert!(queue.is_idle());
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn the_search_for_slots_goes_on_from_where_it_was() {
    let queue = Admission::new(settings(40));
    queue.change(&Settings { slots: Slots::Auto { start: 16, least: 1, most: 1_024 }, ..settings(1) }, &[Some(0)]);
    assert_eq!((queue.view().slots, queue.view().slots_auto), (40, true));
    queue.change(&Settings { slots: Slots::Auto { start: 16, least: 1, most: 8 }, ..settings(1) }, &[Some(0)]);
    assert_eq!(queue.view().slots, 8);
    queue.change(&settings(3), &[Some(0)]);
    assert_eq!((queue.view().slots, queue.view().slots_auto), (3, false));
}

#[tokio::test(start_paused = true)]
async fn streams_that_hold_slots_leave_half_of_them_to_others() {
    let queue = Admission::new(settings(4));
    let mut held: Vec<Permit> = Vec::new();
    let mut open = |subnet: u64| {
        let mut permit = now(queue.ask(&ask(subnet, subnet), Waker::noop()));
        let outcome = permit.hold_as_stream();
        held.extend(outcome.is_ok().then_some(permit));
        outcome
    };
    assert_eq!((open(1), open(1)), (Ok(()), Err(AdmissionRefusal::Streams)), "one subnet leaves as much to others");
    assert_eq!((open(2), open(3)), (Ok(()), Err(AdmissionRefusal::Streams)));
    // Two slots are for requests that end.
    let rest = [now(queue.ask(&ask(9, 9), Waker::noop())), now(queue.ask(&ask(9, 9), Waker::noop()))];
    drop(rest);
    held.clear();
    let mut again = now(queue.ask(&ask(3, 3), Waker::noop()));
    assert_eq!(again.hold_as_stream(), Ok(()));
    drop(again);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_told_beforehand_is_refused_before_it_costs_anything() {
    let queue = Admission::new(settings(4));
    let expect = |subnet: u64| queue.expect_stream(SessionKey(subnet), SubnetKey(subnet));
    assert_eq!(expect(1), Ok(()));
    let first = now(queue.ask(&ask(1, 1), Waker::noop())).begin_as_stream().unwrap();
    assert_eq!((expect(1), expect(2)), (Err(AdmissionRefusal::Streams), Ok(())));
    // It waited while another took the room.
    let cost_ms = queue.view().mean_cost_ms;
    let late = now(queue.ask(&ask(1, 1), Waker::noop()));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(late.begin_as_stream().unwrap_err(), AdmissionRefusal::Streams);
    let view = queue.view();
    assert_eq!((view.running, view.streams, view.mean_cost_ms), (1, 1, cost_ms), "it costs nothing: {view:?}");
    // Its answer has an end: then it is none.
    let mut ends = now(queue.ask(&ask(2, 2), Waker::noop())).begin_as_stream().unwrap();
    assert_eq!(queue.view().streams, 2);
    ends.ends();
    assert_eq!(queue.view().streams, 1);
    drop((first, ends));
    assert_empty(&queue);
}
