//! Bodies that one side gives faster than the other takes: what is buffered, what that holds, and who pays when there is no more room.

use crate::harness::{PATIENCE, World, get, status_of, until};
use http_body_util::BodyExt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_web::admission::Slots;

/// An answer much larger than all sockets between the server and the client hold.
const LARGE: usize = 48 << 20;

/// Sends the same large answer to whoever asks, numbers in it; counts what has gone out.
async fn large_server(fields: &'static str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {
                    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {LARGE}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes()).await;
                    for number in 0..LARGE / PIECE {
                        if stream.write_all(&[number as u8; PIECE]).await.is_err() {
                            return;
                        }
                        count.fetch_add(PIECE as u64, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    (address, sent)
}

const PIECE: usize = 64 << 10;

fn expected() -> Vec<u8> {
    (0..LARGE).map(|at| (at / PIECE) as u8).collect()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A request that hyper serves.
const BY_HYPER: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n";

/// A gate before this server, which does one request at a time.
async fn one_slot(server: String) -> World {
    World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].admission.slots = Slots::Fixed(1);
    })
    .await
}

#[tokio::test]
async fn the_slot_is_free_when_the_server_has_finished_however_slowly_its_client_reads() {
    let (server, sent) = large_server("").await;
    let world = one_slot(server).await;
    for (round, request) in [GET, BY_HYPER].into_iter().enumerate() {
        let mut slow = world.connect().await;
        slow.write_all(request).await.unwrap();
        let mut some = vec![0; 100];
        slow.read_exact(&mut some).await.unwrap();
        until("all of the answer to be read", || sent.load(Ordering::Relaxed) >= (LARGE * (round + 1)) as u64).await;
        world.wait_for(|view| view.running == 0 && view.counters.finished == round as u64 + 1).await;
        let status = world.gate.status();
        assert!(status.buffered_bytes < 4 << 20, "in memory: {}", status.buffered_bytes);
        assert!(status.buffered_file_bytes > 8 << 20, "in files: {}", status.buffered_file_bytes);
        // It is all there for whoever takes it in the end.
        let body_at = some.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
        let mut body = some.split_off(body_at);
        if body_at == 0 {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(slow.read_u8().await.unwrap());
            }
            body.clear();
        }
        while body.len() < LARGE {
            let read = tokio::time::timeout(PATIENCE, slow.read_buf(&mut body)).await.unwrap().unwrap();
            assert!(read > 0, "it ends after {}", body.len());
        }
        assert!(body == expected(), "round {round}");
        let status = world.gate.status();
        assert_eq!((status.buffered_bytes, status.buffered_file_bytes), (0, 0));
    }
}

#[tokio::test]
async fn on_a_stream_of_http2_the_server_is_read_on_too() {
    let (server, _sent) = large_server("").await;
    let world = one_slot(server).await;
    let mut client = world.http2().await;
    // The window is full at once, since nothing is read yet.
    let response = client.send_request(get(world.at, "/")).await.unwrap();
    world.wait_for(|view| view.running == 0 && view.counters.finished == 1).await;
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
    assert!(body == expected());
    world.wait_for(|view| view.running == 0).await;
}

#[tokio::test]
async fn a_client_that_goes_leaves_no_buffer_behind() {
    let (server, _sent) = large_server("").await;
    let world = World::with(|settings| settings.backends[0].servers = vec![server]).await;
    for request in [GET, BY_HYPER] {
        let mut slow = world.connect().await;
        slow.write_all(request).await.unwrap();
        until("something to be buffered", || world.gate.status().buffered_file_bytes > 0).await;
        drop(slow);
        until("nothing to be buffered", || {
            let status = world.gate.status();
            (status.buffered_bytes, status.buffered_file_bytes) == (0, 0)
        })
        .await;
        world.wait_for(|view| view.running == 0).await;
    }
}

