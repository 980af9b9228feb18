//! Mail scanning feeds: which worker scans which message next, and which size limits make the mean wait least.
//!
//! N feeds stand side by side. Feed k takes messages of at most s_k bytes; the last has no limit and is kept for what is larger than
//! s_{N−1}. Three strategies ([`Strategy`]) share one [`Plan`]: by size, by size and load (both the paper's), and shortest first within
//! limits (ours). [`Dispatch`] is the live decision, [`evaluate`] the same rules on a recorded or drawn trace, [`Mg1`] the paper's
//! formulas, and [`best_limits`], [`Evolution`] and [`nelder_mead`] search for limits. [`Opening`] says when limits are not applied, so
//! that no mail waits longer than in a single queue; [`Outage`] and [`Patience`] say what is tried again when scanners fail.
//!
//! Source: Perry and Thomas, *Optimal Queueing Strategies for Email Virus Scanning*; equation numbers are theirs.
//! Feeds and classes are counted from 0 here, so the paper's q_1 is feed 0. Nothing here draws random numbers or
//! runs threads: randomness is an argument, and searches hand out batches that the caller may evaluate in parallel.

mod arrival;
mod dispatch;
mod dynamic;
mod evolution;
mod limits;
mod machine;
mod mg1;
mod nelder_mead;
mod objective;
mod opening;
mod outage;
mod patience;
mod plan;
mod replay;
mod running;
mod service;
mod size_table;
mod trace;
mod waiting_line;

pub use arrival::{Arrival, Served};
pub use dispatch::{Backlog, Dispatch, DispatchError, Message, MessageId, Placed, SenderId, Started, WorkerId};
pub use dynamic::best_limits;
pub use evolution::{Evolution, SearchSpace};
pub use limits::{FEEDS_MAX, Limits, LimitsError};
pub use machine::Machine;
pub use mg1::{FeedModel, Mg1};
pub use nelder_mead::{Minimum, nelder_mead};
pub use objective::{LastLimit, Objective, Weights};
pub use opening::Opening;
pub use outage::Outage;
pub use patience::{AfterFailure, Patience};
pub use plan::{InForce, Plan, Strategy};
pub use replay::replay;
pub use service::{Load, Service};
pub use size_table::{Moments, SizeTable, TABLE_POINTS};
pub use trace::{evaluate, mean_wait_s};
pub use waiting_line::{Spot, WaitingLine};
