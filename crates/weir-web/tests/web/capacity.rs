//! A server that loses half of its workers while it is asked for more than it can do.

use crate::harness::World;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use weir_web::admission::Slots;

/// What a request takes of a worker.
const WORK: Duration = Duration::from_millis(40);
const WORKERS: u32 = 16;
const CLIENTS: usize = 64;

/// Takes every connection and answers as its workers are free; the order is that of arrival.
async fn serve(listener: TcpListener, workers: Arc<Semaphore>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(converse(stream, Arc::clone(&workers)));
    }
}

async fn converse(mut stream: TcpStream, workers: Arc<Semaphore>) {
    while read_head(&mut stream).await {
        let worker = workers.acquire().await.unwrap();
        tokio::time::sleep(WORK).await;
        drop(worker);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err() {
            return;
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> bool {
    let mut octets = Vec::new();
    while !octets.ends_with(b"\r\n\r\n") {
        if !stream.read_buf(&mut octets).await.is_ok_and(|read| read > 0) {
            return false;
        }
    }
    true
}

/// Always has a request at the gate.
async fn ask_for_ever(at: SocketAddr) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let mut answer = Vec::new();
    loop {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        answer.clear();
        while !answer.ends_with(b"ok") {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the gate closed");
        }
    }
}

/// Waits until the most slots of the last three seconds, looks of the limiter at a half of them aside, are in this range.
async fn slots_in(world: &World, range: std::ops::RangeInclusive<u32>, within: Duration) {
    let begun = Instant::now();
    let mut last: VecDeque<u32> = VecDeque::new();
    loop {
        last.push_back(world.gate.admissions()[0].view().slots);
        if last.len() > 60 {
            last.pop_front();
            let most = last.iter().max().copied().unwrap_or_default();
            if range.contains(&most) {
                return;
            }
        }
        assert!(begun.elapsed() < within, "not in {range:?} after {within:?}: {last:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_slots_follow_a_server_that_loses_half_within_30_s() {
    let workers = Arc::new(Semaphore::new(WORKERS as usize));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve(listener, Arc::clone(&workers)));
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].admission.slots = Slots::Auto { start: 4, least: 1, most: 256 };
    })
    .await;
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(ask_for_ever(world.at))).collect();
    // As many as there are workers, and up to half more, which is not felt as pressure; a little room for the machine's own noise.
    let fit = |workers: u32| workers * 3 / 4..=workers * 13 / 8;
    slots_in(&world, WORKERS..=*fit(WORKERS).end(), Duration::from_secs(60)).await;
    let gone = workers.acquire_many(WORKERS / 2).await.unwrap();
    slots_in(&world, fit(WORKERS / 2), Duration::from_secs(30)).await;
    drop(gone);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}
