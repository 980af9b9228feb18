//! What front-ends tell each other: service received and sessions active.
//!
//! The thesis (section 3.1) has a *hitserver* that passes every event on to every front-end. Here front-ends send **totals** in
//! numbered [`frame`]s, through one or two [`relay`]s (our hitserver), through [`nats`], or both at once. Frames may be lost, repeated
//! and reordered: a lost one is noticed by its number and asked for again ([`link`]), and a repeated one changes nothing. A front-end
//! that has been silent for two seconds is forgotten. Without any carrier there is an alarm and local fairness, never a refusal.
//!
//! [`service`] is the thread that runs all this. The admission gives it a [`Board`] for each backend; `docs/web-exchange.md` tells the rest.

pub mod frame;
pub mod link;
pub mod nats;
pub mod relay;
pub mod service;

mod backoff;
mod carrier;
mod journal;
mod life;
mod peers;
mod shelf;
mod status;

pub use carrier::CarrierState;
pub use frame::DocumentId;
pub use peers::PeerStatus;
pub use service::{Exchange, ExchangeError, Learning, Settings};
pub use status::{Alarm, Counters, Status};

use std::sync::Arc;
use weir_core::fair::{PeerId, Profile, Report};

/// A backend, the same number on every front-end of the cluster (keyed hash of the backend's name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoardId(pub u64);

/// One backend's scheduler, as the exchange sees it.
pub trait Board: Send + Sync {
    /// Same on every front-end of the cluster.
    fn id(&self) -> BoardId;
    /// Takes what is to be told to others, at most `most`, into `out`.
    fn drain(&self, most: usize, out: &mut Vec<Report>);
    /// Heard from another front-end; see [`weir_core::fair::Fair::hear`].
    fn hear(&self, peer: PeerId, number: u64, report: &Report);
    /// A front-end has fallen silent; see [`weir_core::fair::Fair::forget_peer`].
    fn forget_peer(&self, peer: PeerId);
    /// Everything is to be told again (a new or returned listener).
    fn report_all(&self);
    /// A new history profile.
    fn adopt(&self, profile: &Arc<Profile>);
}
