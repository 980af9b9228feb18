//! A trace of arrivals through the feeds: the same rules as [`super::Dispatch`], with service times known.
//!
//! One worker per feed, nothing random. With *size* and *size and load* the start of a message follows from when its feed will be empty,
//! O(N) per message; *shortest first* replays the waiting line, O(N + log n). Every message is reported once, when its scan starts. With
//! limits that are switched on and off ([`super::Opening`]) it costs about thirty times as much.

use super::plan::TieRule;
use super::{Arrival, Load, Machine, Mg1, Objective, Plan, Served, Service, SizeTable, Strategy, WaitingLine, replay};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Runs a trace through the feeds and reports each message as its scan starts.
pub fn evaluate(
    arrivals: impl IntoIterator<Item = Arrival>,
    service: &Service,
    plan: &Plan,
    mut served: impl FnMut(Served),
) {
    match plan.strategy {
        // Whether limits give way depends on the shadows of the dispatch, so here the dispatch itself runs.
        _ if plan.opens => {
            let feeds = plan.limits.feeds();
            replay(arrivals, service, plan, &Machine { workers: vec![1; feeds], cpus: feeds }, &mut served);
        }
        Strategy::Size | Strategy::SizeLoad => by_feed(arrivals, service, plan, served),
        Strategy::Shortest => by_line(arrivals, service, plan, served),
    }
}

/// W of a trace (eq. 7): the weighted waits of the messages that count, divided by the number of all messages.
/// Infinite without simulation if the feeds cannot handle the load permanently (eq. 5).
pub fn mean_wait_s(trace: &[Arrival], table: &SizeTable, load: &Load, plan: &Plan, objective: &Objective) -> f64 {
    let counted = objective.feeds_counted(plan.limits.feeds());
    if !Mg1::new(table, *load).bears(plan, objective) {
        return f64::INFINITY;
    }
    let mut total = 0.0;
    evaluate(trace.iter().copied(), &load.service, plan, |message| {
        if message.class < counted && message.wait_ns > 0 {
            total += objective.weights.of(message.size) * message.wait_ns as f64;
        }
    });
    total / 1e9 / trace.len().max(1) as f64
}

fn by_feed(
    arrivals: impl IntoIterator<Item = Arrival>,
    service: &Service,
    plan: &Plan,
    mut served: impl FnMut(Served),
) {
    let feeds = plan.limits.feeds();
    let choices: Vec<Range<usize>> = (0..feeds).map(|class| plan.feeds_for(class)).collect();
    let mut empty_at = vec![0u64; feeds];
    let rule = TieRule::read();
    for Arrival { at, size } in arrivals {
        let class = plan.limits.class_of(size);
        let feed = Plan::least_loaded(rule, choices[class].clone(), |i| empty_at[i].max(at.0));
        let start = empty_at[feed].max(at.0);
        let service_ns = service.time_ns(size);
        empty_at[feed] = start.saturating_add(service_ns);
        served(Served { size, class, feed, wait_ns: start - at.0, service_ns });
    }
}

fn by_line(
    arrivals: impl IntoIterator<Item = Arrival>,
    service: &Service,
    plan: &Plan,
    mut served: impl FnMut(Served),
) {
    let mut workers = Workers::new(plan, service);
    for arrival in arrivals {
        workers.run_until(arrival.at.0, &mut served);
        workers.arrive(arrival, &mut served);
    }
    workers.run_until(u64::MAX, &mut served);
}

struct Workers<'a> {
    plan: &'a Plan,
    service: &'a Service,
    line: WaitingLine<Arrival>,
    /// When each worker ends its scan; a time in the past is an idle worker.
    ends: Vec<u64>,
    /// Workers that have finished a scan and found nothing that they may take.
    looked: Vec<bool>,
    /// Workers whose message went before all smaller ones.
    overdue: Vec<bool>,
}

impl<'a> Workers<'a> {
    fn new(plan: &'a Plan, service: &'a Service) -> Workers<'a> {
        let feeds = plan.limits.feeds();
        let line = WaitingLine::new(feeds, plan.age_bound);
        let (ends, looked, overdue) = (vec![0; feeds], vec![true; feeds], vec![false; feeds]);
        Workers { plan, service, line, ends, looked, overdue }
    }

    /// Lets every scan that ends by `now` end, in order, and its worker take the next message.
    fn run_until(&mut self, now: u64, served: &mut impl FnMut(Served)) {
        while !self.line.is_empty() {
            let ended = (0..self.ends.len()).filter(|w| !self.looked[*w] && self.ends[*w] <= now);
            let Some(worker) = ended.min_by_key(|w| self.ends[*w]) else { return };
            let end = Instant(self.ends[worker]);
            self.overdue[worker] = false;
            let classes = self.plan.classes_for(worker);
            let overdue = !self.one_scans_overdue(end.0) && self.line.is_overdue(classes.clone(), end);
            let next = if overdue { self.line.take(classes, end) } else { self.line.take_smallest(classes) };
            match next {
                Some(message) => {
                    self.start(worker, message, end.0, served);
                    self.overdue[worker] = overdue;
                }
                None => self.looked[worker] = true,
            }
        }
    }

    /// Whether some worker still scans what went before all smaller ones.
    fn one_scans_overdue(&self, now: u64) -> bool {
        self.overdue.iter().zip(&self.ends).any(|(overdue, end)| *overdue && *end >= now)
    }

    /// The idle worker with the smallest sufficient limit takes it, or it waits.
    fn arrive(&mut self, arrival: Arrival, served: &mut impl FnMut(Served)) {
        let class = self.plan.limits.class_of(arrival.size);
        let idle = self.plan.feeds_for(class).find(|feed| self.ends[*feed] <= arrival.at.0);
        match idle {
            Some(worker) => self.start(worker, arrival, arrival.at.0, served),
            None => {
                self.line.push(class, arrival.size, arrival.at, arrival);
            }
        }
    }

    fn start(&mut self, worker: usize, message: Arrival, now: u64, served: &mut impl FnMut(Served)) {
        let service_ns = self.service.time_ns(message.size);
        self.ends[worker] = now.saturating_add(service_ns);
        self.looked[worker] = false;
        self.overdue[worker] = false;
        let class = self.plan.limits.class_of(message.size);
        let wait_ns = now.saturating_sub(message.at.0);
        served(Served { size: message.size, class, feed: worker, wait_ns, service_ns });
    }
}
