//! A clamd whose scans find nothing and take exactly as long as planned. With a real one, no test could know that beforehand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The server. It answers for as long as the process lives.
#[derive(Debug)]
pub struct PlannedClamd {
    port: u16,
    scans: Arc<AtomicUsize>,
}

impl PlannedClamd {
    /// Starts one. A scan takes `t0`, and `ts` for each byte.
    pub fn start(t0: Duration, ts: Duration) -> PlannedClamd {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let scans = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&scans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let begun = Arc::clone(&begun);
                std::thread::spawn(move || drop(answer(BufReader::new(stream), &begun, (t0, ts))));
            }
        });
        PlannedClamd { port, scans }
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many scans have begun.
    pub fn scans(&self) -> usize {
        self.scans.load(Ordering::SeqCst)
    }
}

fn answer(
    mut stream: BufReader<TcpStream>,
    scans: &AtomicUsize,
    (t0, ts): (Duration, Duration),
) -> std::io::Result<()> {
    let mut command = Vec::new();
    stream.read_until(0, &mut command)?;
    let reply: &[u8] = match command.as_slice() {
        b"zPING\0" => b"PONG\0",
        b"zVERSION\0" => b"ClamAV 1.0.0/1/Sat Nov 14 09:25:12 2026\0",
        b"zINSTREAM\0" => {
            scans.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            let takes = t0 + ts.mul_f64(streamed(&mut stream)? as f64);
            std::thread::sleep(takes.saturating_sub(begun.elapsed()));
            b"stream: OK\0"
        }
        _ => b"UNKNOWN COMMAND\0",
    };
    stream.get_mut().write_all(reply)
}

/// Reads a streamed message to its end. Returns its size.
fn streamed(stream: &mut BufReader<TcpStream>) -> std::io::Result<u64> {
    let mut size = 0;
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u64::from(u32::from_be_bytes(length));
        if length == 0 {
            return Ok(size);
        }
        std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
        size += length;
    }
}
