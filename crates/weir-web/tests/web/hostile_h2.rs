//! The same harm over HTTP/2, written frame by frame.

use crate::harness::{PATIENCE, World, get, saying, until};
use crate::hostile::impatient;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use weir_web::admission::Slots;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as they are, neither indexed nor compressed.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

fn opening() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/echo"), (":authority", "a.example")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "a.example")];

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The status.
    Answer(u16),
    Reset,
    Ended,
}

/// What becomes of stream 1.
async fn outcome(world: &World, frames: &[u8]) -> Outcome {
    let mut stream = world.connect().await;
    let _ = stream.write_all(&[opening(), frames.to_vec()].concat()).await;
    let look = async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return Outcome::Ended;
            }
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            if stream.read_exact(&mut payload).await.is_err() {
                return Outcome::Ended;
            }
            match head[3] {
                HEADERS => return Outcome::Answer(status(&payload)),
                RST_STREAM => return Outcome::Reset,
                // Also not GOAWAY: what was begun before it is still answered.
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the gate answers")
}

/// The status that a header block begins with (RFC 7541).
fn status(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match block {
        [index @ 0x88..=0x8e, ..] => INDEXED[usize::from(index - 0x88)],
        // A name of the table, and digits in Huffman's code.
        [0x48 | 0x08, length, text @ ..] if length & 0x80 != 0 => digits(&text[..usize::from(length & 0x7f)]),
        [0x48 | 0x08, 3, text @ ..] => std::str::from_utf8(&text[..3]).unwrap().parse().unwrap(),
        _ => panic!("no status: {block:x?}"),
    }
}

