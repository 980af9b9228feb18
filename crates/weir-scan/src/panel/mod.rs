//! The panel: every configured scanner, side by side, and one verdict.
//!
//! Workers (YARA and attachments) and clamd are asked through a `memo`: one scan in flight per content, answers remembered by the version
//! of rules, policy and signatures. Spam scanners weigh the envelope too, so they are asked each time. A scanner that fails is a
//! finding, and then nothing passes. A panel for one feed can have clamds of its own, asks the common ones if these fail, and shares all else.

pub mod health;
mod memo;
mod rules;

pub use health::Health;
pub use memo::Bounds;

use crate::address::Address;
use crate::clamd::{self, Clamd};
use crate::content::Content;
use crate::examine::{Report, Setup};
use crate::inspect::{About, Inspect};
use crate::made::Made;
use crate::samples::Candidate;
use crate::verdict::{Finding, Outcome, Verdict};
use crate::worker::pool::{self, Pool};
use crate::{rspamd, spamd};
use memo::{Asked, Key, Memo, Remembered};
use rules::{Ruleset, RulesetError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which scanners there are.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The pool for YARA and attachments; none if both are off.
    pub workers: Option<Workers>,
    /// ClamAV.
    pub clamd: Option<clamd::Settings>,
    /// Clamds of the first feed's own, of the second's, and so on; used like those of `clamd`, and before them.
    pub feeds: Vec<Vec<Address>>,
    /// Rspamd.
    pub rspamd: Option<rspamd::Settings>,
    /// SpamAssassin.
    pub spamd: Option<rspamd::Settings>,
    /// What is remembered.
    pub memory: Bounds,
}

/// What workers do.
#[derive(Debug, Clone, Default)]
pub struct Workers {
    /// The processes.
    pub pool: pool::Settings,
    /// Policy, limits, and the rules that are always in force.
    pub setup: Setup,
    /// A folder of more rules, read again when it changes.
    pub folder: Option<PathBuf>,
}

/// Signatures without a date may change unseen: answers are then kept only for so long.
const KEPT_UNDATED: Duration = Duration::from_secs(60);
/// All scanners. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Panel {
    shared: Arc<Shared>,
    /// The next are asked where the first fail.
    clamds: Vec<Arc<Signatures>>,
}

/// Clamds, and what they answered.
#[derive(Debug)]
struct Signatures {
    clamd: Arc<Clamd>,
    memo: Arc<Memo<Timed<Outcome>>>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    examination: Option<Examination>,
}

#[derive(Debug)]
struct Examination {
    pool: Arc<Pool>,
    rules: Ruleset,
    memo: Arc<Memo<Timed<Report>>>,
}

/// An answer and what it took.
#[derive(Debug, Clone, PartialEq)]
struct Timed<T> {
    answer: T,
    took: Duration,
}

impl Remembered for Timed<Outcome> {
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        std::iter::once(&self.answer)
    }

    fn weight(&self) -> usize {
        self.answer.weight()
    }
}

impl Remembered for Timed<Report> {
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.answer.findings.iter().map(|finding| &finding.outcome)
    }

    fn weight(&self) -> usize {
        let finding = |f: &Finding| size_of::<Finding>() + f.scanner.len() + f.place.len() + f.outcome.weight();
        let Report { findings, suspicious, samples, .. } = &self.answer;
        findings.iter().map(finding).sum::<usize>()
            + suspicious.iter().map(|why| why.len() + 24).sum::<usize>()
            + samples.iter().map(Candidate::weight).sum::<usize>()
    }
}

impl Panel {
    /// Starts all of it. Must be called inside a runtime. Rules that do not compile are an error here; later, when the folder
    /// changes, the old ones stay in force.
    pub async fn start(settings: Settings) -> Result<Panel, StartError> {
        let examination = match &settings.workers {
            Some(workers) => Some(Examination::start(workers, settings.memory).await?),
            None => None,
        };
        let clamds = settings.clamd.iter().map(|clamd| Signatures::start(clamd.clone(), settings.memory)).collect();
        Ok(Panel { shared: Arc::new(Shared { settings, examination }), clamds })
    }

