//! A request for a slot, and why it may be refused.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use weir_core::fair::{SessionKey, SubnetKey};

use super::estimate::Class;
use super::streams::Owner;

/// A request for a slot: who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The session that is charged.
    pub session: SessionKey,
    pub subnet: SubnetKey,
    /// What the client has shown: whether it is known, a newcomer or a stranger.
    pub standing: Standing,
    /// Only displayed.
    pub client: IpAddr,
    /// What it is expected to cost.
    pub class: Class,
    /// How much memory it holds while it waits.
    pub bytes: u32,
    /// How long it waits at most; the queue's own limit applies as well.
    pub patience: Duration,
}

impl Ask {
    pub(super) fn owner(&self) -> Owner {
        Owner { session: self.session, subnet: self.subnet }
    }
}

/// What a client has shown about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has a cookie that is old enough, or the site requires none.
    Known,
    /// A cookie that is too young.
    New,
    Stranger,
}

/// What a request is charged when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cost {
    /// For as long as it held its slot.
    #[default]
    Time,
    /// The same, but no less than usual, so that a client gains nothing by leaving before the response has told what it costs.
    TimeOrUsual,
    /// What the server says, in slot time.
    Told(Duration),
}

/// The client side of a response.
pub trait Reader: fmt::Debug + Send + Sync {
    /// Ends the response early.
    fn cut(&self);

    /// Notes whether the server has to wait, because what it sent is not read and there is no more room for it.
    fn blocks(&self, blocks: bool);

    /// How long the server had to wait in all.
    fn blocked(&self) -> Duration;
}

/// Why a request may not wait, or not any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionRefusal {
    /// The queue is full, and no other subnet has more requests in it.
    QueueFull,
    /// Waiting requests use all the memory that they may, and no other subnet uses more of it.
    QueueBytes,
    /// As many sessions are remembered as allowed, and none is idle.
    Sessions,
    /// As many streams are open as allowed: for the session, for its subnet, or in all.
    Streams,
    /// It waited for the longest time allowed.
    Timeout,
    /// Its body came so slowly that its slot was given to another request.
    Upload,
    /// The queue was full, and a request came from a subnet that has fewer waiting.
    PushedOut,
    /// Its response was read so slowly that its slot was given to another request.
    Reading,
}

impl AdmissionRefusal {
    /// All reasons, in the order of the counters.
    pub const ALL: [AdmissionRefusal; 8] = [
        AdmissionRefusal::QueueFull,
        AdmissionRefusal::QueueBytes,
        AdmissionRefusal::Sessions,
        AdmissionRefusal::Streams,
        AdmissionRefusal::Timeout,
        AdmissionRefusal::Upload,
        AdmissionRefusal::PushedOut,
        AdmissionRefusal::Reading,
    ];

    /// The reason in one word, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            AdmissionRefusal::QueueFull => "queue_full",
            AdmissionRefusal::QueueBytes => "queue_bytes",
            AdmissionRefusal::Sessions => "sessions",
            AdmissionRefusal::Streams => "streams",
            AdmissionRefusal::Timeout => "timeout",
            AdmissionRefusal::Upload => "upload",
            AdmissionRefusal::PushedOut => "pushed_out",
            AdmissionRefusal::Reading => "reading",
        }
    }
}
