//! Tests of the web gate in front of a real gunicorn with four workers, with floods as real sites have them. Each of these floods left
//! polite visitors without an answer before the gate was changed.

use super::{PATIENCE, Up};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use weir_peers::Gunicorn;

/// Serves pages that take 20 ms, large files, uploads, and pages that take as long as requested.
pub(super) const APP: &str = r#"
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
    fields = [("Content-Length", str(len(body)))]
    if path == "/login":
        fields.append(("Set-Cookie", "sessionid=it-is-me; HttpOnly"))
    if path == "/kept":
        fields.append(("Cache-Control", "public, max-age=60"))
    start("200 OK", fields)
    return [body]
"#;

pub(super) const WORKERS: u32 = 4;

pub(super) struct Site {
    pub(super) up: Up,
    _gunicorn: Option<Gunicorn>,
}

impl Site {
    pub(super) fn new(more: &str) -> Site {
        Site::before(Gunicorn::start(APP, WORKERS), more)
    }

    pub(super) fn before(gunicorn: Gunicorn, more: &str) -> Site {
        let site = Site::with_servers(gunicorn.place(), more);
        Site { _gunicorn: Some(gunicorn), ..site }
    }

    pub(super) fn with_servers(servers: &str, more: &str) -> Site {
        let up = Up::new(&format!("backends = [\"app {servers} slots={WORKERS}\"]\nthreads = 1\n{more}"));
        Site { up, _gunicorn: None }
    }

    /// A gate with these settings, in front of a server.
    pub(super) fn with_settings(web: &str, gunicorn: Gunicorn) -> Site {
        Site { up: Up::new(web), _gunicorn: Some(gunicorn) }
    }

    /// A gate that is asked by another proxy, which carries the requests to a server.
    pub(super) fn carried(mut up: Up, at: SocketAddr, gunicorn: Gunicorn) -> Site {
        up.at = vec![at];
        Site { up, _gunicorn: Some(gunicorn) }
    }

    fn at(&self) -> SocketAddr {
        self.up.at[0]
    }

    pub(super) async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(self.at()).await.unwrap()
    }

    /// Sends a request from this address, and reads the whole answer.
    pub(super) async fn ask(&self, from: [u8; 4], path: &str) -> String {
        let mut stream = self.connect(from).await;
        stream.write_all(get(path).as_bytes()).await.unwrap();
        rest_of(&mut stream).await
    }
}

pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

pub(super) async fn rest_of(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "no whole answer: {}", String::from_utf8_lossy(&said));
    String::from_utf8_lossy(&said).into_owned()
}

pub(super) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_server_may_be_behind_a_unix_socket() {
    run(async {
        let site = Site::before(Gunicorn::start_on_socket(APP, WORKERS), "");
        for _ in 0..3 {
            let said = site.ask([127, 1, 1, 1], "/page?1").await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("page"), "{said}");
        }
        let status = super::json(site.up.weir(&["web", "status", "--json"]));
        let server = &status["backends"][0]["servers"][0];
        assert!(server["up"] == true && server["address"].as_str().unwrap().starts_with("unix:/"), "{status}");
    });
}

/// Eight clients read a large answer at 256 octets per second. Twenty polite visitors request pages that take 20 ms.
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
        // Wait until the answer to each has begun, so that workers are busy with them.
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

