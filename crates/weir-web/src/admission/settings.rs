//! How one backend's queue is set up.

use std::time::Duration;

use weir_core::fair::{self, Weight, Work};

use crate::exchange::QueueId;

/// Values outside the bounds are moved to the nearest bound.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    /// Its number in the exchange, the same at all front-ends.
    pub queue_id: QueueId,
    /// Requests that the backend works on at once.
    pub slots: Slots,
    /// The cost of a request before any was measured.
    pub first_estimate: Duration,
    /// How far a session may be set back, and the most that is charged at dispatch.
    pub debt_cap: Duration,
    /// Requests that may wait.
    pub queue: u32,
    /// Memory that waiting requests may hold.
    pub queue_bytes: u64,
    /// How long a request may wait.
    pub queue_timeout: Duration,
    /// When the task of a request that has no response yet is woken to look at the time.
    pub answer_within: Duration,
    /// When a response that still goes on after its first byte becomes a stream.
    pub stream_after: Duration,
    /// Streams (WebSocket, events, slow readers) that one session may have open.
    pub streams_per_session: u32,
    /// The same for all sessions of a subnet together; and no subnet has more than are left for others.
    pub streams_per_subnet: u32,
    /// The same for all subnets.
    pub streams: u32,
    /// Compute who would wait, and let nobody wait.
    pub observe: bool,
    /// The weight of a subnet without history.
    pub stranger_weight: f64,
    /// Whether a history below the average counts as the average.
    pub floor_history: bool,
    /// Sessions that are remembered.
    pub sessions: u32,
    /// Whether other front-ends are told; if so, reports must be drained.
    pub report: bool,
    /// Other front-ends whose reports are kept.
    pub peers: u8,
    /// How many routes lead here.
    pub routes: u16,
}

/// How the number of slots is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slots {
    Fixed(u32),
    /// By measuring latency, within bounds.
    Auto {
        start: u32,
        /// No fewer than this.
        least: u32,
        /// No more than this.
        most: u32,
    },
}

/// More slots are no queue at all.
const SLOTS_MAX: u32 = 65_535;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: String::from("default"),
            queue_id: QueueId(0),
            slots: Slots::Auto { start: 16, least: 2, most: 1_024 },
            first_estimate: Duration::from_millis(50),
            debt_cap: Duration::from_secs(5),
            queue: 10_000,
            queue_bytes: 256 << 20,
            queue_timeout: Duration::from_secs(30),
            answer_within: Duration::from_secs(60),
            stream_after: Duration::from_secs(1),
            streams_per_session: 32,
            streams_per_subnet: 512,
            streams: 8_192,
            observe: false,
            stranger_weight: 1.0,
            floor_history: true,
            sessions: 1 << 20,
            report: false,
            peers: 64,
            routes: 1,
        }
    }
}

impl Settings {
    pub(super) fn bounded(self) -> Settings {
        let slots = match self.slots {
            Slots::Fixed(slots) => Slots::Fixed(slots.clamp(1, SLOTS_MAX)),
            Slots::Auto { start, least, most } => {
                let least = least.clamp(1, SLOTS_MAX);
                let most = most.clamp(least, SLOTS_MAX);
                Slots::Auto { start: start.clamp(least, most), least, most }
            }
        };
        let hour = Duration::from_secs(3_600);
        Settings {
            slots,
            first_estimate: self.first_estimate.clamp(Duration::from_micros(10), hour),
            debt_cap: self.debt_cap.clamp(Duration::from_millis(10), hour),
            queue: self.queue.clamp(1, 1 << 24),
            queue_timeout: self.queue_timeout.clamp(Duration::from_millis(1), hour),
            stream_after: self.stream_after.clamp(Duration::from_millis(10), hour),
            streams_per_session: self.streams_per_session.max(1),
            streams_per_subnet: self.streams_per_subnet.max(1),
            streams: self.streams.max(1),
            sessions: self.sessions.clamp(16, 1 << 24),
            routes: self.routes.max(1),
            ..self
        }
    }

    pub(super) fn fair(&self, slots: u32) -> fair::Settings {
        fair::Settings {
            slots,
            debt_cap: Work(u64::try_from(self.debt_cap.as_nanos()).unwrap_or(u64::MAX)),
            stranger_weight: Weight::from_ratio(self.stranger_weight),
            floor_history: self.floor_history,
            waiting_max: self.queue,
            sessions_max: self.sessions,
            report: self.report,
            peers_max: self.peers,
            ..fair::Settings::default()
        }
    }
}
