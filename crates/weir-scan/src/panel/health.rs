//! How the scanners are, for status pages and alarms.

use super::Panel;
use crate::clamd::State;
use serde::Serialize;
use std::time::SystemTime;

/// How one scanner is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// Its name, as in findings.
    pub scanner: &'static str,
    /// Where it is; empty for workers of our own.
    pub address: String,
    /// Whether it can look at mail.
    pub up: bool,
    /// Its version, or that of its rules.
    pub version: String,
    /// How old its signatures are, in seconds, where they have a date.
    pub signature_age_s: Option<u64>,
    /// What the operator should look at; empty if nothing.
    pub problem: String,
}

impl Panel {
    /// How each scanner is. Spam scanners are only known by their answers and are not listed.
    pub fn health(&self) -> Vec<Health> {
        let mut all: Vec<Health> = self.workers_health().into_iter().collect();
        for (address, state) in self.clamd.iter().flat_map(|clamd| clamd.states()) {
            all.push(self.clamd_health(address.to_string(), &state));
        }
        all
    }

    /// Whether every scanner can look at mail.
    pub fn is_up(&self) -> bool {
        self.health().iter().all(|health| health.up)
    }

    fn workers_health(&self) -> Option<Health> {
        let examination = self.shared.examination.as_ref()?;
        let (count, problem) = examination.rules.health();
        let (started, lost) = examination.pool.counts();
        Some(Health {
            scanner: "workers",
            address: String::new(),
            up: true,
            version: format!("{}, {count} rules, {started} workers started, {lost} lost", examination.rules.version()),
            signature_age_s: None,
            problem: problem.unwrap_or_default(),
        })
    }

    fn clamd_health(&self, address: String, state: &State) -> Health {
        let mut health = Health {
            scanner: "clamav",
            address,
            up: false,
            version: String::new(),
            signature_age_s: None,
            problem: String::new(),
        };
        match state {
            State::Unknown => health.problem = "not asked yet".into(),
            State::Down(problem) => health.problem.clone_from(problem),
            State::Up(version) => {
                health.up = true;
                health.version.clone_from(&version.text);
                let age = version.signatures.and_then(|made| SystemTime::now().duration_since(made).ok());
                health.signature_age_s = age.map(|age| age.as_secs());
                let most = self.clamd.as_ref().map(|clamd| clamd.settings().signature_age);
                if let (Some(age), Some(most)) = (age, most)
                    && age > most
                {
                    health.problem = format!("its signatures are {} days old", age.as_secs() / 86_400);
                }
            }
        }
        health
    }
}