    /// The same panel for one feed, counted from 0: with clamds of its own if it is bound to some.
    pub fn for_feed(&self, feed: usize) -> Panel {
        let Settings { clamd, feeds, memory, .. } = &self.shared.settings;
        let own = feeds.get(feed).filter(|own| !own.is_empty()).cloned();
        let own = own.zip(clamd.clone()).map(|(addresses, clamd)| clamd::Settings { addresses, ..clamd });
        let own = own.map(|settings| Signatures::start(settings, *memory));
        Panel { shared: self.shared.clone(), clamds: own.into_iter().chain(self.clamds.iter().cloned()).collect() }
    }

    /// Which rules, policy and signatures are in force.
    pub fn version(&self) -> String {
        let rules = self.shared.examination.as_ref().map(|examination| examination.rules.version().to_string());
        let clamd = self.clamds.first().map(|signatures| signatures.clamd.version().0);
        [rules, clamd].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Takes these rules that people made into force, instead of those before: from the next message on, and no answer of before
    /// counts any more. All feeds share them. Rules that do not compile change nothing.
    pub async fn adopt(&self, made: &Made) -> Result<(), StartError> {
        match &self.shared.examination {
            Some(examination) => Ok(examination.rules.adopt(&examination.pool, made).await?),
            None if made.is_empty() => Ok(()),
            None => Err(StartError::NoWorkers),
        }
    }

    async fn verdict(&self, content: &Content, about: &About) -> Verdict {
        let version = self.version();
        let (report, clamav, rspamd, spamd) = tokio::join!(
            self.examined(content),
            self.clamav(content),
            self.rspamd(content, about),
            self.spamd(content, about)
        );
        let mut verdict = Verdict { version, ..Verdict::default() };
        if let Some(report) = report {
            verdict.findings = report.findings;
            verdict.suspicious = report.suspicious;
            verdict.samples = report.samples;
            verdict.samples_left_out = report.samples_left_out;
        }
        verdict.findings.extend([clamav, rspamd, spamd].into_iter().flatten());
        if verdict.findings.is_empty() {
            let limit = "no scanner looks at a message of this size".into();
            verdict.findings.push(finding("panel", Outcome::NotScanned { limit }, Duration::ZERO));
        }
        verdict
    }

    /// The processes that open mail.
    fn pool(&self) -> Result<&Pool, String> {
        let examination = self.shared.examination.as_ref();
        examination
            .map(|examination| &*examination.pool)
            .ok_or_else(|| "YARA and the attachment policy are off".to_owned())
    }

    async fn examined(&self, content: &Content) -> Option<Report> {
        let examination = self.shared.examination.as_ref()?;
        let workers = self.shared.settings.workers.as_ref()?;
        let key = Key { hash: *content.hash(), version: examination.rules.key() };
        let wait = workers.pool.patience(content.length());
        let (pool, copy, names) = (examination.pool.clone(), content.clone(), examination.rules.scanners());
        let scan = || async move {
            let begun = Instant::now();
            let report = pool.examine(&copy).await.unwrap_or_else(|error| failed(names, &error.to_string()));
            Timed { answer: report, took: begun.elapsed() }
        };
        Some(match examination.memo.ask(key, Duration::MAX, wait, scan).await {
            Asked::Found(timed) => timed.answer,
            Asked::Known(timed) => at_once(timed.answer),
            Asked::TooLong => failed(names, "no worker came to an end in time"),
            Asked::TooMany => failed(names, "too many scans are under way"),
        })
    }

    /// The feed's own clamds, and the common ones where these fail: a feed whose machine is gone goes on slowly.
    async fn clamav(&self, content: &Content) -> Option<Finding> {
        let mut last = None;
        for signatures in &self.clamds {
            let finding = signatures.ask(content).await;
            if !matches!(finding.outcome, Outcome::Failed { .. }) {
                return Some(finding);
            }
            last = Some(finding);
        }
        last
    }

    async fn rspamd(&self, content: &Content, about: &About) -> Option<Finding> {
        let settings = self.shared.settings.rspamd.as_ref().filter(|settings| content.length() <= settings.size)?;
        let begun = Instant::now();
        let outcome = rspamd::check(settings, content, about).await;
        spam_finding("rspamd", outcome, settings, begun)
    }

    async fn spamd(&self, content: &Content, about: &About) -> Option<Finding> {
        let settings = self.shared.settings.spamd.as_ref().filter(|settings| content.length() <= settings.size)?;
        let begun = Instant::now();
        let outcome = spamd::check(settings, content, about).await;
        spam_finding("spamassassin", outcome, settings, begun)
    }
}

impl Inspect for Panel {
    async fn inspect(&self, content: &Content, about: &Arc<About>) -> Verdict {
        self.verdict(content, about).await
    }

