//! ClamAV's clamd over TCP or a Unix socket.
//!
//! clamd would call content clean without a look if it is larger than clamd's own limits, so it is not sent and counts as `not scanned`.
//! Each clamd gets at most as many scans at once as it has threads. A scan that takes longer than its deadline goes on at clamd whatever we
//! do; so it keeps its place until clamd answers or would have given up itself, and its late answer is remembered for the next attempt.
//! Of several clamds the least busy is asked first, and the others only if it fails.

mod endpoint;
mod exchange;
pub mod reply;
pub(crate) mod scanner;
pub mod server;

pub use endpoint::{Condition, State};

use crate::address::Address;
use crate::content::Content;
use crate::deadline::Deadline;
use crate::verdict::Outcome;
use endpoint::Endpoint;
use reply::Scanned;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use weir_foundation::supervision;
use weir_settings::settings;

settings! {
    /// ClamAV's clamd; off until it has an address
    #[section("scan.clamav")]
    #[derive(PartialEq, Eq)]
    pub struct Settings {
        /// Where clamd listens: "unix:/run/clamav/clamd.ctl" or "scan.example:3310"; the least busy is asked
        pub addresses: Vec<Address> = list([], 64, "addresses"),
        /// Clamds of the first feed's own, of the second's, and so on; used like `addresses`, and before them.
        pub feeds: Vec<Vec<Address>> = fixed(Vec::new()),
        /// A larger message is not scanned; at most clamd's StreamMaxLength and MaxFileSize
        pub size as "message_size": u64 = size("25MiB", "1KiB"..="4GiB"),
        /// How long a scan may take, by size.
        pub deadline: Deadline = part_by(|section| Deadline::secs(30, 4).read(section)),
        /// How long clamd goes on with a scan that was given up: its MaxScanTime
        pub linger: Duration = duration("2m", "0s"..="1h"),
        /// Scans at once at each address; 0 for clamd's MaxThreads
        pub scans: usize = number(0, 0..=10_000),
        /// How often clamd is checked
        pub check_every: Duration = duration("10s", "1s"..="1h"),
        /// How long that may take
        pub check_deadline: Duration = duration("5s", "1s"..="10m"),
        /// Whether it must find the EICAR test file before it is believed
        pub self_test: bool = flag(true),
        /// Older signatures are worth an alarm
        pub signature_age: Duration = duration("7d", "1h"..="366d"),
    }
}

/// The clamds of one site, or of one feed.
#[derive(Debug)]
pub struct Clamd {
    settings: Settings,
    endpoints: Vec<Arc<Endpoint>>,
    tasks: Vec<AbortHandle>,
}

impl Clamd {
    /// Begins to look after them. Must be called inside a runtime.
    pub fn start(settings: Settings) -> Clamd {
        let make = |address: &Address| Arc::new(Endpoint::new(address.clone(), &settings));
        let endpoints: Vec<Arc<Endpoint>> = settings.addresses.iter().map(make).collect();
        let watch = |endpoint: &Arc<Endpoint>| {
            supervision::spawn("clamd watch", endpoint.clone().watch(settings.clone())).abort_handle()
        };
        let tasks = endpoints.iter().map(watch).collect();
        Clamd { settings, endpoints, tasks }
    }

    /// How it is used.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How each is.
    pub fn conditions(&self) -> Vec<Condition> {
        self.endpoints.iter().map(|endpoint| endpoint.condition()).collect()
    }

    /// How many scans all of them take at once.
    pub fn width(&self) -> usize {
        self.endpoints.iter().map(|endpoint| endpoint.width()).sum()
    }

    /// Which signatures are in use, and whether that says when they change. Nothing is known while none is up.
    pub fn version(&self) -> (String, bool) {
        let mut versions: Vec<String> = Vec::new();
        let mut dated = true;
        for endpoint in &self.endpoints {
            if let State::Up(version) = &*endpoint.state.borrow() {
                dated &= version.signatures.is_some();
                versions.push(version.text.clone());
            }
        }
        versions.sort();
        versions.dedup();
        (versions.join(", "), dated && !versions.is_empty())
    }

    /// Has content scanned. Ends by itself, at the latest when clamd would have given up.
    pub async fn scan(&self, content: &Content) -> Outcome {
        if content.length() > self.settings.size {
            let limit = format!("larger than the {} MiB that go to clamd", self.settings.size >> 20);
            return Outcome::NotScanned { limit };
        }
        let deadline = self.settings.deadline.of(content.length());
        let mut problem = "no clamd is configured".to_owned();
        for endpoint in self.by_load() {
            match self.attempt(endpoint, content, deadline).await {
                Ok(outcome) => return outcome,
                Err(why) => problem = format!("clamd at {} {why}", endpoint.address),
            }
        }
        Outcome::Failed { problem }
    }

    /// The least busy first; those that are down last, for their reason.
    fn by_load(&self) -> Vec<&Arc<Endpoint>> {
        let mut order: Vec<&Arc<Endpoint>> = self.endpoints.iter().collect();
        order.sort_by_key(|endpoint| {
            let down = matches!(*endpoint.state.borrow(), State::Down(_));
            (down, std::cmp::Reverse(endpoint.places.available_permits()))
        });
        order
    }

    async fn attempt(&self, endpoint: &Endpoint, content: &Content, deadline: Duration) -> Result<Outcome, String> {
        self.ready(endpoint, deadline).await?;
        let place = timeout(deadline, endpoint.places.clone().acquire_owned()).await;
        let place = place.map_err(|_| format!("has been busy for {} s", deadline.as_secs()))?;
        let _place = place.map_err(|_| "is closed".to_owned())?;
        let most = deadline + self.settings.linger;
        let scanned = match timeout(most, exchange::scan(&endpoint.address, content)).await {
            Ok(Ok(scanned)) => scanned,
            Ok(Err(error)) => {
                endpoint.doubt();
                return Err(error.to_string());
            }
            Err(_) => {
                endpoint.doubt();
                return Err(format!("did not answer within {} s", most.as_secs()));
            }
        };
        Ok(match scanned {
            Scanned::Clean => Outcome::Clean,
            Scanned::Found(name) => Outcome::Infected { name },
            Scanned::Limit(limit) => Outcome::NotScanned { limit: format!("clamd: {limit}") },
            Scanned::Encrypted(name) => Outcome::Forbidden { reason: format!("it has a password ({name})") },
            Scanned::Error(problem) => return Err(format!("failed: {problem}")),
        })
    }

    /// Waits until it is known how it is.
    async fn ready(&self, endpoint: &Endpoint, patience: Duration) -> Result<(), String> {
        let mut state = endpoint.state.subscribe();
        let known = timeout(patience, state.wait_for(|state| *state != State::Unknown)).await;
        match known {
            Ok(Ok(state)) => match &*state {
                State::Down(problem) => Err(problem.clone()),
                _ => Ok(()),
            },
            _ => Err(format!("was not ready within {} s", patience.as_secs())),
        }
    }

    /// A scan did not come to an end in time: is it still there?
    pub fn doubt(&self) {
        self.endpoints.iter().for_each(|endpoint| endpoint.doubt());
    }
}

impl Drop for Clamd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
