//! One clamd: its address, its health, and how many scans it takes at once.
//!
//! Health: Unknown → Up or Down → … A background task sends PING, VERSION and STATS from time to time, and sooner if a scan failed or clamd
//! is down. Before clamd first counts as up, after each time it was down, and when its signatures change, it must find EICAR. While it is
//! down it gets no scans, so a hung clamd costs one deadline, not one per message.

use super::Settings;
use super::exchange;
use super::reply::{Scanned, Version, threads};
use crate::address::Address;
use crate::content::Content;
use crate::eicar::eicar;
use crate::test_files::{self, gzipped};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

/// How a clamd is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not asked yet.
    Unknown,
    /// It answers, and finds EICAR.
    Up(Version),
    /// It does not, for this reason.
    Down(String),
}

/// How a clamd is, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Where it is.
    pub address: Address,
    /// How it is.
    pub state: State,
    /// Whether it calls content clean that is nested too deep for it to open.
    pub silent: bool,
    /// Formats in which it does not find the test file.
    pub closed: Vec<&'static str>,
}

/// One clamd.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) address: Address,
    pub(super) places: Arc<Semaphore>,
    /// How many places there are in all.
    width: AtomicUsize,
    pub(super) state: watch::Sender<State>,
    silent: AtomicBool,
    closed: Mutex<Vec<&'static str>>,
    doubt: Notify,
}

/// While it is down it is asked this often.
const RETRY: Duration = Duration::from_millis(500);
/// Until STATS has told more.
const WIDTH_FIRST: usize = 2;

impl Endpoint {
    pub(super) fn new(address: Address, settings: &Settings) -> Endpoint {
        let width = if settings.scans == 0 { WIDTH_FIRST } else { settings.scans };
        Endpoint {
            address,
            places: Arc::new(Semaphore::new(width)),
            width: AtomicUsize::new(width),
            state: watch::channel(State::Unknown).0,
            silent: AtomicBool::new(false),
            closed: Mutex::default(),
            doubt: Notify::new(),
        }
    }

    /// A scan failed: look sooner.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// How it is.
    pub(super) fn condition(&self) -> Condition {
        let (state, silent) = (self.state.borrow().clone(), self.silent.load(Ordering::Relaxed));
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Condition { address: self.address.clone(), state, silent, closed }
    }

    /// How many scans it takes at once.
    pub(super) fn width(&self) -> usize {
        self.width.load(Ordering::Relaxed)
    }

    /// Looks after its health for ever.
    pub(super) async fn watch(self: Arc<Self>, settings: Settings) {
        loop {
            let checked = self.check(&settings).await;
            self.note(checked);
            let pause = if matches!(*self.state.borrow(), State::Up(_)) { settings.check_every } else { RETRY };
            let _ = timeout(pause, self.doubt.notified()).await;
            // A burst of failures should cause one look, not many.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn check(&self, settings: &Settings) -> Result<Version, String> {
        let patience = settings.check_deadline;
        let ask = |word: &'static str| async move {
            match timeout(patience, exchange::command(&self.address, word)).await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("does not answer {word} within {} s", patience.as_secs_f64())),
            }
        };
        let pong = ask("PING").await?;
        if pong != b"PONG" {
            return Err("does not answer PING with PONG".into());
        }
        let version = Version::read(&ask("VERSION").await?).map_err(|error| error.to_string())?;
        // Not every clamd answers STATS, and the answer only decides how many scans it gets at once.
        if settings.scans == 0
            && let Ok(stats) = ask("STATS").await
            && let Some(most) = threads(&stats)
        {
            self.widen(most);
        }
        // The self-test runs at first, and whenever the signatures may have changed.
        let tested = matches!(&*self.state.borrow(), State::Up(known) if known.text == version.text);
        if settings.self_test && !tested {
            self.self_test(patience).await?;
        }
        Ok(version)
    }

    /// A scanner that does not find EICAR finds nothing. One that calls content clean that is too deep for it deserves a warning.
    async fn self_test(&self, patience: Duration) -> Result<(), String> {
        match self.scan(eicar().as_bytes(), patience).await? {
            Scanned::Found(_) => {}
            other => return Err(format!("does not find the EICAR test file: {other:?}")),
        }
        let deep = nested(eicar().as_bytes(), DEEP).map_err(|error| error.to_string())?;
        let silent = self.scan(&deep, patience).await? == Scanned::Clean;
        if silent && !self.silent.load(Ordering::Relaxed) {
            tracing::warn!(address = %self.address, "clamd calls clean what it has not opened: AlertExceedsMax is off");
        }
        self.silent.store(silent, Ordering::Relaxed);
        self.ask_what_it_opens(patience).await
    }

    /// Shows it a small archive of each format with the test file. If it finds nothing in one, it cannot open that format.
    async fn ask_what_it_opens(&self, patience: Duration) -> Result<(), String> {
        let mut closed = Vec::new();
        for (format, archive) in test_files::all().map_err(|error| error.to_string())? {
            match self.scan(&archive, patience).await {
                Ok(Scanned::Found(_)) => {}
                Ok(_) => closed.push(format),
                // It has found the test file itself; whether it goes on like this is seen at the next look.
                Err(_) => break,
            }
        }
        let mut known = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != closed && !closed.is_empty() {
            tracing::info!(address = %self.address, formats = closed.join(", "), "clamd cannot open these");
        }
        *known = closed;
        Ok(())
    }

    async fn scan(&self, bytes: &[u8], patience: Duration) -> Result<Scanned, String> {
        let content = Content::of(bytes).map_err(|error| error.to_string())?;
        match timeout(patience, exchange::scan(&self.address, &content)).await {
            Ok(Ok(scanned)) => Ok(scanned),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("does not scan the EICAR test file within {} s", patience.as_secs_f64())),
        }
    }

    fn note(&self, checked: Result<Version, String>) {
        let state = match checked {
            Ok(version) => State::Up(version),
            Err(problem) => State::Down(problem),
        };
        let changed = self.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state.clone();
            changed
        });
        match (changed, state) {
            (true, State::Up(version)) => {
                tracing::info!(address = %self.address, version = version.text, "clamd is ready");
            }
            (true, State::Down(problem)) => tracing::warn!(address = %self.address, problem, "clamd is down"),
            _ => {}
        }
    }

    fn widen(&self, most: usize) {
        let width = self.width.swap(most, Ordering::Relaxed);
        if most > width {
            self.places.add_permits(most - width);
        } else if most < width {
            // Permits that are in use now come back later and are then too many, but that is rare and does little harm.
            let gone = self.places.forget_permits(width - most);
            self.width.fetch_add(width - most - gone, Ordering::Relaxed);
        }
    }
}

/// Deeper than clamd goes by itself (17).
const DEEP: u32 = 40;

/// Packed so many times.
fn nested(data: &[u8], times: u32) -> std::io::Result<Vec<u8>> {
    let mut data = data.to_vec();
    for _ in 0..times {
        data = gzipped(&data)?;
    }
    Ok(data)
}
