//! The third part of the demonstration: a botnet asks the web gate for as much as it can, while polite clients make one request after the
//! other.

use super::percentile;
use super::stage::Stage;
use anyhow::Context;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const CALM: Duration = Duration::from_secs(4);
const ATTACK: Duration = Duration::from_secs(12);
/// The attack needs a moment to be one.
const BUILDS_UP: Duration = Duration::from_secs(2);
/// Each from an address of its own, in ten networks.
const BOTS: u8 = 40;
/// Connections that each bot keeps busy.
const EACH: usize = 10;
const POLITE: u8 = 8;
/// A polite client asks so often, if its last answer has come.
const PACE: Duration = Duration::from_millis(125);
/// Eight workers of the built-in backend can do 400 of these a second.
const PATH: &str = "/work?ms=20";
const ANSWER_MAX: usize = 64 * 1024;

/// What became of it.
#[derive(Serialize)]
pub(super) struct BotnetOutcome {
    /// Answers a second that polite clients got before the attack.
    pub(super) calm_per_s: f64,
    pub(super) attacked_per_s: f64,
    pub(super) calm_p95_s: f64,
    pub(super) attacked_p95_s: f64,
    /// Answers a second that the bots got.
    pub(super) bots_per_s: f64,
}

impl BotnetOutcome {
    /// The part of their goodput that the polite keep.
    pub(super) fn kept(&self) -> f64 {
        self.attacked_per_s / self.calm_per_s
    }
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Option<BotnetOutcome>> {
    let Some(web) = stage.web else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(attack(web)).map(Some)
}

/// When answers came, and after how long.
type Answers = Arc<Mutex<Vec<(Instant, f64)>>>;

async fn attack(web: SocketAddr) -> anyhow::Result<BotnetOutcome> {
    // If this does not work, nothing will.
    let mut first = Client::connect(web, Ipv4Addr::LOCALHOST).await?;
    first
        .ask()
        .await
        .with_context(|| format!("the web gate at {web} does not answer {PATH} of the built-in backend"))?;
    let (polite, bots) = (Answers::default(), Answers::default());
    let begun = Instant::now();
    let end = begun + CALM + ATTACK;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..POLITE {
        let from = Ipv4Addr::new(127, 80, number, 1);
        tasks.spawn(client(web, from, Some(PACE), (end, Arc::clone(&polite))));
    }
    tokio::time::sleep(CALM).await;
    for number in 0..BOTS {
        for _ in 0..EACH {
            let from = Ipv4Addr::new(127, 66, number % 10, number / 10 + 1);
            tasks.spawn(client(web, from, None, (end, Arc::clone(&bots))));
        }
    }
    tasks.join_all().await;
    let attacked = (begun + CALM + BUILDS_UP, end);
    let (calm_per_s, mut calm) = within(&polite, (begun, begun + CALM));
    let (attacked_per_s, mut slow) = within(&polite, attacked);
    Ok(BotnetOutcome {
        calm_per_s,
        attacked_per_s,
        calm_p95_s: percentile(&mut calm, 95),
        attacked_p95_s: percentile(&mut slow, 95),
        bots_per_s: within(&bots, attacked).0,
    })
}

fn within(answers: &Answers, (from, to): (Instant, Instant)) -> (f64, Vec<f64>) {
    let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let times: Vec<f64> = answers.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, time)| *time).collect();
    (times.len() as f64 / to.duration_since(from).as_secs_f64(), times)
}

/// Asks until the end, over one connection after the other if it must.
async fn client(web: SocketAddr, from: Ipv4Addr, pace: Option<Duration>, (end, answers): (Instant, Answers)) {
    let mut line = None;
    let mut next = Instant::now();
    while Instant::now() < end {
        let begun = Instant::now();
        let limit = tokio::time::Instant::from_std(end);
        match tokio::time::timeout_at(limit, asked(&mut line, web, from)).await {
            Ok(Ok(true)) => {
                let answer = (Instant::now(), begun.elapsed().as_secs_f64());
                answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            }
            // Refused: a client that is told to come later does.
            Ok(Ok(false)) => tokio::time::sleep(PACE).await,
            Ok(Err(_)) => {
                line = None;
                tokio::time::sleep(PACE).await;
            }
            Err(_) => break,
        }
        if let Some(pace) = pace {
            next = (next + pace).max(Instant::now());
            tokio::time::sleep_until(next.into()).await;
        }
    }
}

async fn asked(line: &mut Option<Client>, web: SocketAddr, from: Ipv4Addr) -> anyhow::Result<bool> {
    if line.is_none() {
        *line = Some(Client::connect(web, from).await?);
    }
    line.as_mut().context("there is one")?.ask().await
}

/// One connection, one request at a time.
struct Client(TcpStream, Vec<u8>);

impl Client {
    async fn connect(web: SocketAddr, from: Ipv4Addr) -> anyhow::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        Ok(Client(socket.connect(web).await?, Vec::new()))
    }

    /// Whether the answer was a good one.
    async fn ask(&mut self) -> anyhow::Result<bool> {
        self.0.write_all(format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        self.1.clear();
        loop {
            let read = self.0.read_buf(&mut self.1).await?;
            anyhow::ensure!(read > 0 && self.1.len() < ANSWER_MAX, "no whole answer");
            if let Some(whole) = whole(&self.1) {
                anyhow::ensure!(whole, "an answer of unknown length");
                return Ok(self.1.starts_with(b"HTTP/1.1 200"));
            }
        }
    }
}

/// Whether an answer has come whole; `Some(false)` for one that does not say how long it is.
fn whole(answer: &[u8]) -> Option<bool> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => (answer.len() >= end + length).then_some(true),
        None => Some(false),
    }
}