fn digits(text: &[u8]) -> u16 {
    let bits: Vec<u16> =
        text.iter().flat_map(|octet| (0..8).rev().map(move |at| u16::from((octet >> at) & 1))).collect();
    let number = |bits: &[u16]| bits.iter().fold(0, |number, bit| (number << 1) | bit);
    let (mut at, mut value) = (0, 0);
    for _ in 0..3 {
        let (digit, length) = match number(&bits[at..at + 5]) {
            short @ 0..3 => (short, 5),
            _ => (number(&bits[at..at + 6]) - 0x19 + 3, 6),
        };
        (at, value) = (at + length, value * 10 + digit);
    }
    value
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let world = World::new().await;
    let with = |base: &[(&str, &str)], more: &[(&str, &str)]| block(&[base, more].concat());
    let whole = |fields: Vec<u8>| frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields);
    let body = |fields: Vec<u8>, data: &[u8]| {
        [frame(HEADERS, END_HEADERS, 1, &fields), frame(0, END_STREAM, 1, data)].concat()
    };
    assert_eq!(outcome(&world, &whole(block(&GET))).await, Outcome::Answer(200));
    assert_eq!(outcome(&world, &body(with(&POST, &[("content-length", "3")]), b"abc")).await, Outcome::Answer(200));
    // Strictly these are none either, but programs send them, and nginx serves them.
    for path in ["/echo?q=<a>\"b", "/echo?\"", "/echo?a=1&b=<>#x"] {
        let raw = whole(block(&[GET[0], GET[1], (":path", path), GET[3]]));
        assert_eq!(outcome(&world, &raw).await, Outcome::Answer(200), "{path}");
    }
    let before = world.seen.requests.load(Ordering::Relaxed);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a capital in a name", whole(with(&GET, &[("X-A", "b")]))),
        ("connection", whole(with(&GET, &[("connection", "close")]))),
        ("keep-alive", whole(with(&GET, &[("keep-alive", "3")]))),
        ("transfer-encoding", body(with(&POST, &[("transfer-encoding", "chunked")]), b"0\r\n\r\n")),
        ("upgrade", whole(with(&GET, &[("upgrade", "h2c")]))),
        ("te that is not trailers", whole(with(&GET, &[("te", "gzip")]))),
        ("a length and no body", whole(with(&POST, &[("content-length", "5")]))),
        ("a length that is too short", body(with(&POST, &[("content-length", "1")]), b"abc")),
        ("a length that is too long", body(with(&POST, &[("content-length", "9")]), b"abc")),
        ("two lengths", body(with(&POST, &[("content-length", "3"), ("content-length", "4")]), b"abc")),
        ("a line end in a value", whole(with(&GET, &[("x", "a\r\nb: c")]))),
        ("a nul in a value", whole(with(&GET, &[("x", "a\0b")]))),
        ("a space in a name", whole(with(&GET, &[("x y", "a")]))),
        ("a colon in a name", whole(with(&GET, &[("x:y", "a")]))),
        ("an empty name", whole(with(&GET, &[("", "a")]))),
        ("a pseudo-field behind a field", whole(block(&[&GET[..3], &[("x", "y")], &GET[3..]].concat()))),
        ("two paths", whole(with(&GET, &[(":path", "/other")]))),
        ("an unknown pseudo-field", whole(with(&GET, &[(":colour", "red")]))),
        ("no path", whole(block(&[GET[0], GET[1], GET[3]]))),
        ("no method", whole(block(&GET[1..]))),
        ("a path that is none", whole(block(&[GET[0], GET[1], (":path", "nonsense"), GET[3]]))),
        ("a line end in a path", whole(block(&[GET[0], GET[1], (":path", "/a\r\nHost: b"), GET[3]]))),
        ("a space in a path", whole(block(&[GET[0], GET[1], (":path", "/a b"), GET[3]]))),
        ("host and authority disagree", whole(with(&GET, &[("host", "b.example")]))),
        ("two hosts", whole(with(&GET, &[("host", "a.example"), ("host", "a.example")]))),
        ("a user in the authority", whole(block(&[GET[0], GET[1], GET[2], (":authority", "x@a")]))),
        ("CONNECT", whole(block(&[(":method", "CONNECT"), (":authority", "a:80")]))),
        ("a protocol without CONNECT", whole(with(&GET, &[(":protocol", "websocket")]))),
        (
            "CONNECT to a protocol at no path",
            whole(block(&[(":method", "CONNECT"), (":protocol", "websocket"), GET[3]])),
        ),
        ("TRACE", whole(block(&[(":method", "TRACE"), GET[1], GET[2], GET[3]]))),
        ("an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, &block(&GET))),
        ("data without a request", frame(0, END_STREAM, 1, b"abc")),
        ("a broken header block", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])),
    ];
    let mut wrong = Vec::new();
    for (name, frames) in cases {
        let outcome = outcome(&world, &frames).await;
        if !matches!(outcome, Outcome::Reset | Outcome::Ended | Outcome::Answer(400 | 405)) {
            wrong.push((name, outcome));
        }
    }
    assert!(wrong.is_empty(), "not refused: {wrong:?}");
    world.settle().await;
    // Where the body breaks its promise, the request may have begun; everything else never left the gate.
    assert!(world.seen.requests.load(Ordering::Relaxed) - before <= 1, "something got through");
}

#[tokio::test]
async fn endless_header_blocks_and_floods_of_frames_end_the_connection() {
    let world = World::new().await;
    let mut endless = frame(HEADERS, END_STREAM, 1, &block(&GET));
    for number in 0..4_000 {
        endless.extend(frame(CONTINUATION, 0, 1, &block(&[(&format!("x-{number}"), &"y".repeat(100))])));
    }
    assert!(matches!(outcome(&world, &endless).await, Outcome::Reset | Outcome::Ended | Outcome::Answer(431)));
    // Frames that must each be answered, to a client that reads nothing: the gate ends it, or reads no more until its answers are taken.
    let mut stream = world.connect().await;
    let _ = stream.write_all(&opening()).await;
    let flood: Vec<u8> = (0..1_000).flat_map(|_| frame(PING, 0, 0, &[0; 8])).collect();
    let mut rounds = 0;
    while let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&flood)).await {
        rounds += 1;
        assert!(rounds < 4_000, "68 MB of frames were taken, and their answers kept");
    }
    drop(stream);
    // To a client that reads all answers, frames that ask for nothing are a flood too.
    for kind in [PING, SETTINGS] {
        let (mut from, mut to) = world.connect().await.into_split();
        let reading =
            tokio::spawn(async move { while from.read(&mut [0; 65_536]).await.is_ok_and(|octets| octets > 0) {} });
        let payload = if kind == PING { &[0; 8][..] } else { &[] };
        let flood = frame(kind, 0, 0, payload).repeat(100);
        let _ = to.write_all(&opening()).await;
        let mut sent = 0;
        while sent < 100_000 && to.write_all(&flood).await.is_ok() {
            sent += 100;
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(PATIENCE, reading).await.expect("the connection is closed").unwrap();
    }
    world.settle().await;
}

