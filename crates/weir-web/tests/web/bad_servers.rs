//! Servers whose answers are not what they should be.

use crate::harness::{PATIENCE, World, body_of, get, get1, saying, status_of};
use http_body_util::BodyExt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir_web::admission::Slots;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request that goes through hyper both ways, since its body streams.
const LARGE: usize = 200_000;

async fn world(octets: &'static str) -> World {
    let server = saying(octets).await;
    World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].health_every = Duration::ZERO;
        settings.backends[0].failures = 1_000;
    })
    .await
}

async fn upload(world: &World) -> String {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {LARGE}\r\n\r\n");
    world.say([head.as_bytes(), &[b'x'; LARGE]].concat()).await
}

#[tokio::test]
async fn what_is_no_answer_is_a_502() {
    for (name, octets) in [
        (
            "a broken chunk beside the head",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "a broken chunk behind a good one, both beside the head",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\nhello\r\n0\r\n\r\n",
        ),
        ("an upgrade nobody asked for", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        ("a coding in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("a coding without chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello"),
    ] {
        let world = world(octets).await;
        let said = world.say(format!("{ASK}GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(said.matches("HTTP/1.1 502 Bad Gateway\r\n").count(), 2, "{name}: {said}");
        assert_eq!(said.matches("content-type: text/html").count(), 2, "{name} has a page: {said}");
        let response = world.http2().await.send_request(get(world.at, "/")).await.unwrap();
        assert_eq!(response.status(), 502, "{name}");
        assert!(!body_of(response).await.contains("hello"));
        let responses = world.gate.status().responses;
        assert_eq!((responses[0], responses[1], responses[4]), (0, 0, 3), "{name} is counted as what was said");
        world.settle().await;
    }
}

#[tokio::test]
async fn neither_is_it_one_to_an_upload() {
    let both =
        world("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
            .await;
    let said = upload(&both).await;
    assert!(status_of(&said) == 502 && !said.contains("hello"), "{said}");
    for codings in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        let said = upload(&world(answer.leak()).await).await;
        assert!(status_of(&said) == 502 && !said.contains("hello"), "{said}");
    }
    let broken = world("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n5\r\nhello\r\n0\r\n\r\n").await;
    let said = upload(&broken).await;
    assert!(!said.contains("hello") && !said.ends_with("0\r\n\r\n"), "{said}");
    let sound = world("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").await;
    let said = upload(&sound).await;
    assert!(status_of(&said) == 200 && said.contains("hello") && said.ends_with("0\r\n\r\n"), "{said}");
}

#[tokio::test]
async fn a_server_that_breaks_off_is_not_held_against_the_client() {
    let server = saying("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc").await;
    let world = World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].failures = 1_000;
        settings.limits.resets = 2;
    })
    .await;
    let mut two = world.http2().await;
    for round in 0..8 {
        two.ready().await.unwrap_or_else(|error| panic!("the connection has ended after {round}: {error}"));
        // The reset of a stream may overtake the head of its answer.
        if let Ok(response) = two.send_request(get(world.at, "/")).await {
            assert!(response.into_body().collect().await.is_err());
        }
    }
    two.ready().await.expect("the connection goes on");
    assert_eq!(world.gate.status().given_up, 0);
    world.settle().await;
}

#[tokio::test]
async fn what_caches_share_has_no_cookie_in_it() {
    for (head, offered) in [
        ("200 OK\r\nCache-Control: public, max-age=60", false),
        ("200 OK\r\nCache-Control: s-maxage=60", false),
        ("200 OK\r\nCache-Control: private", true),
        ("200 OK\r\nCache-Control: private\r\nCDN-Cache-Control: max-age=60", false),
        ("200 OK\r\nCache-Control: private\r\nCDN-Cache-Control: max-age=0", true),
        ("200 OK\r\nCache-Control: no-store\r\nSurrogate-Control: max-age=60", false),
        ("200 OK\r\nX-Accel-Expires: 60", false),
        // It renews what a cache has kept, and its fields are put there.
        ("304 Not Modified\r\nETag: \"1\"", false),
        ("304 Not Modified\r\nCache-Control: private", false),
    ] {
        let body = if head.starts_with("304") { "" } else { "ok" };
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let world = world(answer.leak()).await;
        let mut stream = world.connect().await;
        stream.write_all(ASK.as_bytes()).await.unwrap();
        let (mut said, end) = (Vec::new(), format!("\r\n\r\n{body}"));
        while !said.ends_with(end.as_bytes()) {
            assert!(tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap() > 0);
        }
        assert_eq!(String::from_utf8_lossy(&said).contains("set-cookie"), offered, "{head}");
        let response = world.http2().await.send_request(get(world.at, "/")).await.unwrap();
        assert_eq!(response.headers().contains_key("set-cookie"), offered, "{head}");
    }
}

/// A server that hangs: it is connected to, and does not answer before it is woken.
#[derive(Clone, Default)]
struct Hanging {
    awake: Arc<AtomicBool>,
    connections: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
}

impl Hanging {
    async fn start() -> (Hanging, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (hanging, address) = (Hanging::default(), listener.local_addr().unwrap().to_string());
        let server = hanging.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    server.connections.fetch_add(1, Ordering::Relaxed);
                    while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {
                        server.requests.fetch_add(1, Ordering::Relaxed);
                        if server.awake.load(Ordering::Relaxed) {
                            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nawake").await;
                        }
                    }
                });
            }
        });
        (hanging, address)
    }
}

