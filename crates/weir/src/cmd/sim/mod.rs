//! `weir sim`: the experiments of the papers, and simulations with your own parameters.

mod election;
mod fair;
mod feeds;
mod runq;
pub(crate) mod throttle;

use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Sim {
    // Throttle and Election have their texts at their arguments. A text here would hide the long ones there.
    Throttle(throttle::Args),
    /// Simulate how long mail waits in the feeds of the scan
    Feeds(feeds::Args),
    /// Simulate which share of several servers each client gets
    Fair(fair::Args),
    /// Simulate the lab's run queues while machines and VMs fail
    Runq(runq::Args),
    Election(election::Args),
}

impl Sim {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Sim::Throttle(args) => args.run(out),
            Sim::Feeds(args) => args.run(out),
            Sim::Fair(args) => args.run(out),
            Sim::Runq(args) => args.run(out),
            Sim::Election(args) => args.run(out),
        }
    }
}
