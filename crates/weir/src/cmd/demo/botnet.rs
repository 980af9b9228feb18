//! The third part of the demonstration: a botnet sends the web gate as many requests as it can, while polite clients send one request after
//! another.

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
/// The first seconds of the attack, which do not count because it is still building up.
const BUILDS_UP: Duration = Duration::from_secs(2);
/// The number of bots. Each has an address of its own; together they are in ten networks.
const BOTS: u8 = 40;
/// How many connections each bot keeps busy.
const EACH: usize = 10;
const POLITE: u8 = 8;
/// A polite client sends a request this often, unless it still waits for the last answer.
const PACE: Duration = Duration::from_millis(125);
/// The eight slots of the built-in backend can serve 400 of these requests each second.
const PATH: &str = "/work?ms=20";
const ANSWER_MAX: usize = 64 * 1024;

/// The results of this part.
#[derive(Serialize)]
pub(super) struct BotnetOutcome {
    /// Answers per second that polite clients got before the attack.
    pub(super) calm_per_s: f64,
    pub(super) attacked_per_s: f64,
    pub(super) calm_p95_s: f64,
    pub(super) attacked_p95_s: f64,
    /// Answers per second that the bots got.
    pub(super) bots_per_s: f64,
}

impl BotnetOutcome {
    /// The share of their answers that polite clients still get during the attack.
    pub(super) fn kept(&self) -> f64 {
        self.attacked_per_s / self.calm_per_s
    }
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Option<BotnetOutcome>> {
    let Some(web) = stage.web else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(attack(web)).map(Some)
}

/// When each answer came, and how long it took.
type Answers = Arc<Mutex<Vec<(Instant, f64)>>>;

async fn attack(web: SocketAddr) -> anyhow::Result<BotnetOutcome> {
    // If this first request fails, the whole part is pointless.
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

/// Sends requests until the end. If a connection fails, it opens another.
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
            // The gate refused: a client that is told to come later does so.
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

/// One connection, with one request at a time.
struct Client(TcpStream, Vec<u8>);

impl Client {
    async fn connect(web: SocketAddr, from: Ipv4Addr) -> anyhow::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        Ok(Client(socket.connect(web).await?, Vec::new()))
    }

    /// Sends one request. Returns whether the answer was a success.
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

/// Whether the answer is complete; `Some(false)` if it does not state its length, none if more octets are needed.
fn whole(answer: &[u8]) -> Option<bool> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => (answer.len() >= end + length).then_some(true),
        None => Some(false),
    }
}
