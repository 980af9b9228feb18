//! One round: a plan through a side, from the first message until the sink has all that is clean.

use crate::client::{Plan, Sent};
use crate::mix::Class;
use crate::side::Side;
use crate::sink::Sink;
use std::fmt;
use std::time::Duration;

/// After a round a side gets this long to tidy up; it counts as its processor time.
const REST: Duration = Duration::from_millis(300);

/// What a round showed.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) per_s: f64,
    pub(crate) small: Times,
    pub(crate) large: Times,
    /// Seconds of processor time for 1 000 messages, without clamd's.
    pub(crate) cpu_s: f64,
    pub(crate) rss_mb: f64,
    pub(crate) pss_mb: f64,
    pub(crate) infected: usize,
    /// Of these, what arrived all the same.
    pub(crate) leaked: usize,
}

/// Times in system, in seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) mean_s: f64,
    pub(crate) p95_s: f64,
}

impl Times {
    pub(crate) fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        let Some(p95_s) = times.get((times.len() * 95 / 100).min(times.len().saturating_sub(1))).copied() else {
            return Times { mean_s: f64::NAN, p95_s: f64::NAN };
        };
        Times { mean_s: times.iter().sum::<f64>() / times.len() as f64, p95_s }
    }
}

/// Plays a round.
pub(crate) async fn play(side: &Side, plan: &Plan, sink: &Sink) -> Round {
    let before = side.cpu();
    let sent = plan.send(side.port()).await;
    sink.wait(sent.iter().filter(|sent| sent.class != Class::Infected).map(|sent| sent.number).collect()).await;
    tokio::time::sleep(REST).await;
    let took = |sent: &Sent| Some(sink.came(sent.number)?.duration_since(sent.due).as_secs_f64());
    let times = |class| Times::of(sent.iter().filter(|sent| sent.class == class).filter_map(took).collect());
    let infected: Vec<&Sent> = sent.iter().filter(|sent| sent.class == Class::Infected).collect();
    let first = sent.iter().map(|sent| sent.due).min();
    let last = sent.iter().filter_map(|sent| sink.came(sent.number)).max();
    let whole = first.zip(last).map_or(f64::NAN, |(first, last)| last.duration_since(first).as_secs_f64());
    Round {
        per_s: sent.len() as f64 / whole,
        small: times(Class::Small),
        large: times(Class::Large),
        cpu_s: (side.cpu() - before).as_secs_f64() / sent.len() as f64 * 1000.0,
        rss_mb: side.rss_mb(),
        pss_mb: side.pss_mb(),
        leaked: infected.iter().filter(|sent| sink.came(sent.number).is_some()).count(),
        infected: infected.len(),
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round { per_s, small, large, leaked, infected, .. } = self;
        write!(f, "{per_s:.1}/s, small mean {:.1} ms, p95 {:.1} ms", small.mean_s * 1e3, small.p95_s * 1e3)?;
        write!(f, ", large mean {:.0} ms, p95 {:.0} ms", large.mean_s * 1e3, large.p95_s * 1e3)?;
        write!(f, ", {leaked} of {infected} infected passed")
    }
}
