//! The sections `[scan]`, `[scan.lab]` and `[quarantine]` of the configuration.

use super::size_weight::SizeWeight;
use std::time::Duration;
use weir_core::feeds::{Dispatch, Limits, Machine, Plan, Strategy, Weights};
use weir_scan::samples::{CANDIDATES_MAX, SamplePolicy, Sort};
use weir_settings::units::Size;
use weir_settings::{Section, kinds, settings};

settings! {
    /// Mail scanning: feeds by message size and load
    #[section("scan")]
    pub struct ScanSettings {
        /// Whether mail is scanned on its way out and in; if no scanner answers, it waits
        pub enabled: bool = flag(false),
        /// How it is scanned then.
        pub stage: Settings = part(),
    }
}

settings! {
    /// How the scan behaves.
    #[check(Settings::check)]
    pub struct Settings {
        /// Whether mail is scanned at all.
        pub enabled: bool = fixed(true),
        /// Our name, for headers.
        pub hostname: String = fixed("localhost".to_owned()),
        /// Limits, strategy, age bound.
        pub plan: Plan = part_by(plan),
        /// Limits that tuning found, in place of the plan's.
        pub found_limits: Option<Limits> = fixed(None),
        /// Workers of the first feed, the second, and so on; one for each that is not named
        pub workers as "feed_workers": Vec<usize> = list(Vec::<u32>::new(), 32, "numbers")
            .map(|workers| workers.into_iter().map(|count| count as usize).collect()),
        /// Feeds that have scanners of their own, counted from 0.
        pub bound: Vec<usize> = fixed(Vec::new()),
        /// Processors that the scanners share, for predictions; 0 for this machine's
        pub cpus as "cores": usize = count(0, 0..=4096).map(|cores| match cores {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        }),
        /// Failed attempts after which a message is quarantined, while others can be scanned
        pub attempts: u32 = number(5, 1..=100),
        /// How long mail waits while no scanner works, before it is quarantined
        pub retry_for: Duration = duration("4h", "1m"..="30d"),
        /// What happens to spam: quarantined, or delivered with a header
        pub on_spam: OnSpam = choice([("quarantine", OnSpam::Quarantine), ("tag", OnSpam::Tag)]),
        /// What happens to mail that is too large or too deep to scan: quarantined, or delivered with a header that says so
        pub on_limit: OnLimit = choice([("quarantine", OnLimit::Quarantine), ("pass", OnLimit::Pass)]),
        /// Whether clean mail gets a header X-Weir-Scan
        pub headers: bool = flag(true),
        /// Whether scanners see our own Received field too: SpamAssassin learns from it who the client is.
        pub whole: bool = fixed(false),
        /// Whether the limits follow the traffic by themselves
        pub auto_tune: bool = flag(true),
        /// How much a second of waiting counts when limits are tuned, by size: ["10kB:5"] lets messages up to 10 kB count five times
        pub weights: Weights = list(Vec::<SizeWeight>::new(), 16, "growing sizes, each with a weight")
            .check(|given| growing(given))
            .map(weights),
        /// How often to look for better limits
        pub tune_every: Duration = duration("10m", "10s"..="7d"),
        /// Quarantines.
        pub quarantine: QuarantineSettings = fixed(QuarantineSettings::default()),
    }
}

settings! {
    /// The feeds of Perry and Thomas.
    fn plan() -> Plan {
        /// The size limits of all feeds but the last, which takes what is larger; tuning may find better ones
        limits = ascending([2_000, 10_000, 50_000, 250_000].map(Size).to_vec(), Size(1)..=Size(1 << 40), 31).map(limits),
        /// How a message finds its worker
        strategy = choice([
            ("shortest", Strategy::Shortest),
            ("size-load", Strategy::SizeLoad),
            ("size", Strategy::Size),
        ]),
        /// A message that has waited this long goes before all smaller ones, at one worker at a time
        age_bound = duration(Plan::AGE_BOUND, "1s"..="1d"),
        /// Whether the last feed also takes messages that fit a smaller one; the paper keeps it for the largest
        last_feed_helps = flag(true),
        /// Whether the limits are lifted while mail would wait less without them; not with [scan.feeds]
        opens as "limits_give_way" = flag(true),
    }
}

fn growing(given: &[SizeWeight]) -> Result<(), String> {
    match given.windows(2).find(|pair| pair[0].up_to >= pair[1].up_to) {
        None => Ok(()),
        Some(pair) => Err(format!("the sizes must grow: {} comes after {}", pair[1], pair[0])),
    }
}

fn weights(given: Vec<SizeWeight>) -> Weights {
    let weights = Weights::new(given.into_iter().map(|step| (step.up_to, step.weight)).collect());
    weights.unwrap_or_else(|| unreachable!("`growing` let through what is not"))
}

