//! A backend as the thesis modelled it: one request at a time, each taking the same time, in the order of arrival.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A served request: whose, from when to when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) client: usize,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// A running backend.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    served: Arc<Mutex<Vec<Served>>>,
    task: JoinHandle<()>,
}

impl Backend {
    pub(crate) async fn start(cost: Duration) -> std::io::Result<Backend> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, served) = (listener.local_addr()?, Arc::new(Mutex::new(Vec::new())));
        let worker =
            Arc::new(Worker { slot: tokio::sync::Mutex::new(Instant::now()), cost, served: Arc::clone(&served) });
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let worker = Arc::clone(&worker);
                tokio::spawn(async move { worker.serve(socket).await });
            }
        });
        Ok(Backend { address, served, task })
    }

    /// What was served so far.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Worker {
    /// When the last request ended; waiting for it is first come, first served.
    slot: tokio::sync::Mutex<Instant>,
    cost: Duration,
    served: Arc<Mutex<Vec<Served>>>,
}

impl Worker {
    async fn serve(&self, socket: TcpStream) -> Option<()> {
        socket.set_nodelay(true).ok()?;
        let mut socket = BufReader::new(socket);
        loop {
            let client = read_client(&mut socket).await?;
            self.work(client).await;
            socket.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").await.ok()?;
        }
    }

    async fn work(&self, client: usize) {
        let mut last = self.slot.lock().await;
        let from = Instant::now().max(*last);
        let to = from + self.cost;
        tokio::time::sleep_until(to.into()).await;
        *last = to;
        let served = Served { client, from, to };
        self.served.lock().unwrap_or_else(PoisonError::into_inner).push(served);
    }
}

/// Reads a request's head; its path is the client's number.
async fn read_client(socket: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    socket.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
    let client = line.split(' ').nth(1)?.trim_start_matches('/').parse().ok()?;
    while line.trim_end() != "" {
        line.clear();
        socket.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
    }
    Some(client)
}
