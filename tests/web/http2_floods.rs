//! Floods of HTTP/2 frames over TLS, from a few connections of one network, while visitors send requests. None of these frames gives the
//! server behind the gate anything to do, so the queue does not see them: the gate must close the connection.

use super::PATIENCE;
use super::floods::{Site, get, run};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0x20;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header fields in plain form, neither indexed nor compressed.
fn block(method: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "https"), (":path", "/page?20"), (":authority", "a")];
    let coded = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], coded(name), coded(value)].concat()).collect()
}

/// What is sent before the flood, and the frames of the flood by their number.
struct Flood {
    name: &'static str,
    first: Vec<u8>,
    next: fn(u32) -> Vec<u8>,
}

fn floods() -> Vec<Flood> {
    let plain = |name, next| Flood { name, first: Vec::new(), next };
    let request = |flags| frame(HEADERS, flags, 1, &block("POST"));
    vec![
        plain("WINDOW_UPDATE", |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        plain("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
        plain("SETTINGS that change every window", |number| {
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, (number % 200) as u8])
        }),
        plain("PING", |_| frame(PING, 0, 0, &[0; 8])),
        plain("PRIORITY", |number| frame(PRIORITY, 0, 2 * number + 1, &[0, 0, 0, 0, 16])),
        plain("unknown frames", |_| frame(UNKNOWN, 0, 0, b"x")),
        plain("requests that are taken back", |number| {
            let stream = 2 * number + 1;
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("GET"));
            [ask, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        plain("requests that the server has to take back", |number| {
            let stream = 2 * number + 1;
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("GET"));
            [ask, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
        }),
        plain("more streams than there may be", |number| frame(HEADERS, END_HEADERS, 2 * number + 1, &block("POST"))),
        Flood {
            name: "CONTINUATION",
            first: request(END_STREAM),
            next: |_| frame(CONTINUATION, 0, 1, b"\x00\x03x-y\x03xyz"),
        },
        Flood { name: "empty CONTINUATION", first: request(END_STREAM), next: |_| frame(CONTINUATION, 0, 1, &[]) },
        Flood { name: "empty DATA", first: request(END_HEADERS), next: |_| frame(DATA, 0, 1, &[]) },
    ]
}

/// How many frames of one kind are in one write, and how many writes there are before the flood counts as not stopped.
const FRAMES_AT_ONCE: u32 = 100;
const WRITES: u32 = 5_000;

fn connector(protocol: &str) -> TlsConnector {
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier = weir_tls::any_certificate(&provider);
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn connect(tls: &TlsConnector, from: [u8; 4], to: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    tls.connect(ServerName::try_from("localhost").unwrap(), socket.connect(to).await?).await
}

/// Sends a flood until the gate closes the connection, and reads everything that comes back.
async fn play(stream: TlsStream<TcpStream>, flood: &Flood) {
    let (mut from, mut to) = tokio::io::split(stream);
    let reading = tokio::spawn(async move {
        let mut piece = vec![0; 65_536];
        while from.read(&mut piece).await.is_ok_and(|octets| octets > 0) {}
    });
    let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[]), flood.first.clone()];
    let mut is_open = to.write_all(&opening.concat()).await.is_ok();
    let mut writes = 0;
    while is_open && !reading.is_finished() {
        let numbers = writes * FRAMES_AT_ONCE..(writes + 1) * FRAMES_AT_ONCE;
        let frames: Vec<u8> = numbers.flat_map(flood.next).collect();
        is_open = to.write_all(&frames).await.is_ok();
        writes += 1;
        assert!(writes < WRITES, "{}: {} frames were taken", flood.name, writes * FRAMES_AT_ONCE);
    }
    let closed = tokio::time::timeout(PATIENCE, reading).await;
    assert!(closed.is_ok(), "{}: the connection stays open", flood.name);
}

#[test]
fn floods_of_frames_end_their_connection_and_nobody_else_notices() {
    run(async {
        let site = Arc::new(Site::new(""));
        let secure = site.up.at[1];
        let (two, one) = (connector("h2"), connector("http/1.1"));
        for flood in floods() {
            let (flood, closed) = (Arc::new(flood), Arc::new(AtomicUsize::new(0)));
            let attack = |number: u8| {
                let (flood, closed, two) = (Arc::clone(&flood), Arc::clone(&closed), two.clone());
                tokio::spawn(async move {
                    loop {
                        if let Ok(stream) = connect(&two, [127, 2, 1, number], secure).await {
                            play(stream, &flood).await;
                            closed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            };
            let attackers: Vec<_> = (1..=3).map(attack).collect();
            for number in 0..6 {
                let from = [127, 1, number, 1];
                let said = if number % 2 == 0 {
                    site.ask(from, "/page").await
                } else {
                    let asked = async {
                        let mut stream = connect(&one, from, secure).await.unwrap();
                        stream.write_all(get("/page").as_bytes()).await.unwrap();
                        let mut said = Vec::new();
                        let _ = stream.read_to_end(&mut said).await;
                        String::from_utf8_lossy(&said).into_owned()
                    };
                    tokio::time::timeout(PATIENCE, asked).await.expect("an answer over TLS")
                };
                assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("page"), "{}: {said}", flood.name);
            }
            let begun = Instant::now();
            while closed.load(Ordering::Relaxed) < 3 {
                assert!(attackers.iter().all(|attacker| !attacker.is_finished()), "{}: see above", flood.name);
                assert!(begun.elapsed() < 2 * PATIENCE, "{}: connections stay open", flood.name);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            attackers.iter().for_each(tokio::task::JoinHandle::abort);
        }
    });
}
