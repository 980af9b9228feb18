//! Requests that have nothing but a head, one after another and between others.

use crate::harness::{PATIENCE, World, body_of, get1, status_of};
use http_body_util::BodyExt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir_web::admission::Slots;

const LURE: &str = "GET /echo?lure HTTP/1.1\r\nHost: a\r\n\r\n";

/// Plain requests, then one with a body that looks like a request, then others.
fn mixture() -> String {
    let plain = |number: u32| format!("GET /echo?{number} HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n");
    let post = format!("POST /echo?3 HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{LURE}", LURE.len());
    let last = "GET /echo?5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    [plain(1), plain(2), post, plain(4), last.to_owned()].concat()
}

#[tokio::test]
async fn plain_requests_and_others_share_a_connection() {
    let world = World::new().await;
    let together = world.say(mixture()).await;
    let mut stream = world.connect().await;
    for octet in mixture().as_bytes() {
        stream.write_all(&[*octet]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut dribbled = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut dribbled)).await.unwrap().unwrap();
    for said in [together, dribbled] {
        assert_eq!(said.matches("HTTP/1.1 200 OK\r\n").count(), 5, "{said}");
        let places: Vec<_> = (1..=5).map(|number| said.find(&format!("/echo?{number}\n"))).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{said}");
        assert!(said.contains(&format!("\n\n{LURE}")), "the lure is a body: {said}");
    }
    world.settle().await;
}

#[tokio::test]
async fn bodies_of_all_kinds_come_through() {
    let world = World::new().await;
    let mut one = world.http1().await;
    for kib in [0, 1, 3, 4, 5, 64, 4_096] {
        let response = one.send_request(get1(&format!("/big?kib={kib}"))).await.unwrap();
        assert_eq!(response.headers()["content-length"], (kib << 10).to_string().as_str());
        assert!(response.headers().contains_key("date"));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), kib << 10);
        let response = one.send_request(get1("/trailers")).await.unwrap();
        assert_eq!(response.headers()["transfer-encoding"], "chunked");
        assert_eq!(body_of(response).await, "first second");
    }
    let mut head = get1("/big?kib=64");
    *head.method_mut() = http::Method::HEAD;
    let response = one.send_request(head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "65536");
    assert_eq!(one.send_request(get1("/nowhere")).await.unwrap().status(), 404);
    world.settle().await;
}

#[tokio::test]
async fn events_flow_at_once_and_end_with_their_client() {
    let world = World::new().await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"data: 2\n\n\r\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&said));
    }
    world.wait_for(|view| view.streams == 1 && view.running == 0).await;
    drop(stream);
    world.settle().await;
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_forgotten() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    let mut busy = world.connect().await;
    busy.write_all(b"GET /slow?ms=300 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    let mut waits = world.connect().await;
    waits.write_all(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.waiting == 1).await;
    drop(waits);
    world.wait_for(|view| view.waiting == 0).await;
    assert_eq!(world.gate.admissions()[0].view().counters.left, 1);
    let mut said = vec![0; 15];
    tokio::time::timeout(PATIENCE, busy.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(status_of(&String::from_utf8_lossy(&said)), 200);
    world.settle().await;
}

#[tokio::test]
async fn a_client_that_has_sent_more_and_leaves_is_forgotten_too() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    let mut busy = world.connect().await;
    busy.write_all(b"GET /slow?ms=3000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    let mut waits = world.connect().await;
    waits.write_all(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\nG").await.unwrap();
    world.wait_for(|view| view.waiting == 1).await;
    drop(waits);
    world.wait_for(|view| view.waiting == 0).await;
    let view = world.gate.admissions()[0].view();
    assert_eq!((view.counters.left, view.running), (1, 1));
    drop(busy);
    world.settle().await;
}

/// Small chunks without end to whoever asks, and how many octets went out.
async fn flood(listener: TcpListener, sent: Arc<AtomicU64>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let sent = Arc::clone(&sent);
        tokio::spawn(async move {
            // Checks of health come as well, and ask for nothing.
            if !stream.read(&mut [0; 1_024]).await.is_ok_and(|octets| octets > 0) {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let chunks = [&b"400\r\n"[..], &[b'x'; 1_024], b"\r\n"].concat().repeat(16);
            while stream.write_all(&chunks).await.is_ok() {
                sent.fetch_add(chunks.len() as u64, Ordering::Relaxed);
            }
        });
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_does_not_fill_memory() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (server, sent) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicU64::new(0)));
    tokio::spawn(flood(listener, Arc::clone(&sent)));
    let world = World::with(|settings| settings.backends[0].servers = vec![server]).await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // Until it stands still, all that has gone out is in the buffers of four sockets, and little with us.
    let mut before = 0;
    let standing = async {
        while before == 0 || before != sent.load(Ordering::Relaxed) {
            before = sent.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(PATIENCE, standing).await.expect("it flows for ever");
    drop(stream);
    world.wait_for(|view| view.running == 0 && view.streams == 0).await;
}

#[tokio::test]
async fn a_refusal_is_an_answer_like_others() {
    let world = World::with(|settings| settings.rules[0].host = "known.example".into()).await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut said = vec![0; 4_096];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut said)).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&said[..read]).into_owned();
    assert!(status_of(&said) == 404 && !said.contains("connection:"), "{said}");
    assert!(said.contains("content-length: ") && said.contains("date: "), "{said}");
}

#[tokio::test]
async fn a_connection_ends_after_as_many_requests_as_it_may_bring() {
    let world = World::with(|settings| settings.limits.requests = 3).await;
    let said = world.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5)).await;
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(said.matches("connection: close\r\n").count(), 1);
    world.settle().await;
}
