//! Connects the mail scan with the lab. The two gates do not import each other; this file implements the trait of one with the other.

use crate::config::Config;
use std::sync::{Arc, PoisonError, RwLock};
use weir_lab::choices::Choices;
use weir_lab::history::{self, Standing};
use weir_lab::node::{Node, NotTaken};
use weir_lab::operations::{LabError, Wishes};
use weir_lab::verdict::Verdict;
use weir_mail::scan::{
    AskedFile, KnownContent, LabAnswer, LabSettings, LabVerdict, LabWay, Laboratory, Opinion, Sample, Taken,
};

/// Whether mail waits for the lab: both gates must be on.
pub(super) fn is_on(config: &Config) -> bool {
    config.scan.enabled && config.lab.enabled && config.scan_lab.enabled && config.scan_lab.policy.is_on()
}

/// Gives the scan access to this lab under this policy.
pub(super) fn way(settings: LabSettings, lab: &CurrentLab) -> LabWay {
    LabWay { settings, laboratory: Arc::new(OwnLab(lab.clone())) }
}

/// The lab that runs now, if one does: it may fail and come back while mail flows. All clones share the same lab.
#[derive(Clone, Default)]
pub(crate) struct CurrentLab(Arc<RwLock<Option<Node>>>);

impl CurrentLab {
    /// Sets the lab that is used from now on.
    pub(crate) fn set(&self, node: Option<Node>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = node;
    }

    fn node(&self) -> Result<Node, String> {
        let node = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        node.ok_or_else(|| "the lab does not run".to_owned())
    }
}

struct OwnLab(CurrentLab);

impl Laboratory for OwnLab {
    fn known<'a>(&'a self, files: &'a [AskedFile]) -> LabAnswer<'a, Vec<KnownContent>> {
        Box::pin(async move {
            let files: Vec<(String, String)> =
                files.iter().map(|file| (file.sha256.clone(), file.name.clone())).collect();
            let opinions = self.0.node()?.opinions(&files).await.map_err(|error| error.to_string())?;
            Ok(opinions.iter().map(|opinion| opinion.as_ref().map_or(KnownContent::Nothing, known)).collect())
        })
    }

    fn submit(&self, sample: Sample) -> LabAnswer<'_, Taken> {
        Box::pin(async move {
            let Sample { content, name, priority, submitter, passwords } = sample;
            let choices = Choices::default().with_passwords(passwords);
            let wishes = Wishes { priority, choices, ..Wishes::default() };
            match self.0.node()?.hand_in(content, &name, wishes, &submitter).await {
                Ok(handed) => Ok(Taken::Queued(handed.sample)),
                Err(LabError::NotTaken(why @ NotTaken::NothingToRun(_))) => Ok(Taken::NotForUs(why.to_string())),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn why(&self, sample: i64) -> LabAnswer<'_, String> {
        Box::pin(
            async move { Ok(self.0.node()?.page(&sample.to_string()).await.map_err(|error| error.to_string())?.now) },
        )
    }
}

fn known(opinion: &history::Opinion) -> KnownContent {
    let sample = opinion.sample;
    match &opinion.standing {
        Standing::Open => KnownContent::Open { sample },
        Standing::Failed { why } => {
            KnownContent::Ended(Opinion { sample, verdict: LabVerdict::Failed, reasons: vec![why.clone()], at: 0 })
        }
        Standing::Ended { verdict, reasons, at } => {
            let verdict = match verdict {
                Verdict::Unknown => LabVerdict::Unknown,
                Verdict::Clean => LabVerdict::Clean,
                Verdict::Suspicious => LabVerdict::Suspicious,
                Verdict::Malicious => LabVerdict::Malicious,
            };
            KnownContent::Ended(Opinion { sample, verdict, reasons: reasons.clone(), at: *at })
        }
    }
}