/// A window that never opens: the stream ends, and the connection goes on.
#[tokio::test]
async fn a_stream_whose_client_takes_nothing_is_reset() {
    let world = World::with(|settings| settings.limits.send = Duration::from_millis(300)).await;
    let mut client = world.http2_with_window(0).await;
    let ask = |method: &str, path: &str| {
        http::Request::builder().method(method).uri(format!("http://{}{path}", world.at)).body(()).unwrap()
    };
    for path in ["/big?kib=4096", "/"] {
        client = client.ready().await.unwrap();
        let (response, _) = client.send_request(ask("GET", path), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let broken = tokio::time::timeout(PATIENCE, body.data()).await.expect("it ends").unwrap();
        assert!(broken.unwrap_err().is_reset(), "{path}");
    }
    // While the server is waited for nothing is offered, so nothing is late.
    client = client.ready().await.unwrap();
    let (response, _) = client.send_request(ask("HEAD", "/slow?ms=700"), true).unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
    world.settle().await;
}

#[tokio::test]
async fn slow_and_silent_clients_are_cut_off_and_hold_no_slot() {
    let world = World::with(|settings| {
        settings.limits = impatient();
        settings.backends[0].request_buffer = 16 << 10;
        // Without files, so that large bodies stream.
        settings.buffers = None;
    })
    .await;
    // Nothing at all; half a header block; a request and then silence.
    assert_eq!(outcome(&world, &[]).await, Outcome::Ended);
    assert_eq!(outcome(&world, &frame(HEADERS, END_STREAM, 1, &block(&GET))).await, Outcome::Ended);
    assert_eq!(world.gate.admissions()[0].view().counters.asked, 0);
    let ended = async {
        let mut stream = world.connect().await;
        let ask = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&GET));
        stream.write_all(&[opening(), ask].concat()).await.unwrap();
        while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {}
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("an idle connection is closed");

    // A body that never comes holds no slot; one that stalls in the middle gives its slot back. The client is told.
    let post =
        |length: &str| frame(HEADERS, END_HEADERS, 1, &block(&[&POST[..], &[("content-length", length)]].concat()));
    let asked = world.gate.admissions()[0].view().counters.asked;
    let begun = [post("10"), frame(0, 0, 1, b"abc")].concat();
    assert_eq!(outcome(&world, &begun).await, Outcome::Answer(408));
    assert_eq!(world.gate.admissions()[0].view().counters.asked, asked, "half a body asks for nothing");
    let pieces = |count: usize| frame(0, 0, 1, &[b'x'; 16_000]).repeat(count);
    assert_eq!(outcome(&world, &[post("200000"), pieces(3)].concat()).await, Outcome::Answer(408));
    assert_eq!(world.gate.admissions()[0].view().counters.asked, asked + 1, "it had a slot");
    // More than the window that every connection begins with is not waited for.
    let beyond = outcome(&world, &[post("200000"), pieces(6)].concat()).await;
    assert!(matches!(beyond, Outcome::Reset | Outcome::Ended), "{beyond:?}");
    world.settle().await;
}

