//! A request for a slot, and why it may be refused.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use weir_core::fair::{SessionKey, SubnetKey};

use super::estimate::Class;
use super::streams::Owner;

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The session that pays.
    pub session: SessionKey,
    pub subnet: SubnetKey,
    /// Whether it is known.
    pub standing: Standing,
    /// Shown in views.
    pub client: IpAddr,
    /// What it is expected to cost.
    pub class: Class,
    /// What it keeps in memory while it waits.
    pub bytes: u32,
    /// How long it waits at most; the queue's own bound holds, too.
    pub patience: Duration,
}

impl Ask {
    pub(super) fn owner(&self) -> Owner {
        Owner { session: self.session, subnet: self.subnet }
    }
}

/// What a client has to show for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has a cookie that is old enough, or the site asks for none.
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

/// Who takes a response.
pub trait Reader: fmt::Debug + Send + Sync {
    /// Breaks the response off.
    fn cut(&self);

    /// Notes whether the server has to wait, because what it sent is not taken and there is no more room for it.
    fn blocks(&self, blocks: bool);

    /// For how long the server had to wait, in all.
    fn blocked(&self) -> Duration;
}

/// Why a request may not even wait, or not any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The queue is full, and no other subnet has more requests in it.
    QueueFull,
    /// Waiting requests use all the memory that they may, and no other subnet uses more of it.
    QueueBytes,
    /// As many sessions are known as may be, and none is idle.
    Sessions,
    /// There are as many open streams as there may be: of the session, of its subnet, or in all.
    Streams,
    /// It waited for as long as it may.
    Timeout,
    /// Its body came so slowly that its slot went to somebody else.
    Upload,
    /// The queue was full, and somebody of a subnet that has less waiting came.
    PushedOut,
    /// Its response was taken so slowly that its slot went to somebody else.
    Reading,
}

impl Refused {
    /// All reasons, in the order of the counters.
    pub const ALL: [Refused; 8] = [
        Refused::QueueFull,
        Refused::QueueBytes,
        Refused::Sessions,
        Refused::Streams,
        Refused::Timeout,
        Refused::Upload,
        Refused::PushedOut,
        Refused::Reading,
    ];

    /// The reason in one word, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Refused::QueueFull => "queue_full",
            Refused::QueueBytes => "queue_bytes",
            Refused::Sessions => "sessions",
            Refused::Streams => "streams",
            Refused::Timeout => "timeout",
            Refused::Upload => "upload",
            Refused::PushedOut => "pushed_out",
            Refused::Reading => "reading",
        }
    }
}
