//! Nobody is locked out: connections on which nothing happens make room, and what is odd but harmless is served.

use crate::harness::{PATIENCE, World, status_of, until};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An answer to one request on a connection that stays open.
async fn ask_and_stay(stream: &mut TcpStream) {
    stream.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap();
        assert!(read > 0, "closed: {}", String::from_utf8_lossy(&said));
    }
}

#[tokio::test]
async fn idle_connections_make_room_for_who_is_new() {
    let world = World::with(|settings| {
        settings.limits.connections = 61;
        // However slow the machine is, nobody goes by itself.
        settings.limits.header = Duration::from_secs(600);
    })
    .await;
    let mut idle = Vec::new();
    // Two of each of thirty subnets: some have asked for a page and stay, some have said nothing, some have begun a head.
    for number in 0..60_u8 {
        let mut stream = world.connect_from([127, 2, number / 2, 1]).await;
        match number % 3 {
            0 => ask_and_stay(&mut stream).await,
            1 => stream.write_all(b"GET / HT").await.unwrap(),
            _ => {}
        }
        idle.push(stream);
        until("it to be counted", || world.gate.status().connections_accepted == u64::from(number) + 1).await;
    }
    assert_eq!(world.gate.status().connections, 60);
    let mut visitors = Vec::new();
    for number in 0..30 {
        let mut stream = world.connect_from([127, 1, number, 1]).await;
        ask_and_stay(&mut stream).await;
        visitors.push(stream);
    }
    let status = world.gate.status();
    assert!(status.connections_refused == 0 && status.connections_pushed_out == 29, "{status:?}");
    drop((idle, visitors));
}

#[tokio::test]
async fn a_connection_with_a_request_under_way_stays() {
    let world = World::with(|settings| settings.limits.connections = 2).await;
    let mut busy = Vec::new();
    for number in 1..3 {
        let mut stream = world.connect_from([127, 2, number, 1]).await;
        stream.write_all(b"GET /slow?ms=1500 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        busy.push(stream);
    }
    world.wait_for(|view| view.running == 2).await;
    let mut late = world.connect_from([127, 1, 1, 1]).await;
    assert!(matches!(late.read(&mut [0; 64]).await, Ok(0) | Err(_)), "there is no place");
    for mut stream in busy {
        let mut said = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap().unwrap();
        assert_eq!(status_of(&String::from_utf8_lossy(&said)), 200);
    }
}

/// Who sends slowly, or reads nothing, has a request under way for as long as it likes, and there is nothing to do for it but to wait.
#[tokio::test]
async fn slow_bodies_and_slow_readers_make_room_for_who_is_new() {
    let body = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx";
    for slow in [body, "GET /big?kib=8192 HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let world = World::with(|settings| settings.limits.connections = 40).await;
        let mut held = Vec::new();
        for number in 0..32_u8 {
            let mut stream = world.connect_from([127, 2, number % 8, 1 + number / 8]).await;
            stream.write_all(slow.as_bytes()).await.unwrap();
            held.push(stream);
        }
        until("all of them to be there", || world.gate.status().connections == 32).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut visitors = Vec::new();
        for number in 0..20 {
            let mut stream = world.connect_from([127, 1, number, 1]).await;
            ask_and_stay(&mut stream).await;
            visitors.push(stream);
        }
        let status = world.gate.status();
        assert!(status.connections_refused == 0 && status.connections_pushed_out >= 12, "{slow}: {status:?}");
        drop((held, visitors));
    }
}

/// A head of exactly the size that is allowed is served, and one octet more is not, whoever reads it.
#[tokio::test]
async fn the_size_of_heads_is_kept_exactly() {
    const MOST: usize = 32 << 10;
    let world = World::new().await;
    for more in ["", "TE: trailers\r\n"] {
        for (size, status) in [(MOST - 1, 200), (MOST, 200), (MOST + 1, 431), (MOST + 20_000, 431)] {
            let (before, after) = (format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}X: "), "\r\n\r\n");
            let head = format!("{before}{}{after}", "x".repeat(size - before.len() - after.len()));
            assert_eq!((head.len(), world.status(&head).await), (size, status), "{size} {more:?}");
        }
    }
    world.settle().await;
}

/// A server that repeats the first line of what it was asked, whatever that is; its address.
async fn repeating_server() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4_096];
            let read = stream.read(&mut asked).await.unwrap_or(0);
            let line = asked[..read].split(|octet| *octet == b'\r').next().unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", line.len());
            let _ = stream.write_all(&[head.as_bytes(), line].concat()).await;
        }
    });
    server
}

/// Reads until these words have come, and no refusal.
async fn hear(stream: &mut TcpStream, words: &str) {
    let mut said = Vec::new();
    while !said.windows(words.len()).any(|text| text == words.as_bytes()) {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&said));
        assert!(!said.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&said));
    }
}

#[tokio::test]
async fn raw_characters_in_a_query_are_passed_on_as_they_came() {
    let server = repeating_server().await;
    let world = World::with(|settings| settings.backends[0].servers = vec![server]).await;
    let mut stream = world.connect().await;
    let target = "/echo?q=<b>\"x\"</b>|{y}[z]^\\`";
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    hear(&mut stream, target).await;
}

/// hyper takes them for a fault, and serves everything that follows on a connection on which there was a form.
#[tokio::test]
async fn raw_characters_in_the_query_of_a_form_and_behind_one_reach_the_server_encoded() {
    let server = repeating_server().await;
    let world = World::with(|settings| settings.backends[0].servers = vec![server]).await;
    let mut stream = world.connect().await;
    let form =
        "POST /form?q=<b>\"x\" HTTP/1.1\r\nHost: a\r\nReferer: http://a/?<>\r\nContent-Length: 6\r\n\r\n?<\"a\">";
    let (first, rest) = form.split_at(13);
    stream.write_all(first.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    hear(&mut stream, "POST /form?q=%3Cb%3E%22x%22 HTTP/1.1").await;
    for number in 0..3 {
        let many = "<".repeat(1_000);
        let ask = format!("GET /behind?{number}={many} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        hear(&mut stream, &format!("GET /behind?{number}=%3C%3C")).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut left = vec![0; 64 << 10];
        while tokio::time::timeout(Duration::from_millis(200), stream.read(&mut left))
            .await
            .is_ok_and(|read| read.is_ok_and(|read| read > 0))
        {}
    }
}

#[tokio::test]
async fn framing_in_disguise_is_not_passed_on() {
    let world = World::new().await;
    for connection in ["close", "close, te"] {
        let said = world
            .say(format!(
                "GET /echo HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\nX_Kept: 1\r\nConnection: {connection}\r\n\r\n"
            ))
            .await;
        let lower = said.to_ascii_lowercase();
        assert!(status_of(&said) == 200 && lower.contains("x_kept: 1"), "{said}");
        assert!(!lower.contains("content_length") && !lower.contains("transfer_encoding"), "{said}");
    }
}

/// Whoever has connected is answered, also if hyper serves it and the gate stops before the request is there.
#[tokio::test]
async fn a_stop_answers_who_has_connected_and_not_asked_yet() {
    for more in ["", "Connection: close\r\n"] {
        let world = World::new().await;
        let mut stream = world.connect().await;
        until("it to be counted", || world.gate.status().connections_accepted == 1).await;
        let gate = world.gate;
        let stopped = tokio::task::spawn_blocking(move || gate.shutdown());
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n").as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("an answer");
        assert_eq!(status_of(&String::from_utf8_lossy(&said)), 200, "{more:?}");
        tokio::time::timeout(PATIENCE, stopped).await.unwrap().unwrap();
    }
}
