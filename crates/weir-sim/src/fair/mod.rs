//! Shares of clients across replicated servers: the thesis's experiment and the user's what-ifs.
//!
//! A scenario says which clients keep requests waiting at which servers, and when. [`run`] plays it on
//! the virtual clock: each server has a front-end with a scheduler, and the front-ends tell each other of
//! service after a delay. The result is what each client was served in each interval between two comings or
//! goings, beside its ideal share: the weighted max-min allocation over the graph of clients and servers.
//!
//! Rates are measured by the work done, not by requests completed: a request in service counts in an
//! interval by the part of its service time that lies in it. A quarter of a second of work at an interval's
//! edge is thus split, and nothing is rounded to whole requests.

mod chart;
mod front_end;
mod ideal;
mod interval;
mod naive;
mod scenario;
mod simulation;
mod subnet;

pub use chart::chart;
pub use front_end::Scheduler;
pub use ideal::{Share, water_fill};
pub use interval::{Interval, SchedulerOutcome};
pub use naive::Naive;
pub use scenario::{Client, Scenario, Server};
pub use simulation::{Timeline, run};
pub use subnet::Subnet;
