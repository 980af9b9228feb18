//! Streams that each keep one of the server's workers busy (`streams=slots`).

use crate::harness::{PATIENCE, World, status_of};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const EVENTS: &str = "GET /events HTTP/1.1\r\nHost: a\r\n\r\n";
const ANNOUNCED: &str = "GET /events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

async fn world() -> World {
    World::with(|settings| {
        settings.backends[0].streams_hold_slots = true;
        settings.backends[0].health_every = Duration::ZERO;
    })
    .await
}

/// A connection that has asked, and the status it was answered with.
async fn ask(world: &World, from: [u8; 4], request: &str) -> (u16, TcpStream) {
    let mut stream = world.connect_from(from).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(timeout(PATIENCE, stream.read_buf(&mut said)).await.expect("an answer").unwrap() > 0, "it is closed");
    }
    (status_of(&String::from_utf8_lossy(&said)), stream)
}

#[tokio::test]
async fn a_stream_too_many_does_not_get_to_the_server() {
    for (name, request) in [("announced", ANNOUNCED), ("by its path", EVENTS), ("an upgrade", UPGRADE)] {
        let world = world().await;
        let (status, first) = ask(&world, [127, 60, 1, 1], request).await;
        assert!(status == 200 || status == 101, "{name}: {status}");
        for at in 2..8 {
            // The same network, each time from another address.
            assert_eq!(ask(&world, [127, 60, 1, at], request).await.0, 429, "{name}");
        }
        assert_eq!(world.seen.requests.load(Ordering::Relaxed), 1, "{name}: only the first has got there");
        let view = world.gate.admissions()[0].view();
        assert_eq!((view.running, view.streams), (1, 1), "{name}: {view:?}");
        let (other, _) = ask(&world, [127, 61, 1, 1], "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(other, 200, "{name}");
        drop(first);
        world.wait_for(|view| view.running == 0 && view.streams == 0).await;
        let (again, _second) = ask(&world, [127, 60, 1, 1], request).await;
        assert_eq!(again, status, "{name}: there is room again");
    }
}

#[tokio::test]
async fn what_only_looked_like_a_stream_counts_as_none() {
    let world = world().await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
    for _ in 0..4 {
        let (status, _) = ask(&world, [127, 60, 1, 1], request).await;
        assert_eq!(status, 200);
        world.wait_for(|view| view.running == 0 && view.streams == 0).await;
    }
}

/// A world whose only server is the test itself.
async fn by_hand(stream_after: Duration) -> (World, TcpListener) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![address];
        settings.backends[0].streams_hold_slots = true;
        settings.backends[0].health_every = Duration::ZERO;
        settings.backends[0].admission.stream_after = stream_after;
    })
    .await;
    (world, listener)
}

/// A client that has asked, and the server's end of its request.
async fn asked(world: &World, listener: &TcpListener, from: [u8; 4], request: &str) -> (TcpStream, TcpStream) {
    let mut client = world.connect_from(from).await;
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        assert!(timeout(PATIENCE, server.read_buf(&mut asked)).await.unwrap().unwrap() > 0);
    }
    (client, server)
}

/// Whether a while passes in which the gate neither resets the connection nor frees the slot.
async fn still_held(world: &World, server: &mut TcpStream) -> bool {
    let silent = timeout(Duration::from_millis(200), server.read(&mut [0; 8])).await.is_err();
    silent && world.gate.admissions()[0].view().running == 1
}

#[tokio::test]
async fn who_leaves_before_a_stream_begins_keeps_its_slot_until_the_server_can_have_noticed() {
    let (world, listener) = by_hand(Duration::from_millis(150)).await;
    let (client, mut server) = asked(&world, &listener, [127, 60, 1, 1], ANNOUNCED).await;
    drop(client);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    // Two at once, as many streams begin.
    server.write_all(format!("{head}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n").as_bytes()).await.unwrap();
    // Nothing is known yet of when it writes next, and until then its worker is busy.
    assert!(still_held(&world, &mut server).await);
    server.write_all(b"9\r\ndata: 3\n\n\r\n").await.unwrap();
    let read = timeout(PATIENCE, server.read(&mut [0; 8])).await.expect("it is reset");
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    world.wait_for(|view| view.running == 0 && view.streams == 0).await;
}

#[tokio::test]
async fn who_asks_for_events_and_leaves_does_not_free_the_slot_of_an_answer_with_an_end() {
    let (world, listener) = by_hand(PATIENCE).await;
    let (client, mut server) = asked(&world, &listener, [127, 60, 1, 1], ANNOUNCED).await;
    drop(client);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n";
    server.write_all(format!("{head}part").as_bytes()).await.unwrap();
    // It works on the rest.
    assert!(still_held(&world, &mut server).await);
    world.wait_for(|view| view.running == 1 && view.streams == 0).await;
    server.write_all(b"rest").await.unwrap();
    world.wait_for(|view| view.running == 0).await;
}

#[tokio::test]
async fn a_path_that_answers_with_other_things_as_well_is_no_stream_before_its_answer() {
    let (world, listener) = by_hand(PATIENCE).await;
    for (kind, body) in [("text/event-stream", "data: 1\n\n"), ("application/json", "{}")] {
        let (mut client, mut server) = asked(&world, &listener, [127, 60, 1, 1], EVENTS).await;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n"
        );
        server.write_all(answer.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(body) {
            assert!(timeout(PATIENCE, client.read_buf(&mut said)).await.unwrap().unwrap() > 0);
        }
        let streams = u64::from(kind == "text/event-stream");
        world.wait_for(|view| u64::from(view.streams) == streams).await;
        server.write_all(b"0\r\n\r\n").await.unwrap();
        world.wait_for(|view| view.running == 0).await;
    }
    let (_client, _server) = asked(&world, &listener, [127, 60, 1, 1], EVENTS).await;
    let view = world.gate.admissions()[0].view();
    assert_eq!((view.running, view.streams), (1, 0), "{view:?}");
}

#[tokio::test]
async fn a_stream_that_only_its_answer_shows_is_reset_and_gives_its_slot_back() {
    let (world, listener) = by_hand(Duration::from_millis(10)).await;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for at in 1..=3 {
        let (client, server) = asked(&world, &listener, [127, 60, 1, at], EVENTS).await;
        clients.push(client);
        servers.push(server);
    }
    // All three were sent before the first answer came: nobody could know what they are.
    for server in &mut servers {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        server.write_all(format!("{head}9\r\ndata: 1\n\n\r\n").as_bytes()).await.unwrap();
    }
    let mut statuses = Vec::new();
    for client in &mut clients {
        let mut said = [0; 12];
        timeout(PATIENCE, client.read_exact(&mut said)).await.unwrap().unwrap();
        statuses.push(status_of(&String::from_utf8_lossy(&said)));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429, 429]);
    world.wait_for(|view| view.running == 1 && view.streams == 1).await;
    let mut resets = 0;
    for server in &mut servers {
        // The stream that goes on is silent, and the others have been reset.
        if let Ok(read) = timeout(Duration::from_millis(200), server.read(&mut [0; 8])).await {
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
            resets += 1;
        }
    }
    assert_eq!(resets, 2);
    assert_eq!(ask(&world, [127, 60, 1, 9], EVENTS).await.0, 429, "now the path is known");
}
