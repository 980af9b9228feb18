//! Request bodies: who waits for whom, and what they hold.

use crate::harness::{PATIENCE, World, get1, status_of};
use bytes::Bytes;
use http::Request;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_web::admission::Slots;

const GET: &str = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// More than is read before a slot is asked for.
const LARGE: usize = 200_000;

fn post(path: &str, size: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n")
}

async fn rest_of(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the gate answers and closes");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn announced_uploads_that_do_not_come_hold_no_slot() {
    let world = World::new().await;
    let (client, connection) = h2::client::handshake(world.connect().await).await.unwrap();
    tokio::spawn(connection);
    let mut client = client;
    let mut open = Vec::new();
    for _ in 0..16 {
        client = client.ready().await.unwrap();
        let request = Request::post(format!("http://{}/echo", world.at)).header("content-length", "70000");
        open.push(client.send_request(request.body(()).unwrap(), false).unwrap());
    }
    client = client.ready().await.unwrap();
    let request = Request::get(format!("http://{}/echo", world.at)).body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let response = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(world.gate.admissions()[0].view().counters.asked, 1, "those without a body ask for nothing");
    drop((open, response));
    world.settle().await;
}

#[tokio::test]
async fn where_uploads_stream_one_that_stalls_gives_its_slot_to_who_waits() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.buffers = None;
    })
    .await;
    let mut stalled = world.connect().await;
    stalled.write_all(post("/echo", LARGE).as_bytes()).await.unwrap();
    stalled.write_all(&[b'x'; LARGE / 2]).await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    assert_eq!(world.status(GET).await, 200);
    let said = rest_of(stalled).await;
    assert!(status_of(&said) == 503 && said.contains("retry-after: "), "{said}");
    let counters = world.gate.admissions()[0].view().counters;
    assert_eq!(counters.refused[5], 1);
    world.settle().await;
    assert!(world.gate.status().backends[0].servers[0].up, "it is not the server's fault");
}

/// The server decides when it answers: it may speak before its client does, or after each piece.
#[tokio::test]
async fn an_unbuffered_upload_is_passed_on_from_its_first_octet() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    for by_route in [true, false] {
        let world = World::with(|settings| {
            let backend = &mut settings.backends[0];
            (backend.servers, backend.health_every) = (vec![server.clone()], Duration::ZERO);
            (settings.rules[0].unbuffered, backend.unbuffered) = (by_route, !by_route);
        })
        .await;
        for length in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let mut upload = world.connect().await;
            let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{length}\r\n\r\n");
            upload.write_all(head.as_bytes()).await.unwrap();
            let (mut asked, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it is sent").unwrap();
            let mut came = Vec::new();
            read_until(&mut asked, &mut came, b"\r\n\r\n").await;
            let pieces: [&[u8]; 2] = if length.ends_with("10") {
                [b"first", b"again"]
            } else {
                [b"5\r\nfirst\r\n", b"5\r\nagain\r\n0\r\n\r\n"]
            };
            upload.write_all(pieces[0]).await.unwrap();
            read_until(&mut asked, &mut came, b"first").await;
            upload.write_all(pieces[1]).await.unwrap();
            read_until(&mut asked, &mut came, b"again").await;
            asked.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
            let said = rest_of(upload).await;
            assert!(status_of(&said) == 200 && said.ends_with("ok"), "{said}");
        }
        world.settle().await;
    }
}

/// Reads until these octets have come.
async fn read_until(stream: &mut TcpStream, came: &mut Vec<u8>, octets: &[u8]) {
    while !came.windows(octets.len()).any(|window| window == octets) {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(came)).await.expect("they come").unwrap();
        assert!(read > 0, "it ends behind {}", String::from_utf8_lossy(came));
    }
}

/// Where hyper serves: it reads no more behind what it has, and sees no end there.
#[tokio::test]
async fn a_client_that_leaves_the_queue_behind_unread_octets_is_forgotten() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.buffers = None;
    })
    .await;
    let mut busy = world.connect().await;
    // Longer than the slowest machine needs for the three below: whoever is given the slot has not left the queue.
    busy.write_all(b"GET /slow?ms=600000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    let upload = [post("/echo", LARGE).into_bytes(), vec![b'x'; LARGE]].concat();
    let broken = [post("/echo", LARGE).into_bytes(), vec![b'x'; LARGE / 2]].concat();
    let ahead = b"GET /echo HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\nG".to_vec();
    for (number, octets) in [upload, broken, ahead].into_iter().enumerate() {
        let mut waits = world.connect().await;
        waits.write_all(&octets).await.unwrap();
        world.wait_for(|view| view.waiting == 1).await;
        drop(waits);
        world.wait_for(|view| view.waiting == 0).await;
        let view = world.gate.admissions()[0].view();
        assert_eq!((view.counters.left, view.running), (number as u64 + 1, 1));
    }
    drop(busy);
    world.settle().await;
}

/// Sends a large body in this many pieces with a pause between them.
async fn send_slowly(stream: &mut TcpStream, pieces: usize, pause: Duration) {
    for _ in 0..pieces {
        stream.write_all(&vec![b'x'; LARGE / pieces]).await.unwrap();
        tokio::time::sleep(pause).await;
    }
}

