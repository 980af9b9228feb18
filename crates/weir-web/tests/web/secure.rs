//! Servers that are spoken to over TLS.

use crate::harness::{PATIENCE, World, body_of, get1, status_of};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use weir_tls::Tls;
use weir_web::proxy::{GateError, Trust};

/// A server with a certificate for `app.example`, which it has made itself.
struct Secure {
    address: String,
    handshakes: Arc<AtomicU64>,
    /// The names that it was asked for.
    names: Arc<Mutex<Vec<Option<String>>>>,
    folder: tempfile::TempDir,
}

impl Secure {
    async fn start() -> Secure {
        let folder = tempfile::tempdir().unwrap();
        let tls = Tls::self_signed(folder.path(), &["app.example".to_owned()]).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let (handshakes, names) = (Arc::new(AtomicU64::new(0)), Arc::default());
        tokio::spawn(serve(listener, TlsAcceptor::from(tls.config()), (Arc::clone(&handshakes), Arc::clone(&names))));
        Secure { address, handshakes, names, folder }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// Whoever trusts its certificate, and asks for its name.
    fn trust(&self) -> Trust {
        Trust { ca_file: Some(self.certificate()), name: Some("app.example".into()), unverified: false }
    }

    async fn world(&self, trust: Trust) -> World {
        let address = self.address.clone();
        World::with(move |settings| {
            settings.backends[0].servers = vec![address];
            settings.backends[0].trust = trust;
            // Checks make handshakes too.
            settings.backends[0].health_every = Duration::ZERO;
        })
        .await
    }
}

type Noted = (Arc<AtomicU64>, Arc<Mutex<Vec<Option<String>>>>);

/// Says what it was asked, and how much came after the head; keeps connections.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, (handshakes, names): Noted) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, handshakes, names) = (acceptor.clone(), Arc::clone(&handshakes), Arc::clone(&names));
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            handshakes.fetch_add(1, Ordering::Relaxed);
            names.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
            let mut asked = Vec::new();
            loop {
                let Some(end) = asked.windows(4).position(|end| end == b"\r\n\r\n") else {
                    if !stream.read_buf(&mut asked).await.is_ok_and(|octets| octets > 0) {
                        return;
                    }
                    continue;
                };
                let head = String::from_utf8_lossy(&asked[..end]).into_owned();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.parse().unwrap());
                while asked.len() < end + 4 + length {
                    if !stream.read_buf(&mut asked).await.is_ok_and(|octets| octets > 0) {
                        return;
                    }
                }
                asked.drain(..end + 4 + length);
                let body = format!("{} octets for {}", length, head.lines().next().unwrap_or_default());
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test]
async fn requests_go_over_tls_and_connections_are_kept() {
    let server = Secure::start().await;
    let world = server.world(server.trust()).await;
    let mut one = world.http1().await;
    for number in 0..5 {
        let response = one.send_request(get1(&format!("/{number}"))).await.unwrap();
        assert_eq!(body_of(response).await, format!("0 octets for GET /{number} HTTP/1.1"));
    }
    assert_eq!(server.handshakes.load(Ordering::Relaxed), 1, "one connection");
    assert_eq!(server.names.lock().unwrap()[..], [Some("app.example".to_owned())]);
    // One that fits into the buffer, and one that streams.
    for size in [1_000, 300_000] {
        let said = world
            .say(
                [
                    format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                    &vec![b'x'; size],
                ]
                .concat(),
            )
            .await;
        assert!(said.ends_with(&format!("{size} octets for POST /up HTTP/1.1")), "{said}");
    }
    let view = world.gate.status();
    assert!(view.backends[0].servers[0].up && view.backends[0].servers[0].trouble.is_none());
    world.wait_for(|view| view.running == 0 && view.waiting == 0).await;
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_asked_nothing() {
    let (server, stranger) = (Secure::start().await, Secure::start().await);
    let wrong_name = Trust { name: Some("other.example".into()), ..server.trust() };
    let by_address = Trust { name: None, ..server.trust() };
    let wrong_authority = Trust { ca_file: Some(stranger.certificate()), ..server.trust() };
    for (trust, why) in
        [(wrong_name, "NotValidForName"), (by_address, "NotValidForName"), (wrong_authority, "BadSignature")]
    {
        let world = server.world(trust).await;
        let said = world.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert_eq!(status_of(&said), 502, "{said}");
        let trouble = world.gate.status().backends[0].servers[0].trouble.clone().unwrap();
        let why_in_words = if why == "BadSignature" { "UnknownIssuer" } else { "not valid for" };
        assert!(trouble.starts_with("TLS: ") && (trouble.contains(why) || trouble.contains(why_in_words)), "{trouble}");
        world.wait_for(|view| view.running == 0).await;
    }
    // Whoever wants it so may have it so.
    let anybody = Trust { unverified: true, ..Trust::default() };
    let world = server.world(anybody).await;
    let said = world.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(said.ends_with("0 octets for GET / HTTP/1.1"), "{said}");
}

#[tokio::test]
async fn checks_of_health_see_a_bad_certificate() {
    let server = Secure::start().await;
    let trust = Trust { name: Some("other.example".into()), ..server.trust() };
    let address = server.address.clone();
    let world = World::with(move |settings| {
        settings.backends[0].servers = vec![address];
        settings.backends[0].trust = trust;
        settings.backends[0].health_every = Duration::from_millis(50);
    })
    .await;
    let down = async {
        while world.gate.status().backends[0].servers[0].up {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, down).await.expect("it is noticed before anybody asks");
    // A new file of authorities, or another name, needs no restart.
    let mut settings = world.gate.settings();
    settings.backends[0].trust = server.trust();
    world.gate.reload(settings).unwrap();
    let up = async {
        while !world.gate.status().backends[0].servers[0].up {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, up).await.expect("it is back");
    assert_eq!(world.status("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, 200);
}

#[tokio::test]
async fn a_name_that_is_none_is_refused_at_the_start() {
    let server = Secure::start().await;
    let trust = Trust { name: Some("no name".into()), ..server.trust() };
    let mut settings = crate::harness::settings("127.0.0.1:9".parse().unwrap());
    settings.backends[0].servers = vec![server.address.clone()];
    settings.backends[0].trust = trust;
    let error = weir_web::proxy::Gate::start(settings).unwrap_err();
    assert!(matches!(error, GateError::Trust { .. }) && error.to_string().contains("\"no name\""), "{error}");
}
