//! Computes, for any mail, the statistics that the paper gives about its users' mail (section 2).

use super::habits::{locality, percent};
use super::outbox::{Outbox, Sending};
use serde::Serialize;

/// What can be compared with the paper's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// How many users.
    pub users: usize,
    /// Days of all users together, in years.
    pub years: f64,
    /// Mails.
    pub mails: u64,
    /// Recipients.
    pub recipients: u64,
    /// Of the mails, those with several recipients.
    pub multi_mails: u64,
    /// Single mails within 5 minutes of the single mail before, by user.
    pub single_within_5_min_percent: Vec<f64>,
    /// Multiple mails within 5 minutes of the multiple mail before, by user.
    pub multi_within_5_min_percent: Vec<f64>,
    /// Single mails to one of the last 5 addresses, by user.
    pub single_locality_percent: Vec<f64>,
    /// Recipients of multiple mails among the last 5 addresses, by user.
    pub multi_locality_percent: Vec<f64>,
}

impl Statistics {
    /// Adds `days` days of one user.
    pub fn add(&mut self, user: &Outbox, days: u32) {
        let (single, multi) = (user.only(true).mails, user.only(false).mails);
        self.users += 1;
        self.years += f64::from(days) / 365.25;
        self.mails += user.mails.len() as u64;
        self.multi_mails += multi.len() as u64;
        self.recipients += user.mails.iter().map(|mail| mail.to.len() as u64).sum::<u64>();
        self.single_within_5_min_percent.push(within_5_min(&single));
        self.multi_within_5_min_percent.push(within_5_min(&multi));
        self.single_locality_percent.push(locality(&single, 5));
        self.multi_locality_percent.push(locality(&multi, 5));
    }
}

/// The middle of some values; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which the fraction `q` of the values lies; 0 of none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (q * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

fn within_5_min(mails: &[Sending]) -> f64 {
    let soon = mails.windows(2).filter(|pair| pair[1].at.since(pair[0].at).as_secs_f64() <= 300.0).count();
    percent(soon, mails.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::super::population::{PAPER_DAYS, PAPER_USERS, user};
    use super::*;

    fn within(values: &[f64], low: f64, high: f64) -> usize {
        values.iter().filter(|v| (low..=high).contains(*v)).count()
    }

    #[test]
    fn the_population_is_like_the_papers_data_for_any_seed() {
        for seed in 1..=10 {
            let mut seen = Statistics::default();
            (0..PAPER_USERS).for_each(|n| seen.add(&user(seed, n, PAPER_DAYS), PAPER_DAYS));
            let near = |ours: f64, paper: f64, by: f64| (ours / paper - 1.0).abs() <= by;
            assert!(near(seen.years, 18.2, 0.001) && seen.users == 22, "{seen:?}");
            assert!(near(seen.mails as f64, 33_084.0, 0.04), "seed {seed}: {} mails", seen.mails);
            assert!(near(seen.recipients as f64, 61_749.0, 0.06), "seed {seed}: {} recipients", seen.recipients);
            let single = &seen.single_within_5_min_percent;
            assert_eq!(within(single, 10.0, 40.0), 22, "seed {seed}: {single:?}");
            let multi = &seen.multi_within_5_min_percent;
            assert!(within(multi, 5.0, 15.0) >= 19, "seed {seed}: {multi:?}");
            assert!(within(multi, 2.0, 20.0) == 21, "all but the one with a script, seed {seed}: {multi:?}");
            let (local, multi_local) = (&seen.single_locality_percent, &seen.multi_locality_percent);
            assert!(median(local) > median(multi_local) + 5.0, "{local:?} {multi_local:?}");
            assert!(
                within(local, 10.0, 80.0) == 22 && within(multi_local, 2.0, 50.0) == 22,
                "{local:?} {multi_local:?}"
            );
        }
    }

    #[test]
    fn a_seed_means_the_same_mail() {
        assert_eq!(user(7, 3, 20).mails, user(7, 3, 20).mails);
        assert_ne!(user(7, 3, 20).mails, user(8, 3, 20).mails);
    }

    #[test]
    fn quantiles_of_few_and_none() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[])), (2.0, 0.0));
        assert_eq!((quantile(&[3.0, 1.0, 2.0], 0.0), quantile(&[3.0, 1.0, 2.0], 1.0)), (1.0, 3.0));
    }
}
