//! Requests and responses get through, whole and in order.

use crate::harness::{PATIENCE, World, body_of, get, get1, status_of};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_web::proxy::Listener;

#[tokio::test]
async fn a_page_comes_through_over_both_protocols() {
    let world = World::new().await;
    let mut one = world.http1().await;
    for number in 0..3 {
        let response = one.send_request(get1("/")).await.unwrap();
        assert_eq!(response.status(), 200);
        // Offered with the first answer; whoever does not take it is not offered one with each.
        if number == 0 {
            assert!(response.headers()["set-cookie"].to_str().unwrap().starts_with("weir="));
        }
        assert!(body_of(response).await.contains("web gate works"));
    }
    let mut two = world.http2().await;
    let response = two.send_request(get(world.at, "/echo?x=1")).await.unwrap();
    assert_eq!(response.status(), 200);
    let said = body_of(response).await;
    assert!(said.starts_with("GET /echo?x=1\n"), "{said}");
    for line in [
        format!("host: {}", world.at),
        "x-forwarded-for: 127.0.0.1".into(),
        "x-forwarded-proto: http".into(),
        "via: 2.0 weir".into(),
    ] {
        assert!(said.contains(&line), "{line} is missing in\n{said}");
    }
    world.settle().await;
}

#[tokio::test]
async fn bodies_of_all_sizes_get_through_both_ways() {
    let world = World::new().await;
    let mut one = world.http1().await;
    let mut two = world.http2().await;
    for size in [0_usize, 1, 1_000, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let body = Bytes::from(vec![b'y'; size]);
        let request = Request::post("/echo").header("host", "a").body(Full::new(body.clone())).unwrap();
        let said = body_of(one.send_request(request).await.unwrap()).await;
        assert_eq!(said.len() - said.find("\n\n").unwrap() - 2, size, "h1 {size}");
        let request = Request::post(format!("http://{}/echo", world.at)).body(Full::new(body)).unwrap();
        let said = body_of(two.send_request(request).await.unwrap()).await;
        assert_eq!(said.len() - said.find("\n\n").unwrap() - 2, size, "h2 {size}");
    }
    for kib in [0, 1, 64, 4_096] {
        let response = two.send_request(get(world.at, &format!("/big?kib={kib}"))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), kib << 10);
    }
    world.settle().await;
}

#[tokio::test]
async fn chunks_and_trailers_get_through() {
    let world = World::new().await;
    let said = world
        .say("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\nConnection: close\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX-End: yes\r\n\r\n")
        .await;
    assert_eq!(status_of(&said), 200);
    assert!(said.contains("trailer x-end: yes") && said.ends_with("abcde"), "{said}");

    let said = world.say("GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n").await;
    assert!(said.contains("x-sum: 42"), "{said}");
    let mut two = world.http2().await;
    let request =
        Request::get(format!("http://{}/trailers", world.at)).header("te", "trailers").body(Full::default()).unwrap();
    let answer = two.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["x-sum"], "42");
    assert_eq!(answer.to_bytes(), "first second");
    world.settle().await;
}

/// Trailers that were not announced, or that belong into a head, stay here, and the body goes on with its length like any other. Some servers would put them among
/// the fields of the head.
#[tokio::test]
async fn other_trailers_make_no_stream_of_a_body() {
    let world = World::new().await;
    for (announced, trailers) in [
        ("", "X-End: yes\r\n"),
        ("Trailer: x-other\r\n", "X-End: yes\r\n"),
        (
            "Trailer: X-Forwarded-For, Content-Length, Cookie\r\n",
            "X-Forwarded-For: 10.9.9.9\r\nContent-Length: 99\r\nCookie: a=b\r\n",
        ),
    ] {
        let said = world
            .say(format!(
                "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{announced}Connection: close\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n"
            ))
            .await;
        assert!(status_of(&said) == 200 && said.ends_with("abc"), "{said}");
        let echoed = said.split_once("\r\n\r\n").unwrap().1;
        assert!(echoed.contains("content-length: 3") && !echoed.contains("transfer-encoding"), "{said}");
        assert!(
            !echoed.contains("trailer x-") && !echoed.contains("trailer c") && !said.contains("10.9.9.9"),
            "{said}"
        );
    }
    world.settle().await;
}

#[tokio::test]
async fn expect_is_answered_before_the_body_comes() {
    let world = World::new().await;
    let mut stream = world.connect().await;
    stream
        .write_all(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        )
        .await
        .unwrap();
    let mut said = [0; 25];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(status_of(&rest) == 200 && rest.ends_with("\nbody") && !rest.contains("expect:"), "{rest}");
}

#[tokio::test]
async fn a_websocket_is_carried_and_counts_as_a_stream() {
    let world = World::new().await;
    let mut stream = world.connect().await;
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert!(head.contains("upgrade: websocket") && head.contains("connection: upgrade"), "{head}");
    // "hi", masked with zeroes.
    stream.write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']).await.unwrap();
    let mut echo = [0; 4];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(echo, [0x81, 2, b'h', b'i']);
    world.wait_for(|view| view.streams == 1 && view.running == 0).await;
    drop(stream);
    world.settle().await;
}

