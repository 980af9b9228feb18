//! The exchange between front-ends: how much service each session has received, and which sessions are active.
//!
//! The thesis (section 3.1) has a *hitserver* that passes every event on to every front-end. Here front-ends send **totals** in
//! numbered [`frame`]s, through one or two [`relay`]s (our hitserver), through [`nats`], or both at once. Frames may be lost, repeated
//! and reordered: a lost one is noticed by its number and asked for again ([`link`]), and a repeated one changes nothing. A front-end
//! that has been silent for two seconds is forgotten. Without any carrier there is an alarm, and each front-end is fair by itself; no
//! request is refused for that.
//!
//! [`service`] is the thread that runs all this. The admission gives it a [`SharedQueue`] for each backend; `docs/web-exchange.md` tells the rest.

pub mod frame;
pub mod link;
pub mod nats;
pub mod relay;
pub mod service;

mod backoff;
mod carrier;
mod documents;
mod incarnation;
mod journal;
mod peers;
mod settings;
mod shared_queue;
mod status;

pub use carrier::CarrierState;
pub use frame::DocumentId;
pub use peers::PeerStatus;
pub use service::{Exchange, ExchangeError, Learning, Settings};
pub use settings::{ExchangeSettings, HistorySettings};
pub use shared_queue::{QueueId, SharedQueue};
pub use status::{Alarm, Counters, Status};
