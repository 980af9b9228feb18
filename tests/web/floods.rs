//! The web gate before a real gunicorn of four workers, against the floods that sites have. Each of them left polite visitors without an answer
//! before the gate knew better.

use super::{PATIENCE, Up};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use weir_peers::Gunicorn;

/// Pages of 20 ms, large files, uploads, and pages that take as long as one asks for.
const APP: &str = r#"
import time
def app(environ, start):
    path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
    if path == "/big":
        start("200 OK", [("Content-Length", str(16 << 20))])
        return (b"x" * 65536 for _ in range(256))
    if path == "/upload":
        octets, stream = 0, environ["wsgi.input"]
        while piece := stream.read(65536):
            octets += len(piece)
        body = str(octets).encode()
    else:
        time.sleep(int(query or 20) / 1000)
        body = b"page"
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"#;

const WORKERS: u32 = 4;

struct Site {
    up: Up,
    _gunicorn: Gunicorn,
}

impl Site {
    fn new(more: &str) -> Site {
        let gunicorn = Gunicorn::start(APP, WORKERS);
        let up = Up::new(&format!("backends = [\"app {} slots={WORKERS}\"]\nthreads = 1\n{more}", gunicorn.address()));
        Site { up, _gunicorn: gunicorn }
    }

    fn at(&self) -> SocketAddr {
        self.up.at[0]
    }

    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(self.at()).await.unwrap()
    }

    /// Asks from an address of its own and reads the answer to its end.
    async fn ask(&self, from: [u8; 4], path: &str) -> String {
        let mut stream = self.connect(from).await;
        stream.write_all(get(path).as_bytes()).await.unwrap();
        rest_of(&mut stream).await
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

async fn rest_of(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "no whole answer: {}", String::from_utf8_lossy(&said));
    String::from_utf8_lossy(&said).into_owned()
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(test);
}

/// Eight read a large answer at 256 octets a second. Twenty polite visitors ask for pages of 20 ms.
#[test]
fn slow_readers_do_not_keep_the_workers() {
    run(async {
        let site = Site::new("");
        let mut slow = Vec::new();
        for number in 0..8 {
            let mut stream = site.connect([127, 2, number, 1]).await;
            stream.write_all(get("/big").as_bytes()).await.unwrap();
            slow.push(stream);
        }
        // Each of them has begun to be answered, so that workers are at it.
        for stream in &mut slow {
            let mut some = [0; 256];
            tokio::time::timeout(PATIENCE, stream.read_exact(&mut some)).await.expect("an answer begins").unwrap();
        }
        let reading = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                for stream in &mut slow {
                    let _ = stream.read_exact(&mut [0; 256]).await;
                }
            }
        });
        for number in 0..20 {
            let said = site.ask([127, 1, number, 1], "/page").await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("page"), "{said}");
        }
        reading.abort();
    });
}

/// An upload that takes seconds, while four times as many as there are workers ask for slow pages without a pause.
#[test]
fn a_slow_upload_is_taken_under_load() {
    run(async {
        let site = std::sync::Arc::new(Site::new(""));
        let flood: Vec<_> = (0..16)
            .map(|number| {
                let site = std::sync::Arc::clone(&site);
                tokio::spawn(async move {
                    loop {
                        site.ask([127, 2, number, 1], "/page?200").await;
                    }
                })
            })
            .collect();
        let (size, pieces) = (600_000, 12);
        let mut upload = site.connect([127, 1, 1, 1]).await;
        let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n");
        upload.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..pieces {
            upload.write_all(&vec![b'x'; size / pieces]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let said = rest_of(&mut upload).await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n600000"), "{said}");
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// As many idle connections as there may be, two from each subnet. Twenty polite visitors ask all the same.
#[test]
fn idle_connections_lock_nobody_out() {
    run(async {
        let site = Site::new("[web.limits]\nconnections = 200\n");
        let mut idle = Vec::new();
        for number in 0..200_u8 {
            let mut stream = site.connect([127, 2, number / 2, 1]).await;
            let _ = stream.write_all(b"GET /page?0 HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let _ = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 4_096])).await;
            idle.push(stream);
        }
        for number in 0..20 {
            let said = site.ask([127, 1, number, 1], "/page").await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("page"), "{number}: {said}");
        }
        let status = super::json(site.up.weir(&["web", "status", "--json"]));
        assert!(status["connections_pushed_out"].as_u64().unwrap() >= 1, "{status}");
        drop(idle);
    });
}

/// Pages were cheap when eighty connections of eight subnets came; now each of them asks for pages of 300 ms, again and again. A polite visitor waits for a
/// slot, and not for all of them.
#[test]
fn dear_pages_at_a_cheap_price_do_not_go_first() {
    run(async {
        let site = std::sync::Arc::new(Site::new(""));
        for _ in 0..40 {
            site.ask([127, 1, 0, 1], "/page?1").await;
        }
        let answered = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let flood: Vec<_> = (0..80_u8)
            .map(|number| {
                let (site, answered) = (std::sync::Arc::clone(&site), std::sync::Arc::clone(&answered));
                tokio::spawn(async move {
                    loop {
                        site.ask([127, 2, number % 8, 1 + number / 8], "/page?300").await;
                        answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let count = || answered.load(std::sync::atomic::Ordering::Relaxed);
        while count() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for number in 0..6 {
            let before = count();
            let said = site.ask([127, 1, number, 1], "/page?1").await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
            assert!(count() - before <= 12, "{} of the flood went before visitor {number}", count() - before);
        }
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    });
}
