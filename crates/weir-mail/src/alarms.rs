//! A channel for alarms to the operator. Parts of the gate that start before the notices are ready can already hold on to it; an alarm that
//! is raised while nobody listens is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use weir_smtp::reception::Alarm;

/// Takes an alarm; does not wait.
type Listener = Arc<dyn Fn(Alarm) + Send + Sync>;

/// Alarms on their way to a listener. Cheap to clone; all clones have the same listener.
#[derive(Clone, Default)]
pub struct Alarms {
    listener: Arc<Mutex<Option<Listener>>>,
}

impl Alarms {
    /// From now on alarms go to this listener, which must not wait.
    pub fn connect(&self, listener: impl Fn(Alarm) + Send + Sync + 'static) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(listener));
    }

    /// Lets go of the listener. It may hold on to the part that raises alarms, which must end.
    pub fn disconnect(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Tells the operator. Does not wait; without a listener nobody hears it.
    pub fn raise(&self, alarm: Alarm) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener(alarm);
        }
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarms")
    }
}
