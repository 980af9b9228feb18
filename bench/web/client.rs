//! Clients of the attack bench, on many addresses, and the slow server behind the proxies.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// Whether clients tell their address in a field of each request, to a proxy that does not know PROXY headers.
static IN_A_FIELD: AtomicBool = AtomicBool::new(false);

/// How all clients tell their address from now on.
pub(crate) fn tell_addresses_in_a_field(yes: bool) {
    IN_A_FIELD.store(yes, Ordering::Relaxed);
}

/// A connection from an address of its own.
pub(crate) struct Connection {
    pub(crate) stream: BufReader<TcpStream>,
    /// What each request has to tell of the address.
    pub(crate) told: String,
}

/// What was answered.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) cookie: Option<String>,
    /// When to come again: by the page, or else by Retry-After.
    pub(crate) again: Option<Duration>,
    /// How long the waiting page says that it will take.
    pub(crate) promised: Option<Duration>,
}

impl Connection {
    /// The address is told in a PROXY header or in a field, so that it may be any.
    pub(crate) async fn open(from: [u8; 4], to: SocketAddr) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        // A source of its own for each, or the ports of one would not suffice.
        socket.bind(SocketAddr::from(([127, 1 + from[1] % 250, from[2], 1 + from[3] % 250], 0)))?;
        let mut stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        let [a, b, c, d] = from;
        let mut told = String::new();
        if IN_A_FIELD.load(Ordering::Relaxed) {
            told = format!("X-Forwarded-For: {a}.{b}.{c}.{d}\r\n");
        } else {
            stream.write_all(format!("PROXY TCP4 {a}.{b}.{c}.{d} 127.0.0.1 1000 80\r\n").as_bytes()).await?;
        }
        Ok(Connection { stream: BufReader::with_capacity(2_048, stream), told })
    }

    /// Asks for a page as a browser does, and reads the whole answer.
    pub(crate) async fn ask(&mut self, path: &str, cookie: Option<&str>) -> io::Result<Answer> {
        let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: bench.example\r\nAccept: text/html,*/*;q=0.8\r\n{cookie}{}\r\n",
            self.told
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut line, mut length, mut answer) = (String::new(), 0, Answer::default());
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some(rest) = text.strip_prefix("HTTP/1.") {
                answer.status = rest.get(2..5).and_then(|code| code.parse().ok()).unwrap_or(0);
            }
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "set-cookie" => answer.cookie = value.trim().split(';').next().map(str::to_owned),
                "retry-after" => answer.again = value.trim().parse().ok().map(Duration::from_secs),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        if answer.status != 200 {
            answer.promised = promised(&String::from_utf8_lossy(&body));
        }
        Ok(answer)
    }
}

/// "about 12 seconds" in a page.
fn promised(page: &str) -> Option<Duration> {
    let mut words = page.split("about ").nth(1)?.split([' ', '.']);
    let (number, unit) = (words.next()?, words.next()?);
    let number = if number == "a" { 1 } else { number.parse().ok()? };
    Some(Duration::from_secs(if unit.starts_with("minute") { 60 * number } else { number }))
}

/// A server of a few workers that do one thing at a time, first come, first served: they read the whole request, work for as long as the path says, and
/// write the whole answer.
pub(crate) async fn slow_server(listener: TcpListener, slots: usize) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(slots));
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let slots = Arc::clone(&slots);
        tokio::spawn(async move {
            let _ = serve(stream, &slots).await;
        });
    }
}

async fn serve(stream: TcpStream, slots: &Semaphore) -> io::Result<()> {
    let mut stream = BufReader::with_capacity(2_048, stream);
    let mut line = String::new();
    loop {
        let (mut path, mut length) = (String::new(), 0_usize);
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if path.is_empty() {
                path = text.split(' ').nth(1).unwrap_or("/").to_owned();
            }
            if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        // Like most servers, it works on whether or not its client stays.
        let Ok(_slot) = slots.acquire().await else { return Ok(()) };
        tokio::io::copy(&mut (&mut stream).take(length as u64), &mut tokio::io::sink()).await?;
        let (kind, number) = path.trim_start_matches('/').split_once('/').unwrap_or(("busy", "20"));
        let number: u64 = number.parse().unwrap_or(20);
        let octets = if kind == "big" { number << 20 } else { 5 };
        if kind == "busy" {
            tokio::time::sleep(Duration::from_millis(number)).await;
        }
        stream.get_mut().write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {octets}\r\n\r\n").as_bytes()).await?;
        let piece = vec![b'x'; 64 << 10];
        let mut left = octets as usize;
        while left > 0 {
            let some = left.min(piece.len());
            stream.get_mut().write_all(&piece[..some]).await?;
            left -= some;
        }
    }
}
