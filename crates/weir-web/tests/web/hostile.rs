//! Clients that mean harm: the right status, no panic, and every slot comes back.

use crate::harness::{PATIENCE, World, get, get1, status_of};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_web::proxy::Limits;

const PLAIN: &str = "GET /slow?ms=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";

#[tokio::test]
async fn transfer_codings_besides_chunked_are_not_implemented() {
    let world = World::new().await;
    for codings in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"] {
        let said = world.say(format!("{POST}Transfer-Encoding: {codings}\r\n\r\n3\r\nabc\r\n0\r\n\r\n")).await;
        assert_eq!(status_of(&said), 501, "{codings}: {said}");
    }
    assert_eq!(world.seen.requests.load(std::sync::atomic::Ordering::Relaxed), 0, "something got through");
    let said = world.say(format!("{POST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")).await;
    assert_eq!(status_of(&said), 200, "{said}");
}

#[tokio::test]
async fn requests_that_mean_two_things_are_refused() {
    let world = World::new().await;
    let cases: &[(&str, String)] = &[
        ("length, then chunks", format!("{POST}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG")),
        ("chunks, then length", format!("{POST}Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG")),
        ("two lengths", format!("{POST}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        ("a list of lengths", format!("{POST}Content-Length: 1, 2\r\n\r\nab")),
        ("a signed length", format!("{POST}Content-Length: +1\r\n\r\na")),
        ("a negative length", format!("{POST}Content-Length: -1\r\n\r\n")),
        ("a hexadecimal length", format!("{POST}Content-Length: 0x1\r\n\r\na")),
        ("a length beyond numbers", format!("{POST}Content-Length: 99999999999999999999999\r\n\r\n")),
        ("an encoding that is not chunked", format!("{POST}Transfer-Encoding: gzip\r\n\r\n")),
        ("chunked is not last", format!("{POST}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n")),
        ("chunked is misspelt", format!("{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n")),
        ("a space before the colon", format!("{POST}Content-Length : 1\r\n\r\na")),
        ("a tab in the name", format!("{POST}Transfer\t-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("a folded header", format!("{POST}X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n")),
        ("a folded first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned()),
        ("a nul in a value", format!("{POST}X-A: b\0c\r\n\r\n")),
        ("a bare CR in a value", format!("{POST}X-A: b\rc\r\n\r\n")),
        ("a nul in a name", format!("{POST}X\0A: b\r\n\r\n")),
        ("a header without a name", format!("{POST}: b\r\n\r\n")),
        ("a header without a colon", format!("{POST}nonsense\r\n\r\n")),
        ("chunks in HTTP/1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
        ("no host", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned()),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned()),
        ("a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned()),
        ("a host with a user", "GET / HTTP/1.1\r\nHost: x@a\r\n\r\n".to_owned()),
        ("two hosts by target", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("no version", "GET /\r\n\r\n".to_owned()),
        ("a strange version", "GET / HTTP/3.7\r\nHost: a\r\n\r\n".to_owned()),
        ("a space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("not HTTP at all", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned()),
        ("chunk size that is no number", format!("{POST}Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n")),
        ("a signed chunk size", format!("{POST}Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n")),
        ("an empty chunk size", format!("{POST}Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n")),
        (
            "a chunk size beyond numbers",
            format!("{POST}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n0\r\n\r\n"),
        ),
        ("a chunk longer than it says", format!("{POST}Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n")),
        ("a chunk size ended by LF", format!("{POST}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n")),
    ];
    let mut wrong = Vec::new();
    for (name, octets) in cases {
        let said = world.say(octets).await;
        let answers = said.matches("HTTP/1.1 ").count();
        if status_of(&said) != 400 || answers != 1 {
            wrong.push(format!("{name}: {:?}", said.lines().next()));
        }
    }
    let passed = || world.seen.requests.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(passed(), 0, "something got through");
    // Behind plain requests they fare no better.
    for (name, octets) in cases {
        let said = world.say(format!("{PLAIN}{PLAIN}{octets}")).await;
        let statuses: Vec<u16> = said.match_indices("HTTP/1.1 ").map(|(at, _)| status_of(&said[at..])).collect();
        if statuses != [200, 200, 400] {
            wrong.push(format!("{name} behind others: {statuses:?}"));
        }
    }
    assert!(wrong.is_empty(), "not refused:\n{}", wrong.join("\n"));
    assert_eq!(passed(), 2 * cases.len() as u64, "something got through");
    world.settle().await;
}

/// Before a request with both lengths comes one whose own length is in two pieces: behind many blanks, or many zeros. Whoever loses its place there takes
/// the body for a head, and the last request for the body of that.
#[tokio::test]
async fn a_length_that_comes_in_two_pieces_hides_nothing() {
    let world = World::new().await;
    let (blanks, zeros) = (" ".repeat(60), "0".repeat(80));
    let hidden = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG";
    let lure = |behind: usize| format!("GET / HTTP/1.1\r\nContent-Length: {behind}\r\n\r\n");
    let (body, chunk) = (lure(hidden.len()), format!("\r\n{}", lure(hidden.len() + 7)));
    let (size, chunk_size) = (body.len(), chunk.len());
    // hyper has the connection after the first request.
    let head = "GET /echo HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\n";
    for (first, second, answers) in [
        (format!("{head}Content-Length:{blanks}"), format!("{size}\r\n\r\n{body}{hidden}"), &[200, 200, 400][..]),
        (format!("{head}Content-Length: {zeros}"), format!("{size}\r\n\r\n{body}{hidden}"), &[200, 400]),
        (
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{zeros}"),
            format!("{chunk_size:x}\r\n{chunk}\r\n0\r\n\r\n{hidden}"),
            &[200, 200, 400],
        ),
    ] {
        let mut stream = world.connect().await;
        stream.set_nodelay(true).unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        // So that the gate reads the first piece by itself.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream.write_all(second.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
        let _ = closed.expect("the gate answers and closes");
        let said = String::from_utf8_lossy(&said);
        let statuses: Vec<u16> = said.match_indices("HTTP/1.1 ").map(|(at, _)| status_of(&said[at..])).collect();
        assert_eq!(statuses, answers, "{first}: {said}");
    }
    world.settle().await;
}

#[tokio::test]
async fn methods_for_other_proxies_are_refused() {
    let world = World::new().await;
    assert_eq!(world.status("TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, 405);
    assert_eq!(world.status("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n").await, 405);
}

#[tokio::test]
async fn endless_heads_are_cut_off() {
    let world = World::new().await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(world.status(&long).await, 431);
    let many: String = (0..500).map(|number| format!("X-{number}: y\r\n")).collect();
    assert_eq!(world.status(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")).await, 431);
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(64 << 10));
    assert!(matches!(world.status(&target).await, 414 | 431));
    // Over HTTP/2 the stream is reset or refused; the connection of an honest client goes on.
    let mut two = world.http2().await;
    let request =
        Request::get(format!("http://{}/", world.at)).header("x", "x".repeat(64 << 10)).body(Full::default()).unwrap();
    let refused = two.send_request(request).await.map_or(431, |response| response.status().as_u16());
    assert_eq!(refused, 431);
    assert_eq!(world.http2().await.send_request(get(world.at, "/")).await.unwrap().status(), 200);
    world.settle().await;
}

pub(crate) fn impatient() -> Limits {
    let short = Duration::from_millis(300);
    Limits {
        header: short,
        idle: short,
        body_piece: short,
        body_grace: short,
        body_rate: 10_000_000,
        send: short,
        body_bytes: 1 << 20,
        ..Limits::default()
    }
}

#[tokio::test]
async fn slow_and_silent_clients_are_cut_off_and_hold_no_slot() {
    let world = World::with(|settings| settings.limits = impatient()).await;
    // Nothing; half a head, dribbled; a finished request and then silence.
    assert_eq!(world.say("").await, "");
    let mut dribble = world.connect().await;
    let mut sent = 0;
    let dribbling = async {
        while dribble.write_all(b"X").await.is_ok() && sent < 200 {
            sent += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, dribbling).await.unwrap();
    assert!(sent < 100, "a head may be dribbled for {sent} steps of 50 ms");
    assert_eq!(status_of(&world.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await), 200);

    // A body that never comes holds no slot, and its client is told.
    let mut slow = world.connect().await;
    slow.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, slow.read_to_string(&mut said)).await.unwrap().unwrap();
    assert_eq!(status_of(&said), 408, "{said}");
    assert_eq!(world.gate.admissions()[0].view().counters.asked, 1);

    // A large one that stalls in the middle gives its slot back.
    let mut stalled = world.connect().await;
    stalled.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n").await.unwrap();
    stalled.write_all(&[b'x'; 100_000]).await.unwrap();
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, stalled.read_to_string(&mut said)).await.unwrap().unwrap();
    assert_eq!(status_of(&said), 408, "{said}");
    world.settle().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off() {
    let world = World::with(|settings| settings.limits = impatient()).await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET /big?kib=65536 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.counters.asked == 1).await;
    world.settle().await;
    // Its server is done long before; the client goes because it takes nothing.
    let gone = async {
        while world.gate.status().connections > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it is cut off");
    let mut rest = Vec::new();
    let outcome = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    assert!(outcome.is_err() || rest.len() < 64 << 20, "all {} octets came", rest.len());
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let world = World::with(|settings| settings.limits = impatient()).await;
    assert_eq!(world.status(format!("{POST}Content-Length: 1048577\r\n\r\n")).await, 413);
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let said = world.say(format!("{POST}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(20))).await;
    assert!(matches!(status_of(&said), 413 | 0), "{said}");
    let mut two = world.http2().await;
    let request =
        Request::post(format!("http://{}/echo", world.at)).body(Full::new(Bytes::from(vec![0; 2 << 20]))).unwrap();
    assert_eq!(two.send_request(request).await.unwrap().status(), 413);
    world.settle().await;
}

#[tokio::test]
async fn half_closed_connections_end() {
    let world = World::new().await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET /slow?ms=200 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap();
    // Who has closed is gone, whatever it would still hear.
    assert_eq!(String::from_utf8_lossy(&said), "");
    world.settle().await;
    let asked = world.gate.admissions()[0].view().counters.asked;
    let mut stream = world.connect().await;
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap();
    assert!(matches!(status_of(&String::from_utf8_lossy(&said)), 400 | 0));
    assert_eq!(world.gate.admissions()[0].view().counters.asked, asked, "half a body asks for nothing");
    world.settle().await;
}

#[tokio::test]
async fn connections_are_bounded_per_address_and_in_all() {
    let world = World::with(|settings| {
        settings.limits.connections_per_address = 2;
        settings.limits.connections = 3;
    })
    .await;
    let _two = (world.http1().await, world.http1().await);
    let ask = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // Both must have been accepted before the third comes.
    for mut sender in [_two.0, _two.1] {
        assert_eq!(sender.send_request(get1("/")).await.unwrap().status(), 200);
        std::mem::forget(sender);
    }
    assert_eq!(world.say(ask).await, "");
    let mut other = world.connect_from([127, 2, 2, 2]).await;
    other.write_all(ask.as_bytes()).await.unwrap();
    let mut said = String::new();
    other.read_to_string(&mut said).await.unwrap();
    assert_eq!(status_of(&said), 200);
}

/// CVE-2023-44487: streams are opened and reset at once.
#[tokio::test]
async fn rapid_reset_ends_the_connection_and_leaks_nothing() {
    let world = World::new().await;
    let (mut client, connection) = h2::client::handshake(world.connect().await).await.unwrap();
    let driven = tokio::spawn(connection);
    let mut opened = 0;
    for _ in 0..20_000 {
        let Ok(ready) = client.clone().ready().await else { break };
        client = ready;
        let request = Request::get(format!("http://{}/slow?ms=100", world.at)).body(()).unwrap();
        let Ok((_, mut stream)) = client.send_request(request, true) else { break };
        stream.send_reset(h2::Reason::CANCEL);
        opened += 1;
        if opened % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(opened < 20_000, "the gate let all {opened} resets pass");
    let _ = tokio::time::timeout(PATIENCE, driven).await.expect("the connection ends");
    world.settle().await;
    assert_eq!(world.http1().await.send_request(get1("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn dispatch_and_close_leaks_no_slot() {
    let world = World::new().await;
    for round in 0..60 {
        let mut stream = world.connect().await;
        let ask = format!("GET /slow?ms=20 HTTP/1.1\r\nHost: a\r\nX: {round}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        if round % 2 == 0 {
            stream.set_zero_linger().unwrap();
        }
        if round % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stream);
        let mut two = world.http2().await;
        let request = get(world.at, "/slow?ms=20");
        let sent = tokio::spawn(async move { two.send_request(request).await.map(|response| response.status()) });
        if round % 3 == 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sent.abort();
    }
    world.settle().await;
    for _ in 0..8 {
        assert_eq!(world.http1().await.send_request(get1("/")).await.unwrap().status(), 200);
    }
    world.settle().await;
}

/// A cookie of the gate's own making, as its client sends it back.
async fn cookie(world: &World) -> String {
    let said = world.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let (_, rest) = said.split_once("set-cookie: ").expect("one is offered");
    rest.split(';').next().unwrap().to_owned()
}

/// The same with another letter at the place that `from` counts from the end.
fn altered(cookie: &str, from: usize) -> String {
    let mut text: Vec<char> = cookie.chars().collect();
    let place = text.len() - from;
    text[place] = if text[place] == 'A' { 'B' } else { 'A' };
    text.into_iter().collect()
}

#[tokio::test]
async fn forged_cookies_and_spoofed_addresses_buy_nothing() {
    let world = World::new().await;
    let real = cookie(&world).await;
    // A letter of the signature is another, or one of the id; both are as long as they should be.
    let forged = [altered(&real, 5), altered(&real, 25), "weir=x; weir=y".to_owned()];
    let ask = |path: &str, cookie: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nX-Forwarded-For: 10.0.0.1, 8.8.8.8\r\nForwarded: \
             for=10.0.0.1\r\nConnection: close\r\n\r\n"
        )
    };
    let mut streams = Vec::new();
    for lie in &forged {
        let said = world.say(ask("/echo", lie)).await;
        assert!(said.contains("set-cookie: weir=") && said.contains("x-forwarded-for: 127.0.0.1\n"), "{said}");
        assert!(!said.contains("10.0.0.1") && !said.contains("8.8.8.8"), "{said}");
        let mut stream = world.connect().await;
        stream.write_all(ask("/slow?ms=500", lie).as_bytes()).await.unwrap();
        streams.push(stream);
    }
    let mut two = world.http2().await;
    let request = Request::get(format!("http://{}/slow?ms=500", world.at)).header("cookie", &forged[0]);
    let request = request.header("x-forwarded-for", "10.0.0.1").body(Full::default()).unwrap();
    let last = tokio::spawn(async move { two.send_request(request).await.unwrap().status() });
    world.wait_for(|view| view.running == 4).await;
    let sessions = world.gate.sessions(10);
    assert_eq!(sessions.len(), 1, "all are the session of their address: {sessions:?}");
    assert_eq!((sessions[0].running, sessions[0].client), (4, [127, 0, 0, 1].into()));
    assert_eq!(last.await.unwrap(), 200);
    world.settle().await;
}

#[tokio::test]
async fn a_cookie_is_a_session_where_it_was_given_and_nothing_elsewhere() {
    let world = World::new().await;
    let real = cookie(&world).await;
    let ask = |cookie: &str| format!("GET /slow?ms=500 HTTP/1.1\r\nHost: a\r\n{cookie}Connection: close\r\n\r\n");
    let (with, without) = (ask(&format!("Cookie: {real}\r\n")), ask(""));
    let mut streams = Vec::new();
    for (from, text) in
        [([127, 0, 0, 1], &with), ([127, 0, 0, 1], &without), ([127, 2, 2, 2], &with), ([127, 2, 2, 2], &without)]
    {
        let mut stream = world.connect_from(from).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    world.wait_for(|view| view.running == 4).await;
    let sessions = world.gate.sessions(10);
    let of =
        |client: [u8; 4]| sessions.iter().filter(|session| session.client == std::net::IpAddr::from(client)).count();
    assert_eq!((of([127, 0, 0, 1]), of([127, 2, 2, 2])), (2, 1), "{sessions:?}");
    world.settle().await;
}

#[tokio::test]
async fn random_octets_do_not_hurt() {
    let world = World::with(|settings| settings.limits = impatient()).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words: [&[u8]; 12] = [
        b"GET / HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"abc",
        b"\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\x12\x04\0\0\0\0\0",
        b"\xff\xff\xff",
        b"Connection: upgrade\r\nUpgrade: x\r\n",
    ];
    for _ in 0..60 {
        let mut octets = Vec::new();
        for _ in 0..1 + state % 9 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            octets.extend_from_slice(words[(state >> 33) as usize % words.len()]);
        }
        let _ = world.say(&octets).await;
    }
    assert_eq!(world.http1().await.send_request(get1("/")).await.unwrap().status(), 200);
    world.settle().await;
}
