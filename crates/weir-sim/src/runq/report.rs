//! The results of one run, and of all runs together.

use super::Experiment;
use super::workload::Arrival;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::runq::{Needs, Offer, PriorityClass, PriorityRules, ResultStatus, SampleEnd, StopReason};
use weir_core::time::Instant;

/// What an experiment showed.
#[derive(Debug, Clone, Serialize)]
pub struct RunQueueReport {
    /// Runs.
    pub runs: u32,
    /// Machines in each.
    pub machines: u32,
    /// VMs in the first run.
    pub vms: usize,
    /// Samples in each run.
    pub samples: u32,
    /// The first run's seed.
    pub seed: u64,
    /// What could go wrong.
    pub faults: Vec<&'static str>,
    /// Time from arrival to the first start on a VM.
    pub classes: PriorityClasses,
    /// Attempts started.
    pub dispatches: u64,
    /// Attempts that ran into THRESHOLD.
    pub expired: u64,
    /// Results accepted.
    pub accepted: u64,
    /// Results that came after an accepted one.
    pub duplicates: u64,
    /// Results that were not valid.
    pub invalid: u64,
    /// How the samples ended.
    #[serde(flatten)]
    pub ends: Ends,
    /// Who got how much.
    pub fairness: Fairness,
    /// For the picture: every wait of a class in seconds, sorted.
    #[serde(skip)]
    pub waits: [Vec<f64>; 3],
    /// For the picture: samples not yet started over time, in the first run.
    #[serde(skip)]
    pub series: Series,
}

/// Samples of each class that have not started yet, at moments in seconds.
pub type Series = Vec<(f64, [u32; 3])>;

/// One figure a priority class.
#[derive(Debug, Clone, Serialize)]
pub struct PriorityClasses {
    /// Directories 0–31.
    pub real_time: Waits,
    /// Directories 32–95.
    pub normal: Waits,
    /// Directories 96–127.
    pub idle: Waits,
}

/// How long samples waited for their first start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Waits {
    /// How many started.
    pub started: usize,
    /// The mean.
    pub mean_wait_s: f64,
    /// Half waited no longer than this.
    pub p50_wait_s: f64,
    /// 95 of 100 waited no longer than this.
    pub p95_wait_s: f64,
    /// The longest.
    pub max_wait_s: f64,
}

/// How many samples ended how.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Ends {
    /// Every plugin has a result.
    pub done: u64,
    /// Too many attempts brought nothing.
    pub quarantined: u64,
    /// No machine could serve them.
    pub unserviceable: u64,
    /// Taken back.
    pub cancelled: u64,
}

/// How turns were shared between submitters.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fairness {
    /// Jain's index over the shares: 1 if all are equal, 1/n if one gets all.
    pub jain: f64,
    /// The same if all submitters were one to the scheduler, as in the paper's plain lists (without faults only).
    pub jain_fifo: Option<f64>,
    /// Each submitter; the first floods.
    pub submitters: Vec<SubmitterShare>,
}

/// One submitter.
#[derive(Debug, Clone, Serialize)]
pub struct SubmitterShare {
    /// Its number.
    pub submitter: u64,
    /// Samples it handed in.
    pub samples: u64,
    /// Mean wait of its normal samples for their first start.
    pub mean_wait_s: f64,
    /// Turns it got while others in its run queue could have had them, as a multiple of its equal share.
    pub share: f64,
    /// That mean wait with plain lists (without faults only).
    pub fifo_mean_wait_s: Option<f64>,
    /// That multiple with plain lists (without faults only).
    pub fifo_share: Option<f64>,
}

/// One run.
#[derive(Debug)]
pub(super) struct Outcome {
    samples: Vec<Course>,
    vms: usize,
    dispatches: u64,
    expired: u64,
    verdicts: BTreeMap<ResultStatus, u64>,
    /// By run queue, needs and submitter: samples that have not started.
    waiting: BTreeMap<(u8, Needs), BTreeMap<u64, u32>>,
    /// By submitter: turns got, and turns that an equal share would have been.
    turns: BTreeMap<u64, (f64, f64)>,
    not_started: [u32; 3],
    series: Series,
}

#[derive(Debug)]
struct Course {
    class: PriorityClass,
    queue: u8,
    needs: Needs,
    submitter: u64,
    arrived: Instant,
    first_start: Option<Instant>,
    end: Option<SampleEnd>,
}

