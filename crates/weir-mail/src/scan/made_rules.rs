//! Loads the rules that people made from the records into the scanners.
//!
//! After a start they are in use before the first message is scanned. A change by this process takes effect at once, and one by
//! another relay on the same records within seconds.

use super::{Inspector, ScanShared};
use std::sync::Arc;
use std::time::Duration;
use weir_scan::made::{Blocked, Made};
use weir_scan::panel::StartError;
use weir_scan::yara::{RuleFile, Rules, RulesetError};
use weir_store::records::{RecordsError, RuleRecords, RuleRow};

/// How often one looks whether another relay has changed them.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Takes the rules of the records into force. A rule that does not compile any more is left out, and the log says so.
pub async fn adopt_rules(rules: &RuleRecords, inspectors: &[Arc<dyn Inspector>]) -> Result<(), AdoptError> {
    let mut made = made(&rules.all().await?);
    let problem = match adopted(inspectors, &made).await {
        Err(StartError::Rules(RulesetError::Rules(problem))) => problem,
        adopted => return Ok(adopted?),
    };
    let (all, rules) = (made.rules.len(), std::mem::take(&mut made.rules));
    // Each by itself, which may take a while: not on a thread that serves.
    let compile = move || rules.into_iter().filter(compiles).collect::<Vec<RuleFile>>();
    let compiled = tokio::task::spawn_blocking(compile).await;
    made.rules = compiled.map_err(|_| StartError::from(RulesetError::Crashed))?;
    if made.rules.len() == all {
        return Err(StartError::from(RulesetError::from(problem)).into());
    }
    tracing::error!(%problem, "rules that do not compile are left out; remove them and make them anew");
    Ok(adopted(inspectors, &made).await?)
}

async fn adopted(inspectors: &[Arc<dyn Inspector>], made: &Made) -> Result<(), StartError> {
    for inspector in inspectors {
        inspector.adopt_boxed(made).await?;
    }
    Ok(())
}

fn compiles(file: &RuleFile) -> bool {
    Rules::compile(std::slice::from_ref(file)).is_ok()
}

/// The rules as scanners take them.
fn made(rows: &[RuleRow]) -> Made {
    let mut made = Made::default();
    for RuleRow { id, rule } in rows {
        match rule.kind.as_str() {
            "yara" => made.rules.push(RuleFile { name: name(*id), text: rule.content.clone() }),
            _ => made.blocked.push(Blocked {
                sha256: rule.content.clone(),
                bytes: rule.bytes.and_then(|bytes| u64::try_from(bytes).ok()),
                infected: rule.severity == "infected",
                about: format!("{}: {}", name(*id), rule.about),
            }),
        }
    }
    made
}

/// What a rule is called in findings. No file of a folder is called so.
pub(crate) fn name(id: i64) -> String {
    format!("rule {id}")
}

impl ScanShared {
    pub(super) async fn adopt_rules(&self) -> Result<(), AdoptError> {
        adopt_rules(&self.site.records.rules(), &self.inspectors).await
    }
}

/// Follows what other relays change.
pub(super) async fn follow(shared: Arc<ScanShared>) {
    if !shared.settings.enabled || !shared.site.records.is_shared() {
        return;
    }
    let mut known = None;
    loop {
        if let Ok(revision) = shared.site.records.rules().revision().await
            && known != Some(revision)
        {
            match shared.adopt_rules().await {
                Ok(()) => known = Some(revision),
                Err(error) => tracing::warn!(%error, "rules that people made are not in force yet"),
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Why rules are not in force.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// They cannot be read.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// The scanners do not take them.
    #[error("{0}")]
    Scanners(#[from] StartError),
}
