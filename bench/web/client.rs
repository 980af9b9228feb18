//! Clients of the attack bench, on many addresses of this machine, and the slow server behind the proxies.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// A connection from an address of its own.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) async fn open(from: [u8; 4], to: SocketAddr) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::with_capacity(2_048, stream) })
    }

    /// Asks, and reads the whole answer; its status, and a cookie if one was given.
    pub(crate) async fn ask(&mut self, cookie: Option<&str>) -> io::Result<(u16, Option<String>)> {
        let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
        let request = format!("GET /work HTTP/1.1\r\nHost: bench.example\r\n{cookie}\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut line, mut status, mut length, mut given) = (String::new(), 0, 0, None);
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
                status = rest.get(2..5).and_then(|code| code.parse().ok()).unwrap_or(0);
            }
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "set-cookie" => given = value.trim().split(';').next().map(str::to_owned),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok((status, given))
    }
}

/// A server that works on a few requests at a time, each for a while, first come, first served.
pub(crate) async fn slow_server(listener: TcpListener, slots: usize, work: Duration) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(slots));
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let slots = Arc::clone(&slots);
        tokio::spawn(async move {
            let _ = serve(stream, &slots, work).await;
        });
    }
}

async fn serve(stream: TcpStream, slots: &Semaphore, work: Duration) -> io::Result<()> {
    let mut stream = BufReader::with_capacity(2_048, stream);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        if line.trim_end().is_empty() {
            // Like most servers, it works on whether or not its client stays.
            if let Ok(_slot) = slots.acquire().await {
                tokio::time::sleep(work).await;
            }
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n").await?;
        }
    }
}
