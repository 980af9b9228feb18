//! The host's side of the agent's port. The guest may have been taken over: every length, count and time has a bound, and a guest that
//! exceeds one is not trusted any further. A failure on our side is not the guest's fault.

use super::VmFailure;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use weir_guest::behaviour::Behaviour;
use weir_guest::frame::{FRAME_MAX, HEADER, Header, Kind};
use weir_guest::words::{Dropped, Hello, Ready, Run};

/// A guest that watches a sample sends something at least this often.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// When the watch is over, the report must come within this time.
pub(super) const REPORT_MAX: Duration = Duration::from_secs(30);
/// How many frames a guest may send before it answers a hello: the rest of what it sent before.
const BEFORE_READY_MAX: usize = 64;
/// How many signs of life, and other frames without content, are accepted.
const ALIVE_MAX: usize = 100_000;
/// How many files are accepted.
pub(super) const FILES_MAX: u32 = 32;
/// Their length together.
pub(super) const FILES_BYTES_MAX: u64 = 32 << 20;

/// A connection with an agent.
#[derive(Debug)]
pub(super) struct AgentConnection {
    stream: UnixStream,
}

/// What should be run, and what may be returned.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) run: Run,
    pub(super) sample: File,
    /// The folder for files.
    pub(super) output: PathBuf,
    pub(super) report_bytes_max: u64,
}

/// What a sample did, and which files it left.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) behaviour: Behaviour,
    /// Name in the output folder, and where it was in the guest.
    pub(super) files: Vec<(String, String)>,
}

impl AgentConnection {
    pub(super) fn new(stream: UnixStream) -> AgentConnection {
        AgentConnection { stream }
    }

    /// Asks whether the agent is there, with new randomness and the time; waits without a limit of its own.
    pub(super) async fn hello(&mut self) -> io::Result<Ready> {
        let (mut nonce, mut seed) = ([0; 16], [0; 32]);
        weir_store::random(&mut nonce)?;
        weir_store::random(&mut seed)?;
        let hello = Hello { nonce: weir_store::hex(&nonce), seed: weir_store::hex(&seed), time_ns: time_ns() };
        self.write(Kind::Hello, &serde_json::to_vec(&hello)?).await?;
        for _ in 0..BEFORE_READY_MAX {
            let (kind, content) = self.read().await?;
            if kind == Kind::Ready
                && let Ok(ready) = serde_json::from_slice::<Ready>(&content)
                && ready.nonce == hello.nonce
            {
                return Ok(ready);
            }
        }
        Err(hostile("it answers everything but what it is asked"))
    }

    /// Runs a sample in a clean guest and receives the results.
    pub(super) async fn run(&mut self, mut order: Order) -> Result<Findings, VmFailure> {
        let watch = Duration::from_millis(order.run.watch_ms);
        let sent = tokio::time::timeout(SILENCE_MAX, self.send(&mut order)).await;
        sent.map_err(|_| late("it does not take the sample"))??;
        let heard = tokio::time::timeout(watch + REPORT_MAX, self.hear(&order)).await;
        heard.map_err(|_| late("it brought no report in time"))?
    }