#[tokio::test]
async fn an_upload_may_take_longer_than_the_server_for_its_answer() {
    let world = World::with(|settings| settings.backends[0].response = Duration::from_millis(600)).await;
    let mut slow = world.connect().await;
    slow.write_all(post("/echo", LARGE).as_bytes()).await.unwrap();
    send_slowly(&mut slow, 8, Duration::from_millis(250)).await;
    let said = rest_of(slow).await;
    assert_eq!(status_of(&said), 200, "{said:.200}");
    // From the last piece on it is the server's time.
    let mut late = world.connect().await;
    late.write_all(post("/slow?ms=3000", LARGE).as_bytes()).await.unwrap();
    late.write_all(&[b'x'; LARGE]).await.unwrap();
    let said = rest_of(late).await;
    assert_eq!(status_of(&said), 504, "{said:.200}");
    world.settle().await;
}

#[tokio::test]
async fn the_clock_of_an_upload_stands_still_while_the_gate_makes_it_wait() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.limits.body_piece = Duration::from_secs(1);
        settings.limits.body_grace = Duration::from_secs(1);
        settings.limits.body_rate = 10_000_000;
        settings.buffers = None;
    })
    .await;
    let mut busy = world.http1().await;
    let busy = tokio::spawn(async move { busy.send_request(get1("/slow?ms=2500")).await.unwrap().status() });
    world.wait_for(|view| view.running == 1).await;
    let mut upload = world.connect().await;
    upload.write_all(post("/echo", LARGE).as_bytes()).await.unwrap();
    upload.write_all(&[b'x'; LARGE / 2]).await.unwrap();
    world.wait_for(|view| view.waiting == 1).await;
    assert_eq!(busy.await.unwrap(), 200);
    world.wait_for(|view| view.waiting == 0 && view.running == 1).await;
    upload.write_all(&[b'x'; LARGE / 2]).await.unwrap();
    let said = rest_of(upload).await;
    assert_eq!(status_of(&said), 200, "{said:.200}");
    world.settle().await;
}

#[tokio::test]
async fn bodies_that_are_begun_are_bounded_in_all_and_leave_room_for_others() {
    let world = World::with(|settings| settings.limits.body_buffers = 160_000).await;
    let mut asked = Vec::new();
    for _ in 0..8 {
        let mut stream = world.connect().await;
        stream.write_all(&[post("/echo", 50_000).as_bytes(), &[b'x'; 40_000]].concat()).await.unwrap();
        asked.push(tokio::spawn(rest_of(stream)));
    }
    // Two of them fit into half of the room.
    while asked.iter().filter(|answer| answer.is_finished()).count() < 6 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (refused, held): (Vec<_>, Vec<_>) = asked.into_iter().partition(|answer| answer.is_finished());
    assert_eq!(held.len(), 2);
    for answer in refused {
        assert_eq!(status_of(&answer.await.unwrap()), 503);
    }
    let mut polite = world.connect_from([127, 2, 2, 2]).await;
    polite.write_all(&[post("/echo", 50_000).as_bytes(), &[b'x'; 50_000]].concat()).await.unwrap();
    assert_eq!(status_of(&rest_of(polite).await), 200);
    held.iter().for_each(tokio::task::JoinHandle::abort);
    world.settle().await;
}

/// Each network takes half of the room that is left, and then says nothing more.
#[tokio::test]
async fn bodies_that_never_end_keep_no_form_from_being_read() {
    let world = World::with(|settings| settings.limits.body_buffers = 1 << 20).await;
    let mut silent = Vec::new();
    for subnet in 0..16_u8 {
        let mut left = (1 << 20) >> (subnet + 1);
        while left > 0 {
            let piece = left.min(250_000);
            let mut stream = world.connect_from([127, 3, subnet, 1]).await;
            stream.write_all(&[post("/echo", 1_000_000).as_bytes(), &vec![b'x'; piece]].concat()).await.unwrap();
            silent.push(stream);
            left -= piece;
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for number in 0..20 {
        let mut visitor = world.connect_from([127, 1, number, 1]).await;
        visitor.write_all(&[post("/echo", 9_000).as_bytes(), &[b'x'; 9_000]].concat()).await.unwrap();
        assert_eq!(status_of(&rest_of(visitor).await), 200);
    }
    drop(silent);
    world.settle().await;
}

#[tokio::test]
async fn a_body_in_chunks_that_is_whole_goes_out_with_its_length() {
    let world = World::new().await;
    let chunks = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let said = world.say(chunks).await;
    assert!(said.contains("content-length: 5\n") && !said.contains("transfer-encoding: chunked\n"), "{said}");
    assert!(said.ends_with("\n\nabcde"), "{said}");
    // Many small frames are one body too.
    let (client, connection) = h2::client::handshake(world.connect().await).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/echo", world.at)).body(()).unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    for number in 1..=80 {
        body.send_data(Bytes::from_static(b"x"), number == 80).unwrap();
    }
    let mut answer = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
    let mut said = Vec::new();
    while let Some(piece) = answer.data().await {
        said.extend_from_slice(&piece.unwrap());
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("content-length: 80\n") && said.ends_with(&"x".repeat(80)), "{said}");
    world.settle().await;
}