#[tokio::test]
async fn half_closed_connections_end() {
    let world = World::new().await;
    for frames in [
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[GET[0], GET[1], (":path", "/slow?ms=200"), GET[3]])),
        [frame(HEADERS, END_HEADERS, 1, &block(&POST)), frame(0, 0, 1, b"half")].concat(),
    ] {
        let mut stream = world.connect().await;
        stream.write_all(&[opening(), frames].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        let ended = async { while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("who has closed is gone");
    }
    world.settle().await;
    assert_eq!(world.http2().await.send_request(get(world.at, "/")).await.unwrap().status(), 200);
}

/// Answers that come in one piece. With a window of one octet h2 takes all of each, and the task of its stream ends.
#[tokio::test]
async fn small_answers_that_nobody_reads_are_counted_and_bounded() {
    const SIZE: u64 = 4_000;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n{}", "x".repeat(SIZE as usize));
    let server = saying(answer.leak()).await;
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.limits.response_buffers = 16 * SIZE;
    })
    .await;
    let held = || world.gate.status().buffered_bytes;
    for window in [0, 1] {
        let mut client = world.http2_with_window(window).await;
        let (mut unread, cut) = (Vec::new(), world.gate.status().readers_cut);
        for number in 0..24 {
            let ask = http::Request::get(format!("http://{}/", world.at)).body(()).unwrap();
            client = client.ready().await.unwrap();
            unread.push(client.send_request(ask, true).unwrap().0.await.unwrap());
            if number == 5 {
                assert_eq!(held(), 6 * SIZE, "with a window of {window}");
                assert_eq!(world.gate.status().readers_cut, cut, "there is room");
            }
        }
        until("somebody to be cut off", || world.gate.status().readers_cut > cut).await;
        until("what it held to be free", || held() == 0).await;
        // It has kept all its streams until now.
        drop((unread, client));
    }
    world.settle().await;
}

/// A server that sends the head of each answer at once, and its body when there is a permit for it.
async fn head_first(size: u64) -> (String, Arc<Semaphore>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, bodies) = (listener.local_addr().unwrap().to_string(), Arc::new(Semaphore::new(0)));
    let permits = Arc::clone(&bodies);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
                    stream.write_all(head.as_bytes()).await.unwrap();
                    permits.acquire().await.unwrap().forget();
                    stream.write_all(&vec![b'x'; size as usize]).await.unwrap();
                }
            });
        }
    });
    (address, bodies)
}

/// The same with bodies that come behind their heads: h2 takes the last piece of each as well, and the task of its stream ends.
#[tokio::test]
async fn later_pieces_that_nobody_reads_are_counted_and_bounded_as_well() {
    const SIZE: u64 = 4_000;
    let (server, bodies) = head_first(SIZE).await;
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].health_every = Duration::ZERO;
        settings.limits.response_buffers = 16 * SIZE;
    })
    .await;
    let held = || world.gate.status().buffered_bytes;
    let mut client = world.http2_with_window(1).await;
    let mut unread = Vec::new();
    for number in 1..=12 {
        let ask = http::Request::get(format!("http://{}/", world.at)).body(()).unwrap();
        client = client.ready().await.unwrap();
        unread.push(client.send_request(ask, true).unwrap().0.await.unwrap());
        bodies.add_permits(1);
        world.wait_for(|view| view.running == 0).await;
        if number <= 6 {
            until("each to be counted", || held() >= number * SIZE).await;
            assert_eq!(world.gate.status().readers_cut, 0, "there is room");
        }
    }
    until("somebody to be cut off", || world.gate.status().readers_cut > 0).await;
    until("what it held to be free", || held() == 0).await;
    // It has kept all its streams until now.
    drop((unread, client));
    world.settle().await;
}

/// Pages for browsers that have to wait are written for each of them, and cost no slot.
#[tokio::test]
async fn waiting_pages_that_nobody_reads_are_counted() {
    let world = World::with(|settings| {
        settings.backends[0].admission.slots = Slots::Fixed(1);
        settings.web.waiting.after = Duration::ZERO;
    })
    .await;
    let mut busy = world.connect().await;
    busy.write_all(b"GET /slow?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    let mut client = world.http2_with_window(1).await;
    let (mut unread, mut before) = (Vec::new(), 0);
    for _ in 0..4 {
        let ask = http::Request::get(format!("http://{}/", world.at)).header("accept", "text/html").body(()).unwrap();
        client = client.ready().await.unwrap();
        let page = client.send_request(ask, true).unwrap().0.await.unwrap();
        assert_eq!(page.status(), 503);
        unread.push(page);
        let held = world.gate.status().buffered_bytes;
        assert!(held > before + 500, "{before}, then {held}");
        before = held;
    }
    drop((unread, client));
    until("nothing to be kept", || world.gate.status().buffered_bytes == 0).await;
}
