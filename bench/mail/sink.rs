//! Where mail ends: one smtp-sink for both servers, and how many messages it has.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::Process;

/// A sink that stands still for so long has lost something.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than a line of its counters.
const LINE: u64 = 200;

/// A running smtp-sink.
pub(crate) struct Sink {
    port: u16,
    /// Where it writes its counters; memory, so that counting costs it one short write a message.
    counters: File,
    _process: Process,
}

impl Sink {
    /// Starts it on a free port.
    pub(crate) fn start() -> Sink {
        let port = weir_peers::free_port();
        let counters = File::from(memfd_create("counters", MemfdFlags::CLOEXEC).expect("memory"));
        let mut command = Command::new("smtp-sink");
        command.args(["-c", "-m", "1000"]);
        command.args(["-u", "nobody", &format!("127.0.0.1:{port}"), "1000"]);
        command.stdout(Stdio::from(counters.try_clone().expect("a file descriptor"))).stderr(Stdio::inherit());
        let process = Process::start(&mut command);
        await_port(port);
        Sink { port, counters, _process: process }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many messages it has had.
    pub(crate) fn messages(&self) -> u32 {
        let length = self.counters.metadata().expect("an open file").len();
        let last = LINE.min(length);
        let mut line = vec![0; last as usize];
        self.counters.read_exact_at(&mut line, length - last).expect("it only grows");
        let text = String::from_utf8_lossy(&line);
        // The last line may be half written.
        let whole = text.rfind('\r').map_or("", |end| &text[..end]);
        whole.rsplit_once("mesg=").and_then(|(_, count)| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits until it has had so many.
    pub(crate) fn wait(&self, messages: u32) {
        let (mut had, mut moved) = (self.messages(), Instant::now());
        while had < messages {
            assert!(moved.elapsed() < PATIENCE, "{had} of {messages} messages came, and no more");
            std::thread::sleep(Duration::from_millis(2));
            let now = self.messages();
            if now != had {
                (had, moved) = (now, Instant::now());
            }
        }
    }
}

/// Waits until somebody listens.
pub(crate) fn await_port(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(Instant::now() < deadline, "nobody listens on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
