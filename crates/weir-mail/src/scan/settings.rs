//! How the scan behaves, as the binary reads it from the configuration.

use std::time::Duration;
use weir_core::feeds::{Limits, Plan, Strategy};

/// How the scan behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether mail is scanned at all.
    pub enabled: bool,
    /// Our name, for headers.
    pub hostname: String,
    /// Limits, strategy, age bound.
    pub plan: Plan,
    /// Limits that tuning found, in place of the plan's.
    pub found_limits: Option<Limits>,
    /// Workers of each feed; one for each that is not named.
    pub workers: Vec<usize>,
    /// Feeds that have scanners of their own, counted from 0.
    pub bound: Vec<usize>,
    /// Processors that the scanners share.
    pub cpus: usize,
    /// Attempts after which a message goes to the quarantine for errors, unless the scanners fail for everybody.
    pub attempts: u32,
    /// How long a message waits for scanners that fail for everybody.
    pub retry_for: Duration,
    /// What becomes of spam.
    pub on_spam: OnSpam,
    /// What becomes of mail that is too large or too deep to scan.
    pub on_limit: OnLimit,
    /// Whether the result stands in the header.
    pub headers: bool,
    /// Whether scanners see our own Received field too: SpamAssassin learns from it who the client is.
    pub whole: bool,
    /// Whether limits follow the traffic by themselves.
    pub auto_tune: bool,
    /// How often that is looked at.
    pub tune_every: Duration,
    /// Quarantines.
    pub quarantine: QuarantineSettings,
}

/// What becomes of spam.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSpam {
    /// It is quarantined.
    Quarantine,
    /// It goes on with a header.
    Tag,
}

/// What becomes of mail that is too large or too deep to scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLimit {
    /// It is quarantined.
    Quarantine,
    /// It goes on with a header that says so.
    Pass,
}

/// What waits for a laboratory, and what its verdicts mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabSettings {
    /// How long a message waits at most.
    pub wait: Duration,
    /// How urgent its files are in the laboratory; 0 is the most.
    pub priority: u64,
    /// What becomes of mail with a file that is suspicious.
    pub on_suspicious: OnLab,
    /// What becomes of mail of which the laboratory finds nothing that decides.
    pub on_unknown: OnLab,
    /// What becomes of mail without a verdict: too late, too much, or the analysis failed.
    pub on_late: OnLab,
    /// Messages that wait at once.
    pub messages_max: usize,
    /// Their size together.
    pub bytes_max: u64,
    /// Files of one message that are sent.
    pub samples_max: usize,
    /// The size of one.
    pub sample_bytes_max: u64,
    /// How long a verdict on the same content counts, other than malicious, which always does.
    pub known_for: Duration,
}

/// What becomes of mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLab {
    /// It is quarantined.
    Quarantine,
    /// It goes on with a header that says why.
    Pass,
}

impl OnLab {
    /// As the configuration has it.
    pub fn key(self) -> &'static str {
        match self {
            OnLab::Quarantine => "quarantine",
            OnLab::Pass => "pass",
        }
    }

    /// What happens, in words.
    pub fn word(self) -> &'static str {
        match self {
            OnLab::Quarantine => "quarantined",
            OnLab::Pass => "delivered with a mark",
        }
    }
}

impl Default for LabSettings {
    fn default() -> LabSettings {
        LabSettings {
            wait: Duration::from_secs(300),
            priority: 8,
            on_suspicious: OnLab::Quarantine,
            on_unknown: OnLab::Pass,
            on_late: OnLab::Quarantine,
            messages_max: 1_000,
            bytes_max: 256 << 20,
            samples_max: 8,
            sample_bytes_max: 32 << 20,
            known_for: Duration::from_secs(86_400),
        }
    }
}

/// How long mail stays in quarantine, and who is told.
#[derive(Debug, Clone)]
pub struct QuarantineSettings {
    /// How long it is kept.
    pub keep_for: Duration,
    /// How much is kept; the oldest goes first.
    pub bytes_max: u64,
    /// Where a person can look at quarantined spam; empty for no digests.
    pub link: String,
    /// How often a digest goes to a recipient.
    pub digest_every: Duration,
}

impl Settings {
    /// The plan with the limits that tuning found, if they are for as many feeds.
    pub fn plan_in_force(&self) -> Plan {
        let found = self.found_limits.clone().filter(|found| found.feeds() == self.plan.limits.feeds());
        Plan { limits: found.unwrap_or_else(|| self.plan.limits.clone()), ..self.plan.clone() }
    }

    /// Workers of each feed.
    pub fn workers(&self) -> Vec<usize> {
        let feeds = self.plan.limits.feeds();
        (0..feeds).map(|feed| self.workers.get(feed).copied().unwrap_or(1).max(1)).collect()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        // Five feeds of the paper; the last limit is not above FEEDS_MAX, so this cannot fail.
        let limits = Limits::default_for(5, 250_000).unwrap_or_else(|error| unreachable!("{error}"));
        Settings {
            enabled: true,
            hostname: "localhost".to_owned(),
            plan: Plan::new(limits, Strategy::Shortest),
            found_limits: None,
            workers: Vec::new(),
            bound: Vec::new(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            attempts: 5,
            retry_for: Duration::from_secs(4 * 3600),
            on_spam: OnSpam::Quarantine,
            on_limit: OnLimit::Quarantine,
            headers: true,
            whole: false,
            auto_tune: true,
            tune_every: Duration::from_secs(600),
            quarantine: QuarantineSettings::default(),
        }
    }
}

impl Default for QuarantineSettings {
    fn default() -> QuarantineSettings {
        QuarantineSettings {
            keep_for: Duration::from_secs(30 * 86_400),
            bytes_max: 1 << 30,
            link: String::new(),
            digest_every: Duration::from_secs(86_400),
        }
    }
}