impl Outcome {
    pub(super) fn new(arrivals: &[Arrival], vms: usize) -> Outcome {
        let rules = PriorityRules::default();
        let course = |arrival: &Arrival| Course {
            class: rules.class(arrival.submission.directory),
            queue: arrival.submission.directory.queue(),
            needs: arrival.submission.needs,
            submitter: arrival.submission.submitter.0,
            arrived: arrival.at,
            first_start: None,
            end: None,
        };
        Outcome {
            samples: arrivals.iter().map(course).collect(),
            vms,
            dispatches: 0,
            expired: 0,
            verdicts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            not_started: [0; 3],
            series: Vec::new(),
        }
    }

    pub(super) fn arrived(&mut self, sample: usize, now: Instant) {
        self.count(sample, now, 1);
    }

    pub(super) fn started(&mut self, sample: usize, now: Instant, vm: &Offer) {
        self.dispatches += 1;
        if self.samples[sample].first_start.is_none() {
            self.share_turn(sample, vm);
            self.count(sample, now, -1);
            self.samples[sample].first_start = Some(now);
        }
    }

    pub(super) fn stopped(&mut self, reason: StopReason) {
        self.expired += u64::from(reason == StopReason::Expired);
    }

    pub(super) fn reported(&mut self, verdict: ResultStatus) {
        *self.verdicts.entry(verdict).or_default() += 1;
    }

    pub(super) fn ended(&mut self, sample: usize, now: Instant, end: SampleEnd) {
        let before = self.samples[sample].end.replace(end);
        if before.is_none() && self.samples[sample].first_start.is_none() {
            self.count(sample, now, -1);
        }
    }

    fn count(&mut self, sample: usize, now: Instant, by: i32) {
        let course = &self.samples[sample];
        let waiting =
            self.waiting.entry((course.queue, course.needs)).or_default().entry(course.submitter).or_default();
        *waiting = waiting.saturating_add_signed(by);
        let class = &mut self.not_started[course.class as usize];
        *class = class.saturating_add_signed(by);
        self.series.push((now.as_secs_f64(), self.not_started));
    }

    /// A turn that several submitters of a run queue could have had: one gets it, each had an equal claim to it.
    fn share_turn(&mut self, sample: usize, vm: &Offer) {
        let Course { queue, submitter, .. } = self.samples[sample];
        let could = |((q, needs), _): &(&(u8, Needs), _)| *q == queue && !vm.runs(needs).is_empty();
        let waiting = self.waiting.iter().filter(could).flat_map(|(_, by_submitter)| by_submitter);
        let contenders: BTreeSet<u64> = waiting.filter(|(_, n)| **n > 0).map(|(who, _)| *who).collect();
        if contenders.len() < 2 {
            return;
        }
        for who in &contenders {
            self.turns.entry(*who).or_default().1 += 1.0 / contenders.len() as f64;
        }
        self.turns.entry(submitter).or_default().0 += 1.0;
    }
}

/// All runs together.
#[derive(Debug)]
pub(super) struct RunTotals {
    vms: usize,
    waits: [Vec<f64>; 3],
    dispatches: u64,
    expired: u64,
    verdicts: BTreeMap<ResultStatus, u64>,
    ends: Ends,
    series: Series,
    ours: Shares,
    fifo: Option<Shares>,
}

/// By submitter.
#[derive(Debug, Default)]
struct Shares {
    samples: Vec<u64>,
    /// Normal samples that started, and the sum of their waits.
    waits: Vec<(u64, f64)>,
    turns: Vec<(f64, f64)>,
}

impl RunTotals {
    pub(super) fn new(experiment: &Experiment) -> RunTotals {
        RunTotals {
            vms: 0,
            waits: Default::default(),
            dispatches: 0,
            expired: 0,
            verdicts: BTreeMap::new(),
            ends: Ends::default(),
            series: Vec::new(),
            ours: Shares::new(experiment),
            fifo: None,
        }
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        if self.series.is_empty() {
            self.vms = outcome.vms;
            self.series = thin(&outcome.series, 600);
        }
        self.dispatches += outcome.dispatches;
        self.expired += outcome.expired;
        for (verdict, n) in &outcome.verdicts {
            *self.verdicts.entry(*verdict).or_default() += n;
        }
        for course in &outcome.samples {
            self.ends.count(course.end);
            if let Some(start) = course.first_start {
                self.waits[course.class as usize].push(start.since(course.arrived).as_secs_f64());
            }
        }
        self.ours.add(outcome);
    }

    pub(super) fn add_fifo(&mut self, outcome: &Outcome) {
        let submitters = self.ours.samples.len();
        self.fifo.get_or_insert_with(|| Shares::of(submitters)).add(outcome);
    }

