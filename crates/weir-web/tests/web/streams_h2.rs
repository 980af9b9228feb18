//! WebSocket on streams of HTTP/2 (RFC 8441).

use crate::harness::{PATIENCE, World, get, saying};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request, StatusCode};

/// A connection on which streams may become other protocols.
async fn connect(world: &World) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(world.connect().await).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let told = async {
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
            client = client.clone().ready().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the gate says that it may be done");
    client
}

fn ask(client: &mut SendRequest<Bytes>, protocol: &'static str, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://a.example{path}"))
        .header("sec-websocket-version", "13")
        .header("origin", "http://a.example")
        .body(())
        .unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
    client.send_request(request, false).unwrap()
}

async fn octets(body: &mut RecvStream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let piece = tokio::time::timeout(PATIENCE, body.data()).await.unwrap().expect("more to come").unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    all
}

#[tokio::test]
async fn a_websocket_on_a_stream_is_carried_beside_requests() {
    let world = World::new().await;
    let mut client = connect(&world).await;
    let (answer, mut to) = ask(&mut client, "websocket", "/ws");
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
        assert!(!answer.headers().contains_key(name), "{name} is of HTTP/1");
    }
    let mut from = answer.into_body();
    world.wait_for(|view| view.streams == 1 && view.running == 0).await;
    // "hi", masked with zeroes, and then more than any window.
    to.send_data(Bytes::from_static(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']), false).unwrap();
    assert_eq!(octets(&mut from, 4).await, [0x81, 2, b'h', b'i']);
    let long = vec![b'x'; 300_000];
    let head = [&[0x82, 0xff][..], &(long.len() as u64).to_be_bytes(), &[0; 4]].concat();
    to.send_data(Bytes::from([head, long.clone()].concat()), false).unwrap();
    let echo = octets(&mut from, 10 + long.len()).await;
    assert_eq!((echo[..2].to_vec(), echo[10..].to_vec()), (vec![0x82, 127], long));
    // Other streams of the connection go on.
    let (other, _) = client.send_request(get(world.at, "/echo").map(drop), true).unwrap();
    assert_eq!(other.await.unwrap().status(), 200);
    to.send_data(Bytes::from_static(&[0x88, 0x80, 0, 0, 0, 0]), true).unwrap();
    assert_eq!(octets(&mut from, 2).await, [0x88, 0]);
    world.settle().await;
}

#[tokio::test]
async fn a_websocket_that_is_reset_leaves_nothing_behind() {
    let world = World::new().await;
    let mut client = connect(&world).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let (answer, to) = ask(&mut client, "websocket", "/ws");
        open.push((answer.await.unwrap().into_body(), to));
    }
    world.wait_for(|view| view.streams == 5).await;
    for (_, to) in &mut open {
        to.send_reset(h2::Reason::CANCEL);
    }
    world.settle().await;
}

#[tokio::test]
async fn what_is_no_websocket_is_no_tunnel() {
    let world = World::new().await;
    let mut client = connect(&world).await;
    // A protocol that is not passed on, a page that does not exist, and one that knows nothing of it.
    for (protocol, path, status) in
        [("connect-udp", "/ws", 501), ("websocket", "/nowhere", 404), ("websocket", "/echo", 502)]
    {
        let (answer, _to) = ask(&mut client, protocol, path);
        let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert_eq!(answer.status().as_u16(), status, "{protocol} {path}");
    }
    let plain = Request::builder().method(Method::CONNECT).uri("a.example:80").body(()).unwrap();
    let (answer, _to) = client.send_request(plain, false).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED, "we are no proxy to anywhere");
    world.settle().await;
}

#[tokio::test]
async fn the_server_decides() {
    let server = saying("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
    let world = World::with(|settings| settings.backends[0].servers = vec![server]).await;
    let mut client = connect(&world).await;
    let (answer, _to) = ask(&mut client, "websocket", "/ws");
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let mut body = answer.into_body();
    assert_eq!(octets(&mut body, 2).await, b"no");
}
