//! The results of a run: what each client was served in each interval, and what its ideal share would have been.

use super::front_end::Scheduler;
use super::ideal::{Share, water_fill};
use super::scenario::Scenario;
use super::subnet::weight;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a scheduler made of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchedulerOutcome {
    /// Which scheduler.
    pub scheduler: Scheduler,
    /// One entry for each stretch of time in which no client came or went.
    pub intervals: Vec<Interval>,
}

/// A stretch of time in which the same clients were there. Rates are in work units a second; clients that are
/// not there are left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Its beginning.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// What each client was served, of all servers together.
    pub rates: BTreeMap<String, f64>,
    /// Its weighted max-min share.
    pub ideal: BTreeMap<String, f64>,
    /// What each client was served, for each server.
    pub servers: BTreeMap<String, BTreeMap<String, f64>>,
}

impl SchedulerOutcome {
    /// The largest deviation of a client from its ideal in any interval, in percent of the ideal.
    pub fn worst_percent(&self) -> f64 {
        self.intervals.iter().map(Interval::worst_percent).fold(0.0, f64::max)
    }
}

impl Interval {
    /// The largest deviation of a client from its ideal, in percent of the ideal.
    pub fn worst_percent(&self) -> f64 {
        let deviation = |(name, rate): (&String, &f64)| (rate / self.ideal[name] - 1.0).abs() * 100.0;
        self.rates.iter().map(deviation).fold(0.0, f64::max)
    }

    /// An interval with its ideal; `served(client, server)` is the work done in it.
    pub(super) fn new(
        scenario: &Scenario,
        (from_s, to_s): (f64, f64),
        served: impl Fn(usize, usize) -> f64,
    ) -> Interval {
        let here: Vec<usize> = (0..scenario.clients.len())
            .filter(|i| scenario.clients[*i].from_s <= from_s && scenario.clients[*i].to_s >= to_s)
            .collect();
        let name = |i: &usize| scenario.clients[*i].name.clone();
        let edges = scenario.edges();
        let rate = |i: &usize, j: &usize| served(*i, *j) / (to_s - from_s);
        let rates = here.iter().map(|i| (name(i), edges[*i].iter().map(|j| rate(i, j)).sum())).collect();
        let ideal = here.iter().map(name).zip(ideal(scenario, &here)).collect();
        let server = |j: usize| {
            let users = here.iter().filter(|i| edges[**i].contains(&j));
            (scenario.servers[j].name.clone(), users.map(|i| (name(i), rate(i, &j))).collect())
        };
        let servers = (0..scenario.servers.len()).map(server).collect();
        Interval { from_s, to_s, rates, ideal, servers }
    }
}

/// The max-min shares of the clients that are there, weighted by RATE.
fn ideal(scenario: &Scenario, here: &[usize]) -> Vec<f64> {
    let (subnets, history) = scenario.subnets();
    let edges = scenario.edges();
    let share = |i: &usize| -> Share {
        let active = here.iter().filter(|other| subnets[**other] == subnets[*i]).count();
        (weight(&history, subnets[*i], active), edges[*i].iter().fold(0, |mask, j| mask | 1 << j))
    };
    let capacities: Vec<f64> = scenario.servers.iter().map(|server| server.rate).collect();
    water_fill(&capacities, &here.iter().map(share).collect::<Vec<_>>())
}