/// A gate before a server that hangs and a good one; the first is checked all the time, but only connected to.
async fn beside_a_good_one(hanging: String, rest: Duration, response: Duration) -> World {
    World::with(|settings| {
        let backend = &mut settings.backends[0];
        backend.servers.insert(0, hanging);
        (backend.health_every, backend.failures) = (Duration::from_millis(20), 2);
        (backend.rest, backend.response) = (rest, response);
    })
    .await
}

async fn until(what: &str, met: impl AsyncFn() -> bool) {
    let waiting = async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never came: {what}");
}

impl World {
    fn first_is_up(&self) -> bool {
        self.gate.status().backends[0].servers[0].up
    }

    async fn ask(&self) -> u16 {
        self.http1().await.send_request(get1("/")).await.unwrap().status().as_u16()
    }

    /// The statuses of so many requests.
    async fn ask_at_once(&self, count: usize) -> Vec<u16> {
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..count {
            let mut sender = self.http1().await;
            asking.spawn(async move { sender.send_request(get1("/")).await.unwrap().status().as_u16() });
        }
        asking.join_all().await
    }
}

#[tokio::test]
async fn a_server_that_hangs_leaves_rotation_although_it_can_be_connected_to() {
    let (hanging, address) = Hanging::start().await;
    let world = beside_a_good_one(address, Duration::from_secs(3_600), Duration::from_millis(300)).await;
    until("the hanging server to be found out", async || {
        assert!(matches!(world.ask().await, 200 | 504));
        !world.first_is_up()
    })
    .await;
    let checked = hanging.connections.load(Ordering::Relaxed);
    until("some more checks", async || hanging.connections.load(Ordering::Relaxed) > checked + 3).await;
    assert!(!world.first_is_up(), "that it can be connected to is no answer");
    for _ in 0..20 {
        assert_eq!(world.ask().await, 200);
    }
    world.settle().await;
}

#[tokio::test]
async fn a_server_that_hung_is_tried_by_one_request_at_a_time() {
    let (hanging, address) = Hanging::start().await;
    let world = beside_a_good_one(address, Duration::from_millis(100), Duration::from_secs(2)).await;
    until("the hanging server to be found out", async || {
        world.ask_at_once(4).await;
        !world.first_is_up()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = hanging.requests.load(Ordering::Relaxed);
    let failed = world.ask_at_once(30).await.iter().filter(|status| **status != 200).count();
    let tried = hanging.requests.load(Ordering::Relaxed) - before;
    assert!(failed <= 1 && tried == 1, "{failed} of 30 had no answer, {tried} were sent there");
    hanging.awake.store(true, Ordering::Relaxed);
    until("it to be back", async || {
        assert!(matches!(world.ask().await, 200 | 504));
        world.first_is_up()
    })
    .await;
    world.settle().await;
}

/// People leave long before a gate gives up.
#[tokio::test]
async fn a_server_that_hangs_is_found_out_by_clients_that_do_not_wait_for_it() {
    let (hanging, address) = Hanging::start().await;
    let world = beside_a_good_one(address, Duration::from_secs(3_600), Duration::from_millis(500)).await;
    let asked = || hanging.requests.load(Ordering::Relaxed) + world.seen.requests.load(Ordering::Relaxed) as u32;
    until("the hanging server to be found out", async || {
        let before = asked();
        let mut stream = world.connect().await;
        stream.write_all(ASK.as_bytes()).await.unwrap();
        until("one of the servers to be asked", async || asked() > before).await;
        drop(stream);
        !world.first_is_up()
    })
    .await;
    world.settle().await;
}

/// How long an upload takes is up to its client.
#[tokio::test]
async fn an_upload_that_stalls_does_not_keep_a_server_out_of_rotation() {
    let (hanging, address) = Hanging::start().await;
    let world = World::with(|settings| {
        let backend = &mut settings.backends[0];
        backend.servers.insert(0, address);
        (backend.health_every, backend.failures, backend.unbuffered) = (Duration::ZERO, 2, true);
        (backend.rest, backend.response) = (Duration::from_millis(100), Duration::from_millis(500));
        backend.admission.slots = Slots::Fixed(10_000);
    })
    .await;
    until("the hanging server to be found out", async || {
        world.ask_at_once(4).await;
        !world.first_is_up()
    })
    .await;
    let (before, mut uploads) = (hanging.requests.load(Ordering::Relaxed), Vec::new());
    let uploading = async {
        while hanging.requests.load(Ordering::Relaxed) == before {
            let mut upload = world.connect().await;
            upload.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").await.unwrap();
            uploads.push(upload);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, uploading).await.is_ok(), "no upload tries it");
    hanging.awake.store(true, Ordering::Relaxed);
    until("it to be back", async || {
        assert!(matches!(world.ask().await, 200 | 504));
        world.first_is_up()
    })
    .await;
    drop(uploads);
    world.settle().await;
}
