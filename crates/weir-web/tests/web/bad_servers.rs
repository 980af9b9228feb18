//! Servers whose answers are not what they should be.

use crate::harness::{PATIENCE, World, body_of, get, saying, status_of};
use http_body_util::BodyExt;
use tokio::io::AsyncReadExt;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request that goes through hyper both ways, since its body streams.
const LARGE: usize = 200_000;

async fn world(octets: &'static str) -> World {
    let server = saying(octets).await;
    World::with(|settings| {
        settings.backends[0].servers = vec![server];
        settings.backends[0].health_every = std::time::Duration::ZERO;
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
    for (control, offered) in [("public, max-age=60", false), ("s-maxage=60", false), ("private", true)] {
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: 2\r\n\r\nok");
        let world = world(answer.leak()).await;
        let mut stream = world.connect().await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, ASK.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"ok") {
            assert!(tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap() > 0);
        }
        assert_eq!(String::from_utf8_lossy(&said).contains("set-cookie"), offered, "{control}");
        let response = world.http2().await.send_request(get(world.at, "/")).await.unwrap();
        assert_eq!(response.headers().contains_key("set-cookie"), offered, "{control}");
    }
}
