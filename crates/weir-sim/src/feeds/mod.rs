//! The scan feeds' experiments: a stream of mail through the feeds, the paper's tables, and the search for limits.
//!
//! Every figure is a function of the settings and a seed. Messages arrive as a Poisson process; sizes come from a named
//! distribution or from the user's own list. See `docs/algorithms/feeds.md`.

mod beside_line;
mod bounds;
mod experiment;
mod exponential;
mod paper;
mod parallel;
mod plot;
mod sizes;
mod stream;
mod tune;
mod waits;

pub use beside_line::{BesideLine, LineRow};
pub use experiment::{Experiment, PerClass, PerFeed, Report};
pub use exponential::Exponential;
pub use paper::{Comparison, Paper, PaperServer, PaperTask, Policy, ServerStrategy, StrategyColumn};
pub use plot::{paper_svg, report_svg, tuned_svg};
pub use sizes::{SIZES_MAX, Sizes};
pub use stream::ArrivalStream;
pub use tune::{Found, Judged, SearchProgress, TuneTask, Tuned};

use weir_core::feeds::Strategy;

/// A strategy as the command line and the JSON name it.
pub fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Size => "size",
        Strategy::SizeLoad => "size-load",
        Strategy::Shortest => "shortest",
    }
}