fn limits(sizes: Vec<Size>) -> Limits {
    let limits = Limits::new(sizes.into_iter().map(|Size(bytes)| bytes).collect());
    limits.unwrap_or_else(|error| unreachable!("`ascending` let through what is not: {error}"))
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

settings! {
    /// Which files of mail go to the lab before the mail is delivered, if scan and lab are both on
    #[section("scan.lab")]
    #[derive(PartialEq, Eq)]
    pub struct LabSettings {
        /// Whether mail waits for the lab's verdict, while scan and lab are both on
        pub enabled: bool = flag(true),
        /// Which files the lab sees.
        pub policy: SamplePolicy = part_by(policy),
        /// How long a message waits for a verdict at most
        pub wait: Duration = duration("5m", "1s"..="1d"),
        /// How urgent its files are in the lab: below 32 they go before all that nobody waits for
        pub priority: u64 = count(8, 0..=127),
        /// What happens to mail without a verdict (too late, too much, or the analysis failed): quarantined as error, or delivered with a header
        pub on_late: OnLab = choice([QUARANTINE, PASS]),
        /// What happens to mail with a file that the lab finds suspicious: quarantined, or delivered with a header
        pub on_suspicious: OnLab = choice([QUARANTINE, PASS]),
        /// What happens to mail with a file that the lab cannot call clean (it did not run, or not all of it was seen): quarantined, or delivered with a header
        pub on_unknown: OnLab = choice([QUARANTINE, PASS]),
        /// Messages that wait at once
        pub messages_max as "messages": usize = count(1_000, 1..=100_000),
        /// The size of all messages that wait at once
        pub bytes_max as "size": u64 = size("256MiB", "1MiB"..="1024GiB"),
        /// Files of one message that are sent; a message with more goes the way of on_late
        pub samples_max as "files": usize = count(8, 1..=CANDIDATES_MAX as u32),
        /// The size of one file that is sent
        pub sample_bytes_max as "file_size": u64 = size("32MiB", "1KiB"..="1GiB"),
        /// How long the lab's verdict on the same content is used at once; malicious always is
        pub known_for: Duration = duration("1d", "0s"..="30d"),
    }
}

const QUARANTINE: (&str, OnLab) = ("quarantine", OnLab::Quarantine);
const PASS: (&str, OnLab) = ("pass", OnLab::Pass);
/// What is before a rule's name.
const RULE: &str = "rule:";

fn policy(section: &mut Section<'_, '_>) -> SamplePolicy {
    let usual = ["scripts", "programs", "macros", "suspicious"].map(str::to_owned);
    let words: Vec<String> = section.key(
        "send",
        "Which files: scripts, programs, macros, suspicious (what a rule or scan.attachments calls so), documents, archives (that are not \
         opened here), everything, or rule:NAME for a rule of the severity suspicious",
        kinds::list(usual, 100, "words"),
    );
    let mut policy = SamplePolicy::default();
    for word in words {
        let sort = Sort::ALL.iter().find(|(name, _)| *name == word);
        match (sort, word.strip_prefix(RULE)) {
            (Some((_, sort)), _) => {
                policy.sorts.insert(*sort);
            }
            (None, Some(rule)) if !rule.is_empty() => {
                policy.rules.insert(rule.to_owned());
            }
            _ => {
                let names: Vec<&str> = Sort::ALL.iter().map(|(name, _)| *name).collect();
                let hint = format!("{}, or rule:NAME", names.join(", "));
                section.blame("send", format!("{word:?} is no sort of files"), &hint);
            }
        }
    }
    policy
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

settings! {
    /// Mail that the scan keeps: how long, how much, and who is told
    #[section("quarantine")]
    pub struct QuarantineSettings {
        /// How long quarantined mail is kept
        pub keep_for: Duration = duration("30d", "1d"..="3650d"),
        /// How much quarantined mail is kept; beyond that the oldest goes first
        pub bytes_max: u64 = size("1GiB", "1MiB"..="1048576GiB"),
        /// The page that digests link to, one below it for each message; empty for no digests
        pub link: String = text("", "an http:// or https:// URL").valid(web_page),
        /// How often recipients are told which spam to them was kept, if there is a link
        pub digest_every: Duration = duration("1d", "10m"..="31d"),
    }
}

fn web_page(text: &str) -> Result<(), String> {
    match text.is_empty() || text.starts_with("https://") || text.starts_with("http://") {
        true => Ok(()),
        false => Err(format!("{text:?} is not a URL that begins with http:// or https://")),
    }
}

impl Settings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.workers.iter().any(|count| !(1..=Dispatch::WORKERS_MAX).contains(count)) {
            let hint = "for example feed_workers = [1, 1, 2]";
            section.blame("feed_workers", "every feed needs 1 to 1024 workers".into(), hint);
        }
    }

    /// The plan with the limits that tuning found, if they are for as many feeds.
    pub fn plan_in_force(&self) -> Plan {
        let found = self.found_limits.clone().filter(|found| found.feeds() == self.plan.limits.feeds());
        let limits = found.unwrap_or_else(|| self.plan.limits.clone());
        // Scanners of one feed may not be fit for the mail of another: they may take less, or be another machine's.
        let opens = self.plan.opens && self.bound.is_empty();
        Plan { limits, opens, ..self.plan.clone() }
    }

    /// Who scans.
    pub fn machine(&self) -> Machine {
        Machine { workers: self.workers(), cpus: self.cpus.max(1) }
    }

    /// Workers of each feed.
    pub fn workers(&self) -> Vec<usize> {
        let feeds = self.plan.limits.feeds();
        (0..feeds).map(|feed| self.workers.get(feed).copied().unwrap_or(1).max(1)).collect()
    }
}
