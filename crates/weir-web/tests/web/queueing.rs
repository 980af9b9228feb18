//! Who waits, and for how long.

use crate::harness::{World, body_of, get, get1, status_of};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use weir_web::admission::Slots;

#[tokio::test]
async fn no_more_than_the_slots_are_at_the_backend() {
    let world = World::new().await;
    let ask = || async {
        let mut one = world.http1().await;
        one.send_request(get1("/slow?ms=30")).await.unwrap().status()
    };
    let all: Vec<_> = (0..24).map(|_| ask()).collect();
    for outcome in futures_all(all).await {
        assert_eq!(outcome, 200);
    }
    assert_eq!(world.seen.working_most.load(Ordering::Relaxed), 4);
    let counters = world.gate.admissions()[0].view().counters;
    assert_eq!((counters.dispatched, counters.finished), (24, 24));
    assert!(counters.waited >= 10, "{counters:?}");
    world.settle().await;
}

/// Awaits all at once.
async fn futures_all<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in &mut all {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    all.into_iter().map(|(_, output)| output.unwrap()).collect()
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_again() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.backends[0].admission.queue = 1;
    })
    .await;
    let (mut first, mut second) = (world.http1().await, world.http1().await);
    let first = tokio::spawn(async move { first.send_request(get1("/slow?ms=500")).await.unwrap().status() });
    world.wait_for(|view| view.running == 1).await;
    let second = tokio::spawn(async move { second.send_request(get1("/slow?ms=1")).await.unwrap().status() });
    world.wait_for(|view| view.waiting == 1).await;
    let said = world.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(status_of(&said) == 503 && said.contains("retry-after: 1\r\n"), "{said}");
    let response = world.http2().await.send_request(get(world.at, "/")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(body_of(response).await.contains("503 Service Unavailable"));
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (http::StatusCode::OK, http::StatusCode::OK));
    world.settle().await;
}

#[tokio::test]
async fn the_queue_timeout_is_a_503() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.backends[0].admission.queue_timeout = Duration::from_millis(50);
    })
    .await;
    let mut first = world.http1().await;
    let first = tokio::spawn(async move { first.send_request(get1("/slow?ms=600")).await.unwrap().status() });
    world.wait_for(|view| view.running == 1).await;
    assert_eq!(world.status("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, 503);
    assert_eq!(first.await.unwrap(), 200);
    world.settle().await;
}

#[tokio::test]
async fn observing_answers_everybody() {
    let world = World::with(|settings| {
        let admission = &mut settings.backends[0].admission;
        (admission.slots, admission.queue, admission.observe) = (Slots::Fixed(1), 1, true);
    })
    .await;
    let ask = || async {
        let mut one = world.http1().await;
        one.send_request(get1("/slow?ms=200")).await.unwrap().status()
    };
    for outcome in futures_all((0..8).map(|_| ask()).collect()).await {
        assert_eq!(outcome, 200);
    }
    let counters = world.gate.admissions()[0].view().counters;
    assert!(counters.refused[0] >= 1, "who would have been refused is known: {counters:?}");
}

/// A client that leaves while it waits is forgotten; one that leaves after dispatch holds its slot until the backend is done.
#[tokio::test]
async fn a_dispatched_request_holds_its_slot_when_its_client_goes_and_a_waiting_one_is_forgotten() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    for http2 in [false, true] {
        let before = world.seen.requests.load(Ordering::Relaxed);
        let leave: [Box<dyn FnOnce() + Send>; 2] = if http2 {
            [run_away_2(&world, "/slow?ms=400").await, run_away_2(&world, "/slow?ms=401").await]
        } else {
            [run_away_1(&world, "/slow?ms=400").await, run_away_1(&world, "/slow?ms=401").await]
        };
        world.wait_for(|view| view.running == 1 && view.waiting == 1).await;
        leave.into_iter().for_each(|leave| leave());
        world.wait_for(|view| view.waiting == 0).await;
        let view = world.gate.admissions()[0].view();
        assert_eq!(view.running, 1, "the slot is held though its client has gone (HTTP/2 {http2})");
        assert_eq!(world.seen.working.load(Ordering::Relaxed), 1);
        world.settle().await;
        assert_eq!(world.seen.requests.load(Ordering::Relaxed) - before, 1, "the waiting one never got there");
    }
}

async fn run_away_1(world: &World, path: &str) -> Box<dyn FnOnce() + Send> {
    let mut stream = world.connect().await;
    let asked = world.gate.admissions()[0].view().counters.asked;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    world.wait_for(move |view| view.counters.asked > asked).await;
    Box::new(move || drop(stream))
}

async fn run_away_2(world: &World, path: &str) -> Box<dyn FnOnce() + Send> {
    let mut sender = world.http2().await;
    let asked = world.gate.admissions()[0].view().counters.asked;
    let request = get(world.at, path);
    let task = tokio::spawn(async move {
        let _ = sender.send_request(request).await;
    });
    world.wait_for(move |view| view.counters.asked > asked).await;
    Box::new(move || task.abort())
}

#[tokio::test]
async fn a_flood_from_one_subnet_does_not_keep_another_waiting() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(2)).await;
    let mut flood = Vec::new();
    for _ in 0..40 {
        let mut stream = world.connect_from([127, 9, 9, 9]).await;
        stream.write_all(b"GET /slow?ms=40 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        flood.push(stream);
    }
    // All of it has come, so that from here on it only becomes less.
    world.wait_for(|view| view.counters.asked == 40).await;
    let waiting = world.gate.admissions()[0].view().waiting;
    assert!(waiting > 8, "the flood was over before it was counted: {waiting} wait");
    let mut polite = world.connect_from([127, 1, 1, 1]).await;
    polite.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut polite, &mut said).await.unwrap();
    assert_eq!(status_of(&said), 200);
    let left = world.gate.admissions()[0].view().waiting;
    assert!(waiting - left <= 8, "{} of the flood went first", waiting - left);
    drop(flood);
    world.settle().await;
}

#[tokio::test]
async fn a_flood_that_fills_the_queue_does_not_keep_another_out() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.backends[0].admission.queue = 8;
    })
    .await;
    let ask = |from: [u8; 4], path: &'static str| {
        let world = &world;
        async move {
            let mut stream = world.connect_from(from).await;
            let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        }
    };
    let mut flood = vec![ask([127, 9, 9, 1], "/slow?ms=500").await];
    world.wait_for(|view| view.running == 1).await;
    for host in 2..10 {
        flood.push(ask([127, 9, 9, host], "/slow?ms=5").await);
    }
    world.wait_for(|view| view.waiting == 8).await;
    let polite = ask([127, 1, 1, 1], "/").await;
    world.wait_for(|view| view.counters.refused[6] == 1).await;
    let mut statuses = Vec::new();
    for mut stream in flood.into_iter().chain([polite]) {
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut said).await.unwrap();
        statuses.push(status_of(&said));
        assert!(status_of(&said) == 200 || said.contains("retry-after: "), "{said}");
    }
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 1, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&200), "{statuses:?}");
    world.settle().await;
}