/// What the server wants passed on at once holds its slot; if the client does not take it, it goes to who waits.
#[tokio::test]
async fn what_must_not_be_buffered_holds_its_slot_until_somebody_needs_it() {
    let (server, sent) = large_server("X-Accel-Buffering: no\r\n").await;
    let world = one_slot(server).await;
    for (round, request) in [GET, BY_HYPER].into_iter().enumerate() {
        let mut slow = world.connect().await;
        slow.write_all(request).await.unwrap();
        let mut before = u64::MAX;
        while before != sent.load(Ordering::Relaxed) || before == 0 {
            before = sent.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let view = world.gate.admissions()[0].view();
        assert_eq!((view.running, world.gate.status().buffered_file_bytes), (1, 0), "the server waits");
        let mut other = world.connect_from([127, 3, 3, 3]).await;
        other.write_all(GET).await.unwrap();
        world.wait_for(|view| view.counters.refused[7] == round as u64 + 1).await;
        let mut some = [0; 12];
        tokio::time::timeout(PATIENCE, other.read_exact(&mut some)).await.unwrap().unwrap();
        assert_eq!(status_of(&String::from_utf8_lossy(&some)), 200);
        drop((other, slow));
        world.wait_for(|view| view.running == 0 && view.waiting == 0).await;
        sent.store(0, Ordering::Relaxed);
    }
}

/// A route that says so is the same.
#[tokio::test]
async fn a_route_may_be_unbuffered() {
    let (server, sent) = large_server("").await;
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.rules[0].unbuffered = true;
    })
    .await;
    let mut slow = world.connect().await;
    slow.write_all(GET).await.unwrap();
    let mut before = 0;
    while before != sent.load(Ordering::Relaxed) || before == 0 {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < LARGE as u64 && world.gate.status().buffered_file_bytes == 0, "{before}");
    drop(slow);
    world.wait_for(|view| view.running == 0).await;
}

/// Room for about one answer in all. Whoever reads slowly goes when somebody else needs it, and whoever reads gets all.
#[tokio::test]
async fn when_the_buffers_are_full_the_slowest_readers_pay() {
    let (server, _sent) = large_server("").await;
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].admission.slots = Slots::Fixed(8);
        settings.limits.response_files = 48 << 20;
        settings.limits.response_buffers = 8 << 20;
    })
    .await;
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..6 {
        let mut stream = world.connect_from([127, 2, number, 1]).await;
        stream.write_all(GET).await.unwrap();
        slow.push(stream);
    }
    until("somebody to be cut off", || world.gate.status().readers_cut > 0).await;
    let mut honest = world.connect_from([127, 9, 9, 9]).await;
    honest.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, honest.read_to_end(&mut said)).await.unwrap().unwrap();
    assert!(said.len() > LARGE && said.ends_with(&expected()[LARGE / 2..]), "{}", said.len());
    drop(slow);
    world.wait_for(|view| view.running == 0).await;
}

/// A large upload waits for itself alone, and its octets arrive as they were sent.
#[tokio::test]
async fn an_upload_is_whole_before_it_asks_for_a_slot() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    let size = 900_000;
    for head in [
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"),
        "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
    ] {
        let chunked = head.contains("chunked");
        let asked = world.gate.admissions()[0].view().counters.asked;
        let mut upload = world.connect().await;
        upload.write_all(head.as_bytes()).await.unwrap();
        let body: Vec<u8> = (0..size).map(|at| b'a' + (at / 1_000 % 26) as u8).collect();
        let halves = body.split_at(size / 2);
        for (at, half) in [halves.0, halves.1].into_iter().enumerate() {
            if chunked {
                upload.write_all(format!("{:x}\r\n", half.len()).as_bytes()).await.unwrap();
            }
            upload.write_all(half).await.unwrap();
            if chunked {
                upload.write_all(b"\r\n").await.unwrap();
            }
            if at == 0 {
                // Half of it is here and more is to come: others are served meanwhile.
                let said = world.say("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
                assert_eq!(status_of(&said), 200);
                assert_eq!(world.gate.admissions()[0].view().counters.asked, asked + 1, "the upload asks for nothing");
            }
        }
        if chunked {
            upload.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let mut said = Vec::new();
        tokio::time::timeout(PATIENCE, upload.read_to_end(&mut said)).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&said);
        assert!(status_of(&text) == 200 && said.ends_with(&body), "{text:.300}");
        assert!(text.contains(&format!("content-length: {size}\n")), "{text:.300}");
        world.settle().await;
    }
}
