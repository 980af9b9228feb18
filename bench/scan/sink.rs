//! Where clean mail ends: an SMTP server in this process that notes when each message came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The header that numbers messages.
pub(crate) const NUMBER: &str = "X-Bench-Number: ";
/// A sink that stands still for so long has lost something.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number stands near the top.
const TOP: usize = 16 << 10;

/// The sink.
#[derive(Clone)]
pub(crate) struct Sink {
    port: u16,
    came: Arc<Mutex<HashMap<u64, Instant>>>,
}

impl Sink {
    /// Listens on a free port.
    pub(crate) async fn start() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let sink = Sink { port, came: Arc::default() };
        let taking = sink.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sink = taking.clone();
                tokio::spawn(async move { sink.serve(stream).await });
            }
        });
        sink
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// When a message came.
    pub(crate) fn came(&self, number: u64) -> Option<Instant> {
        self.all().get(&number).copied()
    }

    /// Waits until all of these have come.
    pub(crate) async fn wait(&self, mut missing: Vec<u64>) {
        let mut moved = Instant::now();
        loop {
            let had = missing.len();
            missing.retain(|number| self.came(*number).is_none());
            if missing.is_empty() {
                return;
            }
            if missing.len() < had {
                moved = Instant::now();
            }
            assert!(
                moved.elapsed() < PATIENCE,
                "{} clean messages did not come, such as {}",
                missing.len(),
                missing[0]
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Instant>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut stream = BufReader::with_capacity(256 << 10, stream);
        stream.write_all(b"220 sink.example.net ESMTP\r\n").await.ok()?;
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let verb = line.get(..4).unwrap_or("").to_ascii_uppercase();
            let reply = match verb.as_str() {
                "EHLO" => "250-sink.example.net\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE 100000000\r\n",
                "DATA" => {
                    stream.write_all(b"354 go on\r\n").await.ok()?;
                    let number = body(&mut stream).await?;
                    self.all().entry(number).or_insert_with(Instant::now);
                    "250 2.0.0 taken\r\n"
                }
                "QUIT" => return stream.write_all(b"221 2.0.0 bye\r\n").await.ok(),
                _ => "250 2.0.0 fine\r\n",
            };
            stream.write_all(reply.as_bytes()).await.ok()?;
        }
    }
}

/// Reads a message up to its final dot; its number, or a number that nobody has.
async fn body(stream: &mut BufReader<TcpStream>) -> Option<u64> {
    let mut top = Vec::new();
    // As if a line had ended: an empty message is a dot. From here on: the last four bytes, then what came now.
    let mut seen = b"\r\n".to_vec();
    loop {
        let piece = stream.fill_buf().await.ok()?;
        if piece.is_empty() {
            return None;
        }
        let carried = seen.len();
        seen.extend_from_slice(piece);
        let end = end_of(&seen);
        let taken = end.map_or(piece.len(), |end| end - carried);
        top.extend_from_slice(&piece[..taken.min(TOP - top.len())]);
        stream.consume(taken);
        if end.is_some() {
            break;
        }
        seen.drain(..seen.len().saturating_sub(4));
    }
    let text = String::from_utf8_lossy(&top);
    let number = text.split_once(NUMBER).and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse().ok());
    Some(number.unwrap_or(u64::MAX))
}

/// Behind the final dot; Postfix sends its QUIT along with it.
fn end_of(seen: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = seen[from..].iter().position(|byte| *byte == b'.').map(|at| from + at) {
        if at >= 2 && &seen[at - 2..at] == b"\r\n" && seen.get(at + 1..at + 3) == Some(b"\r\n") {
            return Some(at + 3);
        }
        from = at + 1;
    }
    None
}

/// Waits until somebody listens.
pub(crate) fn await_port(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nobody listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