    pub(super) fn report(mut self, experiment: &Experiment) -> RunQueueReport {
        self.waits.iter_mut().for_each(|waits| waits.sort_by(f64::total_cmp));
        let verdict = |verdict| self.verdicts.get(&verdict).copied().unwrap_or(0);
        let [real_time, normal, idle] = [0, 1, 2].map(|class| Waits::of(&self.waits[class]));
        RunQueueReport {
            runs: experiment.runs,
            machines: experiment.machines,
            vms: self.vms,
            samples: experiment.samples,
            seed: experiment.seed,
            faults: experiment.faults.names(),
            classes: PriorityClasses { real_time, normal, idle },
            dispatches: self.dispatches,
            expired: self.expired,
            accepted: verdict(ResultStatus::Accepted),
            duplicates: verdict(ResultStatus::Duplicate),
            invalid: verdict(ResultStatus::Invalid),
            ends: self.ends,
            fairness: fairness(&self.ours, self.fifo.as_ref()),
            waits: self.waits,
            series: self.series,
        }
    }
}

impl Ends {
    fn count(&mut self, end: Option<SampleEnd>) {
        match end {
            Some(SampleEnd::Done) => self.done += 1,
            Some(SampleEnd::Quarantined) => self.quarantined += 1,
            Some(SampleEnd::Unserviceable) => self.unserviceable += 1,
            Some(SampleEnd::Cancelled) => self.cancelled += 1,
            None => {}
        }
    }
}

impl Waits {
    /// Of waits in order.
    fn of(sorted: &[f64]) -> Waits {
        let at =
            |share: f64| sorted.get((share * sorted.len() as f64) as usize).or(sorted.last()).copied().unwrap_or(0.0);
        Waits {
            started: sorted.len(),
            mean_wait_s: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            p50_wait_s: at(0.5),
            p95_wait_s: at(0.95),
            max_wait_s: at(1.0),
        }
    }
}

impl Shares {
    fn new(experiment: &Experiment) -> Shares {
        Shares::of(experiment.submitters as usize)
    }

    fn of(submitters: usize) -> Shares {
        Shares { samples: vec![0; submitters], waits: vec![(0, 0.0); submitters], turns: vec![(0.0, 0.0); submitters] }
    }

    fn add(&mut self, outcome: &Outcome) {
        for course in &outcome.samples {
            let who = course.submitter as usize;
            self.samples[who] += 1;
            if let (PriorityClass::Normal, Some(start)) = (course.class, course.first_start) {
                self.waits[who].0 += 1;
                self.waits[who].1 += start.since(course.arrived).as_secs_f64();
            }
        }
        for (who, (got, claim)) in &outcome.turns {
            let turns = &mut self.turns[*who as usize];
            (turns.0, turns.1) = (turns.0 + got, turns.1 + claim);
        }
    }

    fn mean_wait_s(&self, who: usize) -> f64 {
        self.waits[who].1 / self.waits[who].0.max(1) as f64
    }

    fn share(&self, who: usize) -> f64 {
        let (got, claim) = self.turns[who];
        if claim > 0.0 { got / claim } else { 1.0 }
    }

    /// Jain's index over those who ever had to share.
    fn jain(&self) -> f64 {
        let shares: Vec<f64> =
            (0..self.turns.len()).filter(|who| self.turns[*who].1 > 0.0).map(|who| self.share(who)).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
    }
}

fn fairness(ours: &Shares, fifo: Option<&Shares>) -> Fairness {
    let one = |who: usize| SubmitterShare {
        submitter: who as u64,
        samples: ours.samples[who],
        mean_wait_s: ours.mean_wait_s(who),
        share: ours.share(who),
        fifo_mean_wait_s: fifo.map(|fifo| fifo.mean_wait_s(who)),
        fifo_share: fifo.map(|fifo| fifo.share(who)),
    };
    let submitters = (0..ours.samples.len()).map(one).collect();
    Fairness { jain: ours.jain(), jain_fifo: fifo.map(Shares::jain), submitters }
}

/// At most about `max` points, evenly chosen.
fn thin(series: &Series, max: usize) -> Series {
    let step = (series.len() / max).max(1);
    series.iter().step_by(step).chain(series.last()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equal_shares_and_one_nth_for_one() {
        let shares = |turns: &[(f64, f64)]| Shares { turns: turns.to_vec(), ..Shares::default() }.jain();
        assert!((shares(&[(5.0, 5.0), (2.0, 2.0), (0.0, 0.0)]) - 1.0).abs() < 1e-12);
        assert!((shares(&[(4.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn percentiles_of_few_and_none() {
        let waits = Waits::of(&[1.0, 2.0, 3.0, 10.0]);
        assert_eq!((waits.mean_wait_s, waits.p50_wait_s, waits.p95_wait_s, waits.max_wait_s), (4.0, 3.0, 10.0, 10.0));
        assert_eq!(Waits::of(&[]).max_wait_s, 0.0);
    }
}