    fn health(&self) -> Vec<Health> {
        self.scanners()
    }

    async fn extract(&self, content: &Content, wanted: &Candidate) -> Result<Option<Vec<u8>>, String> {
        self.pool()?.extract(content, wanted).await.map_err(|error| error.to_string())
    }

    async fn attachments(&self, content: &Content) -> Result<(Vec<Candidate>, usize), String> {
        self.pool()?.attachments(content).await.map_err(|error| error.to_string())
    }

    async fn adopt(&self, made: &Made) -> Result<(), String> {
        Panel::adopt(self, made).await.map_err(|error| error.to_string())
    }
}

impl Signatures {
    fn start(settings: clamd::Settings, memory: Bounds) -> Arc<Signatures> {
        Arc::new(Signatures { clamd: Arc::new(Clamd::start(settings)), memo: Memo::new(memory) })
    }

    async fn ask(&self, content: &Content) -> Finding {
        let (version, dated) = self.clamd.version();
        // While nobody knows which signatures are in use, no answer is worth keeping.
        let keep = match (version.is_empty(), dated) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::MAX,
            (false, false) => KEPT_UNDATED,
        };
        let key = Key { hash: *content.hash(), version: version.into() };
        let wait = self.clamd.settings().deadline.of(content.length());
        let (scanner, copy, begun) = (self.clamd.clone(), content.clone(), Instant::now());
        let scan = || async move {
            let answer = scanner.scan(&copy).await.plain();
            Timed { answer, took: begun.elapsed() }
        };
        match self.memo.ask(key, keep, wait, scan).await {
            Asked::Found(timed) => finding("clamav", timed.answer, timed.took),
            Asked::Known(timed) => finding("clamav", timed.answer, Duration::ZERO),
            Asked::TooLong => {
                self.clamd.doubt();
                let problem = format!("clamd did not answer within {} s", wait.as_secs());
                finding("clamav", Outcome::Failed { problem }, begun.elapsed())
            }
            Asked::TooMany => {
                finding("clamav", Outcome::Failed { problem: "too many scans are under way".into() }, Duration::ZERO)
            }
        }
    }
}

impl Examination {
    async fn start(workers: &Workers, memory: Bounds) -> Result<Examination, StartError> {
        let (rules, setup) = Ruleset::load(workers).await?;
        let pool = Arc::new(Pool::new(workers.pool.clone(), &setup)?);
        let rules = rules.watch(pool.clone());
        Ok(Examination { pool, rules, memo: Memo::new(memory) })
    }
}

fn spam_finding(scanner: &str, outcome: Outcome, settings: &rspamd::Settings, begun: Instant) -> Option<Finding> {
    if let (Outcome::Failed { problem }, true) = (&outcome, settings.optional) {
        tracing::warn!(scanner, problem, "mail goes on without this scanner");
        return None;
    }
    Some(finding(scanner, outcome, begun.elapsed()))
}

fn finding(scanner: &str, outcome: Outcome, took: Duration) -> Finding {
    Finding { scanner: scanner.into(), outcome: outcome.plain(), place: String::new(), took }
}

fn failed(scanners: &[&str], problem: &str) -> Report {
    let failed = |scanner: &&str| finding(scanner, Outcome::Failed { problem: problem.into() }, Duration::ZERO);
    Report { findings: scanners.iter().map(failed).collect(), ..Report::default() }
}

fn at_once(mut report: Report) -> Report {
    report.findings.iter_mut().for_each(|finding| finding.took = Duration::ZERO);
    report
}

/// A panel that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are wrong.
    #[error(transparent)]
    Rules(#[from] RulesetError),
    /// Nobody could keep to rules that people made.
    #[error("no worker looks at mail: scan.yara and scan.attachments are both off")]
    NoWorkers,
    /// The system refuses something.
    #[error("workers cannot be started: {0}")]
    System(#[from] std::io::Error),
}