/// An upload that takes seconds, while four times as many clients as there are workers request slow pages without a pause.
#[test]
fn a_slow_upload_is_taken_under_load() {
    run(async {
        let site = Arc::new(Site::new(""));
        let flood: Vec<_> = (0..16)
            .map(|number| {
                let site = Arc::clone(&site);
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

/// As many idle connections as are allowed, two from each subnet. Twenty polite visitors must be served all the same.
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

/// The same behind a proxy that passes addresses on in PROXY headers.
#[test]
fn idle_connections_behind_a_proxy_lock_nobody_out() {
    run(async {
        let limits =
            "[web.limits]\nconnections = 200\n[web.identity]\ntrusted = [\"127.0.0.0/8\"]\nproxy_protocol = true\n";
        let site = Site::new(limits);
        let connect = |from: [u8; 3]| {
            let site = &site;
            async move {
                let mut stream = site.connect([127, 0, 0, 1]).await;
                let [a, b, c] = from;
                let head = format!("PROXY TCP4 198.{a}.{b}.{c} 127.0.0.1 1000 80\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                stream
            }
        };
        let mut idle = Vec::new();
        for number in 0..200_u8 {
            let mut stream = connect([18, number / 2, 1]).await;
            let _ = stream.write_all(b"GET /page?0 HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let _ = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 4_096])).await;
            idle.push(stream);
        }
        for number in 0..20 {
            let mut stream = connect([19, number, 1]).await;
            stream.write_all(get("/page").as_bytes()).await.unwrap();
            let said = rest_of(&mut stream).await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("page"), "{number}: {said}");
        }
        drop(idle);
    });
}

/// Visitors who were here before do not have to wait because of a flood from new networks.
#[test]
fn a_flood_of_new_networks_does_not_crowd_out_who_is_known() {
    run(async {
        let site = Arc::new(Site::new("standing_after = \"1s\"\n"));
        let cookies = visit_all(&site, "/page?1").await;
        // A cookie becomes older than `standing_after` only by waiting.
        tokio::time::sleep(Duration::from_secs(2)).await;
        play_new_networks(site, &cookies).await;
    });
}

/// Nor do visitors who have just signed in to the application.
#[test]
fn a_flood_of_new_networks_does_not_crowd_out_who_is_signed_in() {
    run(async {
        let site = Arc::new(Site::new("sign_in_cookie = \"sessionid\"\n"));
        let cookies = visit_all(&site, "/login?1").await;
        play_new_networks(site, &cookies).await;
    });
}

/// Six visitors request a page. Returns their cookies.
async fn visit_all(site: &Site, page: &str) -> Vec<String> {
    let mut cookies = Vec::new();
    for number in 0..6 {
        let said = site.ask([127, 1, number, 1], page).await;
        let cookie = said.split("set-cookie: weir=").nth(1).and_then(|rest| rest.split(';').next());
        cookies.push(format!("weir={}", cookie.unwrap_or_else(|| panic!("no cookie: {said}"))));
    }
    cookies
}

/// Every request comes from a new network, far more than the workers can handle, while the visitors request pages again.
pub(super) async fn play_new_networks(site: Arc<Site>, cookies: &[String]) {
    let (answered, next) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let attack = |_| {
        let (site, answered, next) = (Arc::clone(&site), Arc::clone(&answered), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                site.ask([127, 20 + (number / 250) as u8, (number % 250) as u8, 1], "/page?100").await;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let flood: Vec<_> = (0..100).map(attack).collect();
    while answered.load(Ordering::Relaxed) < 8 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (number, cookie) in (0..6).zip(cookies) {
        let before = answered.load(Ordering::Relaxed);
        let mut stream = site.connect([127, 1, number, 1]).await;
        let ask = format!("GET /page?1 HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = rest_of(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
        let went = answered.load(Ordering::Relaxed) - before;
        assert!(went <= 50, "{went} of the flood went before visitor {number}");
    }
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Pages were cheap when eighty connections of eight subnets came. Now each of these requests pages that take 300 ms, again and again. A
/// polite visitor waits for a slot, but not for all of these requests.
#[test]
fn dear_pages_at_a_cheap_price_do_not_go_first() {
    run(async {
        let site = Arc::new(Site::new(""));
        for _ in 0..40 {
            site.ask([127, 1, 0, 1], "/page?1").await;
        }
        let answered = Arc::new(AtomicUsize::new(0));
        let flood: Vec<_> = (0..80_u8)
            .map(|number| {
                let (site, answered) = (Arc::clone(&site), Arc::clone(&answered));
                tokio::spawn(async move {
                    loop {
                        site.ask([127, 2, number % 8, 1 + number / 8], "/page?300").await;
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let count = || answered.load(Ordering::Relaxed);
        while count() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for number in 0..6 {
            let before = count();
            let said = site.ask([127, 1, number, 1], "/page?1").await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
            assert!(count() - before <= 40, "{} of the flood went before visitor {number}", count() - before);
        }
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    });
}
