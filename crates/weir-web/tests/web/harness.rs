//! A gate in front of the built-in backend, and clients that speak octets, HTTP/1.1 and HTTP/2.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use weir_web::admission::{self, Slots};
use weir_web::builtin::{self, BackendCounters};
use weir_web::identity::{self, Identities, Secret};
use weir_web::proxy::{Backend, Gate, Limits, Listener, Settings, WebSettings};
use weir_web::route::Rule;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A gate and its backend.
pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) at: SocketAddr,
    pub(crate) seen: Arc<BackendCounters>,
}

pub(crate) fn identities(settings: &identity::Settings) -> Identities {
    Identities::new(settings, &Secret::new(b"a secret of the tests").unwrap()).unwrap()
}

pub(crate) fn settings(backend: SocketAddr) -> Settings {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let admission = admission::Settings { slots: Slots::Fixed(4), ..admission::Settings::default() };
    Settings {
        listeners: vec![Listener::plain(here)],
        web: WebSettings { threads: 2, ..WebSettings::default() },
        tls: None,
        named: None,
        identities: identities(&identity::Settings::default()),
        limits: Limits::default(),
        backends: vec![Backend { admission, servers: vec![backend.to_string()], ..Backend::default() }],
        rules: vec![Rule::all_to("default")],
        tally: None,
        buffers: Some(std::env::temp_dir()),
        door: Default::default(),
    }
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> World {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut settings = settings(listener.local_addr().unwrap());
        let seen = Arc::new(BackendCounters::default());
        tokio::spawn(builtin::serve(listener, Arc::clone(&seen)));
        change(&mut settings);
        let gate = Gate::start(settings).unwrap();
        World { at: gate.addresses()[0], gate, seen }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// Connects from an address of its own.
    pub(crate) async fn connect_from(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(self.at).await.unwrap()
    }

    /// Sends octets and reads until the gate closes.
    pub(crate) async fn say(&self, octets: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // The gate may close before it has read everything.
        let _ = stream.write_all(octets.as_ref()).await;
        let mut said = Vec::new();
        let _ =
            tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the gate answers and closes");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The status of the first answer to these octets.
    pub(crate) async fn status(&self, octets: impl AsRef<[u8]>) -> u16 {
        status_of(&self.say(octets).await)
    }

    pub(crate) async fn http2(&self) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.connect().await);
        let (sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new()).handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A client that gives each of its streams a window of this many octets, and opens it no further.
    pub(crate) async fn http2_with_window(&self, octets: u32) -> h2::client::SendRequest<Bytes> {
        let mut builder = h2::client::Builder::new();
        let (client, connection) = builder.initial_window_size(octets).handshake(self.connect().await).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub(crate) async fn http1(&self) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Waits until nothing waits, runs or streams at the gate, and the backend is idle.
    pub(crate) async fn settle(&self) {
        let quiet = async {
            loop {
                let view = self.gate.admissions()[0].view();
                let free = view.waiting == 0 && view.running == 0 && view.streams == 0 && view.waiting_bytes == 0;
                if free && self.seen.working.load(Ordering::Relaxed) == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, quiet).await;
        assert!(settled.is_ok(), "slots leak: {:?}", self.gate.admissions()[0].view());
    }

    pub(crate) async fn wait_for(&self, what: impl Fn(&admission::View) -> bool) {
        let met = async {
            while !what(&self.gate.admissions()[0].view()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let met = tokio::time::timeout(PATIENCE, met).await;
        assert!(met.is_ok(), "never came: {:?}", self.gate.admissions()[0].view());
    }
}

pub(crate) async fn until(what: &str, met: impl Fn() -> bool) {
    let waiting = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never came: {what}");
}

/// A server that answers every connection's first request with these octets and closes; its address.
pub(crate) async fn saying(octets: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                    if !stream.read_buf(&mut asked).await.is_ok_and(|octets| octets > 0) {
                        return;
                    }
                }
                let _ = stream.write_all(octets.as_bytes()).await;
                let _ = stream.shutdown().await;
                // What still comes is taken, or the answer would be lost with it.
                while stream.read(&mut [0; 4_096]).await.is_ok_and(|octets| octets > 0) {}
            });
        }
    });
    address
}

pub(crate) fn status_of(answer: &str) -> u16 {
    let status = answer.strip_prefix("HTTP/1.1 ").or_else(|| answer.strip_prefix("HTTP/1.0 "));
    status.and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok()).unwrap_or(0)
}

pub(crate) fn get(at: SocketAddr, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{at}{path}")).body(Full::default()).unwrap()
}

/// The same for HTTP/1, whose requests name a path.
pub(crate) fn get1(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "test.example").body(Full::default()).unwrap()
}

pub(crate) async fn body_of(response: Response<hyper::body::Incoming>) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned()
}