    async fn send(&mut self, order: &mut Order) -> Result<(), VmFailure> {
        order.run.time_ns = time_ns();
        let run = serde_json::to_vec(&order.run).map_err(|error| VmFailure::Host(error.into()))?;
        self.write(Kind::Run, &run).await?;
        let (mut left, mut piece) = (order.run.bytes, vec![0; FRAME_MAX]);
        while left > 0 {
            // The sample is in our page cache, or on our disk, so waits are short.
            let most = usize::try_from(left).map_or(FRAME_MAX, |left| left.min(FRAME_MAX));
            let length = order.sample.read(&mut piece[..most]).map_err(VmFailure::Sample)?;
            if length == 0 {
                return Err(VmFailure::Sample(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter")));
            }
            self.write(Kind::Data, &piece[..length]).await?;
            left -= length as u64;
        }
        Ok(())
    }

    async fn hear(&mut self, order: &Order) -> Result<Findings, VmFailure> {
        let mut taken = Taken::new(order);
        loop {
            let said = tokio::time::timeout(SILENCE_MAX, self.read()).await;
            let (kind, content) = said.map_err(|_| late("it says nothing any more"))??;
            match kind {
                Kind::Alive => taken.alive(&content)?,
                Kind::Report => taken.report(&content)?,
                Kind::File => taken.file(&content)?,
                Kind::Data => taken.data(&content)?,
                Kind::End => return Ok(taken.end()?),
                Kind::Failed => {
                    let why: String = String::from_utf8_lossy(&content).chars().take(300).collect();
                    return Err(io::Error::other(format!("the guest could not run it: {why}")).into());
                }
                Kind::Hello | Kind::Ready | Kind::Run => return Err(hostile("it says what only the lab says").into()),
            }
        }
    }

    async fn write(&mut self, kind: Kind, content: &[u8]) -> io::Result<()> {
        self.stream.write_all(&Header { kind, length: content.len() }.bytes()).await?;
        self.stream.write_all(content).await
    }

    async fn read(&mut self) -> io::Result<(Kind, Vec<u8>)> {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).await?;
        let header = Header::read(header).map_err(hostile)?;
        let mut content = vec![0; header.length];
        self.stream.read_exact(&mut content).await?;
        Ok((header.kind, content))
    }
}

/// What was received about a sample so far.
struct Taken<'a> {
    order: &'a Order,
    report: Vec<u8>,
    files: Vec<(String, String)>,
    /// The file that is being received, and how much of it is missing.
    coming: Option<(File, u64)>,
    room: u64,
    alive: usize,
}

impl Taken<'_> {
    fn new(order: &Order) -> Taken<'_> {
        let room = order.run.files_bytes_max;
        Taken { order, report: Vec::new(), files: Vec::new(), coming: None, room, alive: 0 }
    }

    fn alive(&mut self, content: &[u8]) -> io::Result<()> {
        self.alive += 1;
        if content.is_empty() && self.alive <= ALIVE_MAX {
            Ok(())
        } else {
            Err(hostile("its signs of life are too many"))
        }
    }

    fn report(&mut self, content: &[u8]) -> io::Result<()> {
        if (self.report.len() + content.len()) as u64 > self.order.report_bytes_max || !self.files.is_empty() {
            return Err(hostile("its report is longer than a report may be"));
        }
        self.report.extend_from_slice(content);
        Ok(())
    }

    fn file(&mut self, content: &[u8]) -> Result<(), VmFailure> {
        let dropped: Dropped = serde_json::from_slice(content).map_err(|_| hostile("it names no file"))?;
        if self.coming.is_some() || self.files.len() >= self.order.run.files_max as usize || dropped.bytes > self.room {
            return Err(hostile("it sends more files than it may").into());
        }
        self.room -= dropped.bytes;
        let name = format!("dropped-{}", self.files.len() + 1);
        let path = self.order.output.join(&name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(VmFailure::Host)?;
        self.coming = Some((file, dropped.bytes)).filter(|_| dropped.bytes > 0);
        self.files.push((name, dropped.path));
        Ok(())
    }

    fn data(&mut self, content: &[u8]) -> Result<(), VmFailure> {
        let (file, left) = self.coming.as_mut().ok_or_else(|| hostile("it sends a piece of nothing"))?;
        *left = left.checked_sub(content.len() as u64).ok_or_else(|| hostile("a file is longer than it said"))?;
        file.write_all(content).map_err(VmFailure::Host)?;
        if *left == 0 {
            self.coming = None;
        }
        if content.is_empty() { Err(hostile("it sends a piece of nothing").into()) } else { Ok(()) }
    }

    fn end(self) -> io::Result<Findings> {
        if self.coming.is_some() {
            return Err(hostile("it ends in the middle of a file"));
        }
        let behaviour = serde_json::from_slice(&self.report).map_err(|_| hostile("its report is no report"))?;
        Ok(Findings { behaviour, files: self.files })
    }
}