#[tokio::test]
async fn events_flow_at_once_and_hold_no_slot() {
    let world = World::new().await;
    let mut two = world.http2().await;
    let mut body = two.send_request(get(world.at, "/events")).await.unwrap().into_body();
    let first = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "data: 1\n\n");
    world.wait_for(|view| view.streams == 1 && view.running == 0).await;
    drop(body);
    world.settle().await;
}

#[tokio::test]
async fn a_redirecting_listener_sends_to_https() {
    let world = World::with(|settings| settings.listeners[0].redirect = Some(8443)).await;
    let said = world.say("GET /a?b=c HTTP/1.1\r\nHost: site.example:80\r\nConnection: close\r\n\r\n").await;
    assert!(status_of(&said) == 301 && said.contains("location: https://site.example:8443/a?b=c\r\n"), "{said}");
    assert_eq!(world.status("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await, 308);
}

#[tokio::test]
async fn routes_errors_and_dead_servers_have_their_status() {
    let world = World::with(|settings| {
        settings.rules[0].host = "known.example".into();
        let to_dead = weir_web::route::Rule::all_to("dead");
        settings.rules.push(weir_web::route::Rule { host: "dead.example".into(), ..to_dead });
        let mut dead = settings.backends[0].clone();
        dead.admission.name = "dead".into();
        // A port that nothing listens on.
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, weir_peers::free_port()));
        dead.servers = vec![free.to_string()];
        settings.backends.push(dead);
        // The first server is dead, the second lives: nobody should notice.
        settings.backends[0].servers.insert(0, free.to_string());
        settings.backends[0].response = Duration::from_millis(300);
    })
    .await;
    let ask = |host: &str, path: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    for _ in 0..6 {
        assert_eq!(world.status(ask("known.example", "/")).await, 200);
    }
    assert_eq!(world.status(ask("unknown.example", "/")).await, 404);
    assert_eq!(world.status(ask("dead.example", "/")).await, 502);
    assert_eq!(world.status(ask("known.example", "/slow?ms=2000")).await, 504);
    world.settle().await;
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client_if_its_peer_is_listed() {
    let world = World::with(|settings| {
        let trusted = vec!["127.0.0.1/32".parse().unwrap()];
        let identity = weir_web::identity::Settings { trusted, ..Default::default() };
        settings.identities = crate::harness::identities(&identity);
        settings.listeners = vec![Listener { proxy_protocol: true, ..settings.listeners[0].clone() }];
    })
    .await;
    let ask = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let said = world.say(format!("PROXY TCP4 198.51.100.9 192.0.2.1 4000 80\r\n{ask}")).await;
    assert!(said.contains("x-forwarded-for: 198.51.100.9"), "{said}");
    assert_eq!(world.say(ask).await, "", "a listed peer must begin with the header");
    assert_eq!(world.say("PROXY TCP4 nonsense\r\n").await, "");
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_refuses_new_connections() {
    let world = World::new().await;
    let mut one = world.http1().await;
    let mut two = world.http2().await;
    let at = world.at;
    let first = tokio::spawn(async move { one.send_request(get1("/slow?ms=400")).await.unwrap().status() });
    let second = tokio::spawn(async move { two.send_request(get(at, "/slow?ms=400")).await.unwrap().status() });
    world.wait_for(|view| view.running == 2).await;
    let gate = world.gate;
    let stopped = tokio::task::spawn_blocking(move || gate.shutdown());
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (http::StatusCode::OK, http::StatusCode::OK));
    tokio::time::timeout(PATIENCE, stopped).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(at).await.is_err());
}

#[tokio::test]
async fn an_answer_says_how_long_it_waited() {
    let world = World::with(|settings| settings.web.server_timing = true).await;
    let said = world.say("GET / HTTP/1.0\r\n\r\n").await;
    assert!(status_of(&said) == 200 && said.contains("server-timing: weir;dur=0.0"), "{said}");
}

#[tokio::test]
async fn a_request_without_a_host_is_for_the_server() {
    let mut server = String::new();
    let world = World::with(|settings| server.clone_from(&settings.backends[0].servers[0])).await;
    let said = world.say("GET /echo HTTP/1.0\r\n\r\n").await;
    assert!(status_of(&said) == 200 && said.contains(&format!("\nhost: {server}\n")), "{said}");
    assert!(!said.contains("x-forwarded-host"), "{said}");
}

#[tokio::test]
async fn an_upgrade_to_anything_else_is_a_plain_request() {
    let world = World::new().await;
    let said = world
        .say("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n")
        .await;
    assert!(status_of(&said) == 200 && !said.contains("h2c") && !said.contains("http2-settings"), "{said}");
}

#[tokio::test]
async fn a_server_is_busy_until_its_answer_has_ended() {
    let world = World::new().await;
    let in_flight = || world.gate.status().backends[0].servers[0].in_flight;
    let mut two = world.http2().await;
    let mut events = two.send_request(get(world.at, "/events")).await.unwrap().into_body();
    events.frame().await.unwrap().unwrap();
    assert_eq!(in_flight(), 1);
    drop(events);
    world.settle().await;
    let freed = async {
        while in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("it is free again");
}
