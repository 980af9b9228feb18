//! Counters of what the server has done so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that only grow, shared by all sessions.
        #[derive(Debug, Default)]
        pub struct Counters { $(pub(crate) $name: Counter,)* }

        /// The counters at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Their values now.
            pub fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.value(),)* }
            }
        }

        impl CounterValues {
            /// Names and values, for an exporter.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Connections taken.
    connections,
    /// Connections turned away: too many, or the address is banned.
    connections_refused,
    /// TLS handshakes done.
    tls_handshakes,
    /// TLS handshakes that failed or took too long.
    tls_failures,
    /// Logins accepted.
    logins,
    /// Logins refused.
    logins_failed,
    /// Bans begun.
    bans,
    /// Senders refused by the gate.
    senders_refused,
    /// Recipients accepted.
    recipients,
    /// Recipients refused by the gate.
    recipients_refused,
    /// Messages accepted.
    messages,
    /// Messages refused after their text came, for now or for good.
    messages_refused,
    /// Messages broken off or refused for their form.
    messages_aborted,
    /// Octets of message text.
    message_bytes,
    /// Sessions ended for being slow.
    timeouts,
    /// Sessions ended for errors, junk, endless lines or foreign protocols.
    abuses,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    pub(crate) fn up(&self) {
        self.add(1);
    }

    fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