/// Nanoseconds since the Unix epoch.
fn time_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The error for a guest that takes longer than it may.
fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the guest does not follow the protocol: {why}"))
}

/// The error for a guest that breaks the rules.
fn hostile(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the guest does not follow the protocol: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use weir_guest::frame;

    fn order(home: &tempfile::TempDir) -> Order {
        let mut sample = tempfile::tempfile().unwrap();
        sample.write_all(b"#!/bin/sh\n").unwrap();
        sample.seek(SeekFrom::Start(0)).unwrap();
        let (files_max, files_bytes_max) = (2, 100);
        let run = Run {
            name: "s".into(),
            bytes: 10,
            watch_ms: 1000,
            root: false,
            time_ns: 0,
            files_max,
            files_bytes_max,
            offline: false,
        };
        Order { run, sample, output: home.path().to_owned(), report_bytes_max: 1000 }
    }

    /// A guest that sends these bytes, over and over if `endless`, whatever it is told.
    async fn told(bytes: Vec<u8>, endless: bool) -> (tempfile::TempDir, Result<Findings, VmFailure>) {
        let home = tempfile::tempdir().unwrap();
        let findings = told_in(&home, bytes, endless).await;
        (home, findings)
    }

    async fn told_in(home: &tempfile::TempDir, bytes: Vec<u8>, endless: bool) -> Result<Findings, VmFailure> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reads, mut writes) = theirs.into_split();
        tokio::spawn(async move {
            let mut heard = [0; 1024];
            while reads.read(&mut heard).await.is_ok_and(|length| length > 0) {}
        });
        tokio::spawn(async move {
            while writes.write_all(&bytes).await.is_ok() && endless {}
            // Open, and silent.
            std::future::pending::<()>().await;
        });
        AgentConnection::new(ours).run(order(home)).await
    }

    fn frames(frames: &[(Kind, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|(kind, content)| frame::write(&mut bytes, *kind, content).unwrap());
        bytes
    }

    const REPORT: &[u8] = br#"{"ended":"exit 0"}"#;

    #[tokio::test]
    async fn a_report_and_its_files_are_taken() {
        let said = [
            (Kind::Alive, &b""[..]),
            (Kind::Report, REPORT),
            (Kind::File, br#"{"path":"/tmp/x","bytes":5}"#),
            (Kind::Data, b"he"),
            (Kind::Data, b"llo"),
            (Kind::End, b""),
        ];
        let (home, findings) = told(frames(&said), false).await;
        let findings = findings.unwrap();
        assert_eq!(findings.behaviour.ended, "exit 0");
        assert_eq!(findings.files, [("dropped-1".into(), "/tmp/x".into())]);
        assert_eq!(std::fs::read(home.path().join("dropped-1")).unwrap(), b"hello");
    }

    #[tokio::test]
    async fn what_breaks_a_rule_is_not_believed() {
        let file = br#"{"path":"x","bytes":60}"#;
        let long = br#"{"path":"x","bytes":5000000000000}"#;
        for (said, why) in [
            (b"garbage, and more garbage".to_vec(), "no frame begins so"),
            (frames(&[(Kind::End, b"")]), "no report"),
            (frames(&[(Kind::Ready, b"{}")]), "only the lab"),
            (frames(&[(Kind::Data, b"x")]), "piece of nothing"),
            (frames(&[(Kind::Report, &[b'x'; 1001])]), "longer than a report"),
            (frames(&[(Kind::File, long)]), "more files"),
            (frames(&[(Kind::File, file), (Kind::Data, &[0; 60]), (Kind::File, file)]), "more files"),
            (frames(&[(Kind::File, file), (Kind::Data, &[0; 61])]), "longer than it said"),
            (frames(&[(Kind::Report, REPORT), (Kind::File, file), (Kind::End, b"")]), "middle of a file"),
            (frames(&[(Kind::Alive, b"x")]), "signs of life"),
            (frames(&[(Kind::Failed, b"no such program")]), "no such program"),
        ] {
            let problem = told(said, false).await.1.unwrap_err().to_string();
            assert!(problem.contains(why), "{why}: {problem}");
        }
    }

    #[tokio::test]
    async fn what_fails_here_is_not_the_samples_fault() {
        let said = [(Kind::Report, REPORT), (Kind::File, br#"{"path":"/tmp/x","bytes":5}"#), (Kind::End, b"")];
        let home = tempfile::tempdir().unwrap();
        // The file exists already: the same as a disk on which nothing can be created.
        std::fs::write(home.path().join("dropped-1"), "").unwrap();
        let failure = told_in(&home, frames(&said), false).await.unwrap_err();
        assert!(matches!(failure, VmFailure::Host(_)) && failure.is_the_machines(), "{failure}");
        let short = Order { run: Run { bytes: 11, ..order(&home).run }, ..order(&home) };
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let failure = AgentConnection::new(ours).send(&mut { short }).await.unwrap_err();
        assert!(failure.is_the_machines(), "{failure}");
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let failure = AgentConnection::new(ours).run(order(&home)).await.unwrap_err();
        assert!(matches!(failure, VmFailure::Died) && !failure.is_the_machines(), "{failure}");
        let failure = told(b"garbage, and more garbage".to_vec(), false).await.1.unwrap_err();
        assert!(!failure.is_the_machines(), "{failure}");
    }

    #[tokio::test]
    async fn an_endless_guest_is_cut_off() {
        for said in [frames(&[(Kind::Report, &[b'['; 500])]), frames(&[(Kind::Alive, b"")]), vec![b'W'; 4096]] {
            assert!(told(said, true).await.1.is_err());
        }
    }

    #[tokio::test]
    async fn a_report_of_ten_gigabytes_is_cut_at_its_bound() {
        let home = tempfile::tempdir().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reads, mut writes) = theirs.into_split();
        tokio::spawn(async move {
            let mut heard = [0; 1024];
            while reads.read(&mut heard).await.is_ok_and(|length| length > 0) {}
        });
        let guest = tokio::spawn(async move {
            let (piece, mut sent) = (frames(&[(Kind::Report, &vec![b' '; FRAME_MAX])]), 0);
            while sent < 10_u64 << 30 && writes.write_all(&piece).await.is_ok() {
                sent += piece.len() as u64;
            }
            sent
        });
        let order = Order { report_bytes_max: 8 << 20, ..order(&home) };
        let failure = AgentConnection::new(ours).run(order).await.unwrap_err().to_string();
        assert!(failure.contains("longer than a report may be"), "{failure}");
        assert!(guest.await.unwrap() < 16 << 20, "nobody read on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_guest_is_given_up() {
        let problem = told(Vec::new(), false).await.1.unwrap_err().to_string();
        assert!(problem.contains("says nothing any more"), "{problem}");
    }

    #[tokio::test]
    async fn only_the_answer_to_this_hello_is_one() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = theirs.into_std().unwrap();
        theirs.set_nonblocking(false).unwrap();
        let guest = std::thread::spawn(move || {
            let (kind, content) = frame::read(&mut &theirs).unwrap();
            let hello: Hello = serde_json::from_slice(&content).unwrap();
            let ready = |nonce: &str| {
                serde_json::to_vec(&Ready { nonce: nonce.into(), agent: "a".into(), clock_ns: None }).unwrap()
            };
            frame::write(&mut &theirs, Kind::Ready, &ready("an old one")).unwrap();
            frame::write(&mut &theirs, Kind::Ready, &ready(&hello.nonce)).unwrap();
            (kind, hello.seed.len())
        });
        let ready = AgentConnection::new(ours).hello().await.unwrap();
        assert_eq!(guest.join().unwrap(), (Kind::Hello, 64));
        assert_ne!(ready.nonce, "an old one");
    }
}
