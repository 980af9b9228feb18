//! A client that always has requests waiting: so many connections to each of its front-ends, each asking again as soon as it is answered.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Connections of one client; gone when dropped.
pub(crate) struct Client {
    _connections: JoinSet<()>,
}

/// Requests that a client keeps at each front-end.
const OUTSTANDING: usize = 4;

impl Client {
    /// The client with this number, which asks these front-ends from this address.
    pub(crate) fn start(number: usize, from: IpAddr, front_ends: &[SocketAddr]) -> Client {
        let mut connections = JoinSet::new();
        for to in front_ends.iter().flat_map(|to| [*to; OUTSTANDING]) {
            connections.spawn(async move {
                loop {
                    let _ = ask_on(number, from, to).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
        Client { _connections: connections }
    }
}

/// Asks on one connection until it fails.
async fn ask_on(number: usize, from: IpAddr, to: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let request = format!("GET /{number} HTTP/1.1\r\nHost: bench.example\r\n\r\n");
    loop {
        stream.get_mut().write_all(request.as_bytes()).await?;
        read_response(&mut stream).await?;
    }
}

async fn read_response(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let (mut line, mut length) = (String::new(), 0usize);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length.min(1 << 20)];
    stream.read_exact(&mut body).await.map(drop)
}
