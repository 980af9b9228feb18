//! The time as certificates count it. Tests pass in clocks of their own.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A clock that shows the calendar time. Cheap to clone.
#[derive(Clone)]
pub struct CalendarClock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl CalendarClock {
    /// A clock that returns what `now` returns.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> CalendarClock {
        CalendarClock(Arc::new(now))
    }

    /// The present time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl Default for CalendarClock {
    fn default() -> CalendarClock {
        CalendarClock::new(SystemTime::now)
    }
}

impl fmt::Debug for CalendarClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CalendarClock").field(&self.now()).finish()
    }
}

impl TimeProvider for CalendarClock {
    fn current_time(&self) -> Option<UnixTime> {
        self.now().duration_since(SystemTime::UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}
