//! Known visitors beside crowds of newcomers, in virtual time: the queue and the waiting room together, before a server of four slots and pages of 20 ms.

use super::tests::{ask, settings};
use super::*;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use weir_core::fair::SessionKey;

const SLOTS: u32 = 4;
const PAGE: Duration = Duration::from_millis(20);
const NETWORKS: u64 = 8;
const VISITORS: u64 = 20;
const PAGE_AFTER: Duration = Duration::from_secs(3);

/// Waits for a slot, and holds it for the time of a page. Returns how long it waited, or None if it got no slot.
async fn page(queue: &Arc<Admission>, ask: Ask) -> Option<Duration> {
    let begun = Instant::now();
    let grant = poll_fn(|cx| Poll::Ready(queue.ask(&ask, cx.waker()))).await.ok()?;
    let permit = match grant {
        Grant::Now(permit) => permit,
        Grant::Wait(waiting) => waiting.await.ok()?,
    };
    let waited = begun.elapsed();
    tokio::time::sleep(PAGE).await;
    drop(permit);
    Some(waited)
}

/// How the programs of the crowd behave.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bot {
    /// Sends its young cookie, and asks again at once.
    KeepsCookies,
    /// Comes without a cookie, gets the page, and comes back with its cookie at the time that it was told; then it starts again.
    Obeys,
}

/// A newcomer of this network, with its cookie. Returns what it was told, if it was not served.
async fn enter(queue: &Arc<Admission>, session: u64, network: u64) -> Option<Promise> {
    let visit = Visit { session: SessionKey(session), subnet: SubnetKey(network), waited: Duration::ZERO };
    match queue.room().enter(visit, PAGE_AFTER).await {
        Entered::Later(promise) => Some(promise),
        Entered::Inside(inside) => {
            let newcomer = Ask { standing: Standing::New, ..ask(session, network) };
            let grant = poll_fn(|cx| Poll::Ready(queue.ask(&newcomer, cx.waker()))).await.ok()?;
            let permit = match grant {
                Grant::Now(permit) => permit,
                Grant::Wait(waiting) => waiting.await.ok()?,
            };
            drop(inside);
            tokio::time::sleep(PAGE).await;
            drop(permit);
            None
        }
    }
}

async fn behave(queue: Arc<Admission>, bot: Bot, number: u64, networks: u64, served: Arc<AtomicU64>) {
    let (mut session, network) = (10_000 + number, 1_000 + number % networks);
    loop {
        if bot == Bot::Obeys {
            session += 100_000;
            let stranger = Ask { standing: Standing::Stranger, patience: PAGE_AFTER, ..ask(network, network) };
            if page(&queue, stranger).await.is_some() {
                continue;
            }
        }
        while let Some(promise) = enter(&queue, session, network).await {
            tokio::time::sleep(if bot == Bot::Obeys { promise.again() } else { PAGE }).await;
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long known visitors wait beside a crowd, each of whom asks twice a second: the longest wait, not counting the longest twentieth.
async fn known_wait(bot: Bot, crowd: u64, networks: u64) -> Duration {
    let queue = Admission::new(settings(SLOTS));
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default());
    let mut tasks: Vec<_> = (0..crowd)
        .map(|number| tokio::spawn(behave(Arc::clone(&queue), bot, number, networks, Arc::clone(&served))))
        .collect();
    let (ticking, ticked) = (Arc::clone(&queue), Arc::clone(&over));
    tasks.push(tokio::spawn(async move {
        while !ticked.load(Ordering::Relaxed) {
            tokio::time::sleep(TICK).await;
            ticking.tick();
        }
    }));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut visits = Vec::new();
    for step in 0..20 * 2 * VISITORS {
        // Not at the same time as the pages of the others.
        tokio::time::sleep(Duration::from_micros(25_000 + 37 * (step % 101))).await;
        let (queue, number) = (Arc::clone(&queue), step % VISITORS);
        visits.push(tokio::spawn(async move { page(&queue, ask(number, number)).await }));
    }
    let mut waited = Vec::new();
    for visit in visits {
        waited.push(visit.await.unwrap().expect("the known are served"));
    }
    over.store(true, Ordering::Relaxed);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    waited.sort();
    assert!(served.load(Ordering::Relaxed) > 500, "what the known leave is used");
    waited[waited.len() * 95 / 100]
}

#[tokio::test(start_paused = true)]
async fn known_visitors_wait_for_one_page_of_a_crowd_that_keeps_its_cookies() {
    let waited = known_wait(Bot::KeepsCookies, 800, NETWORKS).await;
    assert!(waited <= PAGE, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn known_visitors_wait_for_one_page_of_a_crowd_that_obeys() {
    let waited = known_wait(Bot::Obeys, 1_000, NETWORKS).await;
    assert!(waited <= PAGE, "{waited:?}");
}

/// A typical flood of a site: a thousand networks at a time, each with a cookie or two.
#[tokio::test(start_paused = true)]
async fn known_visitors_wait_for_one_page_of_a_crowd_of_many_networks_with_cookies() {
    for bot in [Bot::KeepsCookies, Bot::Obeys] {
        let waited = known_wait(bot, 1_000, 1_000).await;
        assert!(waited <= PAGE, "{bot:?}: {waited:?}");
    }
}
