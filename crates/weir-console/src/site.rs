//! [`Site`]: everything that the console needs, that is the gates, the settings to show, and who is logged in.

use crate::gates::Gates;
use crate::history::History;
use crate::incidents::IncidentWatch;
use crate::looks::{EVERY, Looks, unwatched_pause};
use crate::past::{self, Over, PastView, Recorder};
use crate::pulse::Pulse;
use serde::Serialize;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};
use weir_foundation::identity_provider::IdentityProvider;
use weir_store::past::Past;

/// How long after somebody's last request the state of the gates is still read for them.
const LINGERS: Duration = Duration::from_secs(60);
/// How many pages are kept current at once.
pub(crate) const STREAMS_MAX: usize = 64;

/// Everything behind the pages. Cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<SiteParts>);

/// The configuration, as far as the console shows or needs it.
#[derive(Clone)]
pub struct Configuration {
    /// All settings, to be shown.
    pub settings: CurrentSettings,
    /// The file that it comes from.
    pub settings_file: Option<String>,
    /// Names by which browsers may reach us, in addition to our address.
    pub hosts: Vec<String>,
    /// The identity provider by which people may log in.
    pub identity_provider: Option<IdentityProvider>,
}

/// The settings in force, which a reload changes. Cheap to clone; all clones share them.
#[derive(Debug, Clone, Default)]
pub struct CurrentSettings(Arc<RwLock<Arc<Vec<SettingView>>>>);

impl CurrentSettings {
    /// Starts with these settings.
    pub fn new(settings: Vec<SettingView>) -> CurrentSettings {
        CurrentSettings(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// Other settings are in force now.
    pub fn replace(&self, settings: Vec<SettingView>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// As they are now.
    pub fn now(&self) -> Arc<Vec<SettingView>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The gates, and the console's own state.
pub struct SiteParts {
    gates: Gates,
    pub(crate) configuration: Configuration,
    /// Where the console listens.
    pub address: SocketAddr,
    pub(crate) looks: Looks,
    past: Past,
    recorder: Mutex<Recorder>,
    /// Places for pages that are kept current.
    pub(crate) streams: Arc<Semaphore>,
}

impl Deref for SiteParts {
    type Target = Gates;

    fn deref(&self) -> &Gates {
        &self.gates
    }
}

/// One setting, where its value comes from, and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingView {
    /// The section, such as `throttle`.
    pub section: String,
    /// The key in it.
    pub key: String,
    /// The value in force.
    pub value: String,
    /// The default.
    pub default: String,
    /// Which values are allowed.
    pub bounds: String,
    /// What it decides.
    pub about: String,
    /// The line of the file that set it.
    pub line: Option<usize>,
    /// Whether `--demo` set it, whatever the file says.
    pub by_demo: bool,
    /// Whether the file has another value by now, which takes effect at a restart.
    pub waits: bool,
}

impl Site {
    /// A console for these gates that listens at `address`.
    pub fn new(gates: Gates, mut configuration: Configuration, address: SocketAddr) -> Site {
        configuration.hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        let foundation = &gates.administration.foundation;
        let past = Past::new(foundation.records.clone(), foundation.folder.past(), &foundation.relay);
        Site(Arc::new(SiteParts {
            past,
            recorder: Mutex::default(),
            gates,
            configuration,
            address,
            looks: Looks::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }))
    }

    /// The state of all gates a moment ago, for pages.
    pub(crate) async fn pulse(&self) -> Arc<Pulse> {
        self.looks.shown(Pulse::take(&self.gates)).await
    }

    /// The same for programs, but fresh.
    pub(crate) async fn fresh_pulse(&self) -> Arc<Pulse> {
        self.looks.fresh(Pulse::take(&self.gates)).await
    }

    /// Something was changed, so the next look must be a new one.
    pub(crate) fn changed(&self) {
        self.looks.changed();
    }

    /// Reads the state of the gates again and again, so that pages need not wait and charts have a past; run it as a task.
    pub async fn watch(self) {
        let mut incidents = IncidentWatch::new(&self.gates);
        loop {
            let begun = Instant::now();
            let pulse = self.looks.next(Pulse::take(&self.gates)).await;
            self.record().await;
            incidents.look(&pulse).await;
            let due = begun + unwatched_pause(begun.elapsed());
            tokio::time::sleep(EVERY).await;
            // A page that is kept current counts as a request again and again.
            while Instant::now() < due && !self.sessions.any_seen(Instant::now(), LINGERS) {
                tokio::select! {
                    () = self.looks.wanted() => break,
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
        }
    }

    /// Stores what the last look saw.
    async fn record(&self) {
        let Some(reading) = self.looks.history().last() else { return };
        let over = self.recorder.lock().await.add(reading, crate::words::now());
        if let Some(minute) = over
            && let Err(error) = past::write(&self.past, minute).await
        {
            tracing::warn!(%error, "a minute of the past cannot be written; charts will have a hole");
        }
    }

    /// The history, with charts over a longer time if that is asked for. If there is none, the last minutes are shown.
    pub(crate) async fn history_over(&self, over: Over) -> History {
        let past = PastView::read(&self.past, over, crate::words::now()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the past cannot be read");
            None
        });
        self.history().over(past)
    }

    /// The history so far.
    pub(crate) fn history(&self) -> History {
        self.looks.history()
    }
}

impl Deref for Site {
    type Target = SiteParts;

    fn deref(&self) -> &SiteParts {
        &self.0
    }
}
