//! The settings of one backend's queue.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_core::fair::{self, SubnetKey, Weight, Work};
use weir_settings::settings;

use crate::exchange::QueueId;

settings! {
    /// How one backend's queue is set up. Values outside the bounds are moved to the nearest bound.
    pub struct Settings {
        pub name: String = fixed("default".to_owned()),
        /// Its number in the exchange, the same at all front-ends.
        pub queue_id: QueueId = fixed(QueueId(0)),
        /// Requests that a backend works on at once; auto is found by measuring
        pub slots: Slots = text("auto", "auto or \"1\" … \"65535\"")
            .valid(|text| text.parse::<Slots>().map(drop))
            .map(|text| text.parse().unwrap_or(Slots::AUTO)),
        /// Let nobody wait, and only compute who would have to
        pub observe: bool = flag(false),
        /// Requests that may wait at a backend
        pub queue: u32 = number(10_000, 1..=16_000_000),
        /// Memory that waiting requests may hold
        pub queue_bytes as "queue_size": u64 = size("256MiB", "64KiB"..="1024GiB"),
        /// How long a request may wait before it is answered with 503
        pub queue_timeout: Duration = duration("30s", "1ms"..="1h"),
        /// How far service elsewhere and overruns set a session back, in slot time: 5 to 20 requests
        pub debt_cap: Duration = duration("5s", "10ms"..="1h"),
        /// How long a slow client may hold a slot, by sending or reading slowly, before it loses it to others who wait
        pub stream_after: Duration = duration("1s", "10ms"..="1h"),
        /// Open streams (WebSocket, events) of one session
        pub streams_per_session: u32 = number(32, 1..=1_000_000),
        /// Open streams of all sessions of a subnet; never more than are left for others
        pub streams_per_subnet: u32 = number(512, 1..=1_000_000),
        /// Open streams of a backend, in all
        pub streams: u32 = number(8_192, 1..=1_000_000),
        /// Sessions that a backend's queue remembers
        pub sessions: u32 = number(1 << 20, 16..=1 << 24),
        /// The history of a subnet without one, in multiples of the average
        pub stranger_weight: f64 = number(1.0, 0.001..=1_000_000.0),
        /// How many known visitors all strangers together count as while a backend is overloaded; 0.0 treats strangers like everybody
        pub strangers: f64 = number(8.0, 0.0..=1_000_000.0),
        /// How old a visitor's cookie must be for the visitor to be known; at most a third of web.identity.cookie_lifetime
        pub standing_after: Duration = duration("5m", "0s"..="30d"),
        /// What clients with a key weigh, in visitors.
        pub weights: Vec<(SubnetKey, u32)> = fixed(Vec::new()),
        /// The cost of a request before any was measured.
        pub first_estimate: Duration = fixed(Duration::from_millis(50)),
        /// When the task of a request that has no response yet is woken to look at the time.
        pub answer_within: Duration = fixed(Duration::from_secs(60)),
        /// Whether a history below the average counts as the average
        pub floor_history: bool = flag(true),
        /// Whether other front-ends are told; if so, reports must be drained.
        pub report: bool = fixed(false),
        /// Other front-ends whose reports are kept.
        pub peers: u8 = fixed(64),
        /// How many routes lead here.
        pub routes: u16 = fixed(1),
        /// What a request of each route is taken to cost until one was measured.
        pub route_costs: Vec<Option<Duration>> = fixed(Vec::new()),
        /// Whether the responses of each route tell what they have cost.
        pub route_units: Vec<bool> = fixed(Vec::new()),
    }
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

/// With more slots than this there would be no queue at all.
const SLOTS_MAX: u32 = 65_535;

impl Slots {
    /// What `auto` means.
    pub const AUTO: Slots = Slots::Auto { start: 16, least: 1, most: 1_024 };
}

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Slots, String> {
        if text == "auto" {
            return Ok(Slots::AUTO);
        }
        let number = text.parse().ok().filter(|number: &u16| *number > 0);
        let wrong = || format!("{text:?} is no number of slots: write auto or 1 … {SLOTS_MAX}");
        number.map(|number| Slots::Fixed(number.into())).ok_or_else(wrong)
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slots::Auto { .. } => f.write_str("auto"),
            Slots::Fixed(number) => number.fmt(f),
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
