//! What the console stands on: the gates, the settings to show, and who is logged in.

use crate::history::History;
use crate::logins::Logins;
use crate::pulse::Pulse;
use crate::session::Sessions;
use crate::steps::Steps;
use serde::Serialize;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use weir_lab::node::Node;
use weir_mail::desk::Desk;
use weir_web::proxy::Gate;

/// How often the gates are looked at, with somebody at the console and without.
const WATCHED: Duration = Duration::from_secs(2);
const UNWATCHED: Duration = Duration::from_secs(10);
/// A pulse that is older than this is taken again. A little less than [`WATCHED`]: whoever watches at that pace always gets the
/// next one, and everybody else shares it.
const PULSE_AGE: Duration = Duration::from_millis(1_900);
/// So long after the start charts are filled at the pace of somebody who watches.
const YOUNG: Duration = Duration::from_secs(60);
/// Pages that are kept current at once.
pub(crate) const STREAMS_MAX: usize = 64;

/// Everything behind the pages. Cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<Parts>);

/// What the console shows: the gates and the configuration.
pub struct Gates {
    /// The mail gates.
    pub desk: Desk,
    /// The web gate, if it runs.
    pub web: Option<Arc<Gate>>,
    /// The lab, if it runs.
    pub lab: Option<Node>,
    /// The configuration, to be shown.
    pub settings: Vec<SettingView>,
    /// The file that it comes from.
    pub settings_file: Option<String>,
    /// Names by which browsers may call us besides our address.
    pub hosts: Vec<String>,
}

/// The gates, and what the console knows by itself.
pub struct Parts {
    gates: Gates,
    /// Where we listen.
    pub address: SocketAddr,
    pub(crate) sessions: Sessions,
    pub(crate) logins: Logins,
    pub(crate) steps: Steps,
    pub(crate) history: Mutex<History>,
    /// Places for pages that are kept current.
    pub(crate) streams: Arc<Semaphore>,
    /// The last look at all gates; taken by one at a time.
    pulse: tokio::sync::Mutex<Option<Arc<Pulse>>>,
}

impl Deref for Parts {
    type Target = Gates;

    fn deref(&self) -> &Gates {
        &self.gates
    }
}

/// One setting, where it comes from, and what it means.
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
    /// What it may be.
    pub bounds: String,
    /// What it decides.
    pub about: String,
    /// The line of the file that set it.
    pub line: Option<usize>,
}

impl Site {
    /// A console for these gates that listens at `address`.
    pub fn new(mut gates: Gates, address: SocketAddr) -> Site {
        gates.hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        Site(Arc::new(Parts {
            gates,
            address,
            sessions: Sessions::default(),
            logins: Logins::default(),
            steps: Steps::default(),
            history: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            pulse: tokio::sync::Mutex::default(),
        }))
    }

    /// How all gates are doing, as of now or a moment ago.
    pub(crate) async fn pulse(&self) -> Arc<Pulse> {
        let mut last = self.0.pulse.lock().await;
        match &*last {
            Some(pulse) if pulse.at.elapsed() < PULSE_AGE => Arc::clone(pulse),
            _ => {
                let pulse = Arc::new(Pulse::take(self).await);
                self.0.history.lock().unwrap_or_else(PoisonError::into_inner).add(&pulse, Instant::now());
                *last = Some(Arc::clone(&pulse));
                pulse
            }
        }
    }

    /// Something was changed: the next look must not be an old one.
    pub(crate) async fn changed(&self) {
        *self.0.pulse.lock().await = None;
    }

    /// Looks at the gates again and again, so that charts have a past; run it as a task.
    pub async fn watch(self) {
        let begun = Instant::now();
        loop {
            self.pulse().await;
            let watched = self.streams.available_permits() < STREAMS_MAX || begun.elapsed() < YOUNG;
            tokio::time::sleep(if watched { WATCHED } else { UNWATCHED }).await;
        }
    }

    /// The history so far.
    pub(crate) fn history(&self) -> History {
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Site {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
