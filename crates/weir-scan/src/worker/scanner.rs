//! Our own workers as a scanner of the panel: YARA, the attachment policy and the rules that people made are one walk through a message.

use super::pool::{self, Pool};
use super::rules::Ruleset;
use super::settings;
pub use super::settings::Workers;
use crate::content::Content;
use crate::health::Health;
use crate::inspect::About;
use crate::made::Made;
use crate::samples::Candidate;
use crate::scanner::{Answer, Common, Configured, Later, MemoKey, Opener, Scanner, ScannerKind, StartError};
use std::sync::Arc;
use std::time::Duration;
use weir_settings::Reader;

/// Its row in the registry.
pub(crate) const KIND: ScannerKind = ScannerKind { name: "workers", read };

fn read(reader: &mut Reader<'_>, common: &mut Common) -> Option<Box<dyn Configured>> {
    let (workers, memory) = settings::read(reader);
    common.memory = memory;
    let is_on = workers.setup.policy.enabled || !workers.setup.rules.is_empty() || workers.folder.is_some();
    is_on.then(|| Box::new(workers) as Box<dyn Configured>)
}

impl Configured for Workers {
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>> {
        Box::pin(async {
            let (rules, setup) = Ruleset::load(self).await?;
            let pool = Arc::new(Pool::new(self.pool.clone(), &setup)?);
            let rules = rules.watch(pool.clone());
            Ok(Arc::new(Examination { patience: self.pool.clone(), pool, rules }) as Arc<dyn Scanner>)
        })
    }
}

#[derive(Debug)]
struct Examination {
    patience: pool::Settings,
    pool: Arc<Pool>,
    rules: Ruleset,
}

impl Scanner for Examination {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn reports_as(&self) -> Vec<&'static str> {
        self.rules.scanners().to_vec()
    }

    fn deadline(&self, length: u64) -> Duration {
        self.patience.patience(length)
    }

    fn scan<'a>(&'a self, content: &'a Content, about: &'a About) -> Later<'a, Answer> {
        Box::pin(async {
            let examined = match about.is_file {
                true => self.pool.examine_file(content).await,
                false => self.pool.examine(content).await,
            };
            match examined {
                Ok(report) => Answer::Several(Box::new(report)),
                Err(error) => Answer::Failed { problem: error.to_string() },
            }
        })
    }

    fn gave_up(&self, _: Duration) -> String {
        "no worker came to an end in time".into()
    }

    fn memo_key(&self) -> Option<MemoKey> {
        Some(MemoKey { version: self.rules.key(), keep: Duration::MAX })
    }

    fn version(&self) -> Option<String> {
        Some(self.rules.version().to_string())
    }

    fn health(&self) -> Vec<Health> {
        let (count, problem) = self.rules.health();
        let (started, lost) = self.pool.counts();
        vec![Health {
            scanner: KIND.name.to_owned(),
            address: String::new(),
            up: true,
            version: format!("{}, {count} rules, {started} workers started, {lost} lost", self.rules.version()),
            signature_age_s: None,
            problem: problem.unwrap_or_default(),
            advice: String::new(),
        }]
    }

    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl Opener for Examination {
    fn extract<'a>(
        &'a self,
        content: &'a Content,
        wanted: &'a Candidate,
    ) -> Later<'a, Result<Option<Vec<u8>>, String>> {
        Box::pin(async { self.pool.extract(content, wanted).await.map_err(|error| error.to_string()) })
    }

    fn attachments<'a>(&'a self, content: &'a Content) -> Later<'a, Result<(Vec<Candidate>, usize), String>> {
        Box::pin(async { self.pool.attachments(content).await.map_err(|error| error.to_string()) })
    }

    fn adopt<'a>(&'a self, made: &'a Made) -> Later<'a, Result<(), StartError>> {
        Box::pin(async { Ok(self.rules.adopt(&self.pool, made).await?) })
    }
}
