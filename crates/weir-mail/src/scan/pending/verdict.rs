//! Decides from the laboratory's verdicts on its files what happens to a letter.

use crate::scan::decision::QuarantineQueue;
use crate::scan::laboratory::{AskedFile, LabVerdict, Opinion};
use crate::scan::settings::{LabSettings, OnLab};
use std::collections::BTreeMap;
use weir_scan::samples::Candidate;

/// Reasons of one file that are told.
const REASONS_MAX: usize = 4;

/// What becomes of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::scan) enum LabDecision {
    /// It goes on, with these words in its header.
    Pass {
        /// The laboratory knows it to be harmless.
        clean: bool,
        words: String,
    },
    /// It is kept; why.
    Keep(QuarantineQueue, String),
}

impl LabDecision {
    pub(in crate::scan) fn words(&self) -> String {
        match self {
            LabDecision::Pass { words, .. } => format!("goes on: {words}"),
            LabDecision::Keep(queue, reason) => format!("kept in quarantine/{}: {reason}", queue.as_str()),
        }
    }
}

impl LabSettings {
    /// What becomes of a letter that there is no verdict on, for this reason.
    pub(in crate::scan) fn without_verdict(&self, problem: &str) -> LabDecision {
        match self.on_late {
            OnLab::Quarantine => LabDecision::Keep(QuarantineQueue::Error, format!("no verdict of the lab: {problem}")),
            OnLab::Pass => LabDecision::Pass { clean: false, words: format!("lab: no verdict, {problem}") },
        }
    }
}

/// Decides by the worst file. None while a file is open, unless another one decides alone.
pub(in crate::scan) fn decided(
    files: &[Candidate],
    known: &BTreeMap<&AskedFile, &Opinion>,
    settings: &LabSettings,
) -> Option<LabDecision> {
    let opinions: Vec<(&Candidate, &Opinion)> =
        files.iter().filter_map(|file| Some((file, *known.get(&AskedFile::from(file))?))).collect();
    let (file, worst) = *opinions.iter().max_by_key(|(_, opinion)| opinion.verdict)?;
    if worst.verdict == LabVerdict::Malicious {
        return Some(LabDecision::Keep(QuarantineQueue::Virus, said(file, worst)));
    }
    if opinions.len() < files.len() {
        return None;
    }
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let by_policy = |policy: OnLab| match policy {
        OnLab::Quarantine => LabDecision::Keep(QuarantineQueue::Ext, said(file, worst)),
        OnLab::Pass => LabDecision::Pass { clean: false, words: said(file, worst) },
    };
    Some(match worst.verdict {
        LabVerdict::Clean => LabDecision::Pass { clean: true, words: format!("lab: clean ({})", names.join(", ")) },
        LabVerdict::Unknown => by_policy(settings.on_unknown),
        LabVerdict::Suspicious | LabVerdict::Malicious => by_policy(settings.on_suspicious),
        LabVerdict::Failed => settings.without_verdict(&said(file, worst)),
    })
}

/// `lab: malicious, run.sh (sample 12): yara: rule: EICAR`.
fn said(file: &Candidate, opinion: &Opinion) -> String {
    let sample = if opinion.sample == 0 { String::new() } else { format!(" (sample {})", opinion.sample) };
    let reasons: Vec<&str> = opinion.reasons.iter().take(REASONS_MAX).map(String::as_str).collect();
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    format!("lab: {}, {}{sample}{why}", opinion.verdict.word(), file.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Candidate {
        let sha256 = format!("hash of {name}");
        Candidate { sha256, size: 1, name: name.to_owned(), why: "a script".to_owned(), passwords: Vec::new() }
    }

    fn opinion(verdict: LabVerdict) -> Opinion {
        Opinion { sample: 7, verdict, reasons: vec!["yara: rule: Bad".to_owned()], at: 0 }
    }

    fn of(verdicts: &[Option<LabVerdict>], settings: &LabSettings) -> Option<LabDecision> {
        let files: Vec<Candidate> = (0..verdicts.len()).map(|number| file(&format!("f{number}.sh"))).collect();
        let opinions: Vec<Option<Opinion>> = verdicts.iter().map(|verdict| verdict.map(opinion)).collect();
        let asked: Vec<AskedFile> = files.iter().map(AskedFile::from).collect();
        let known = asked.iter().zip(&opinions).filter_map(|(file, known)| Some((file, known.as_ref()?))).collect();
        decided(&files, &known, settings)
    }

    #[test]
    fn the_worst_file_decides_and_malware_at_once() {
        use LabVerdict::{Clean, Failed, Malicious, Suspicious, Unknown};
        let usual = LabSettings::default();
        assert_eq!(of(&[Some(Clean), None], &usual), None, "one is open");
        let kept = of(&[None, Some(Malicious)], &usual);
        let reason = "lab: malicious, f1.sh (sample 7): yara: rule: Bad".to_owned();
        assert_eq!(kept, Some(LabDecision::Keep(QuarantineQueue::Virus, reason)));
        let passed = of(&[Some(Clean), Some(Clean)], &usual).unwrap();
        assert_eq!(passed, LabDecision::Pass { clean: true, words: "lab: clean (f0.sh, f1.sh)".to_owned() });
        assert_eq!(passed.words(), "goes on: lab: clean (f0.sh, f1.sh)");
        let unknown = of(&[Some(Unknown), Some(Clean)], &usual).unwrap();
        assert!(matches!(&unknown, LabDecision::Keep(QuarantineQueue::Ext, _)), "silence is not evidence: {unknown:?}");
        assert!(matches!(
            of(&[Some(Suspicious), Some(Unknown)], &usual),
            Some(LabDecision::Keep(QuarantineQueue::Ext, _))
        ));
        assert!(matches!(of(&[Some(Failed), Some(Clean)], &usual), Some(LabDecision::Keep(QuarantineQueue::Error, _))));
        let lenient =
            LabSettings { on_suspicious: OnLab::Pass, on_unknown: OnLab::Pass, on_late: OnLab::Pass, ..usual };
        assert!(matches!(of(&[Some(Suspicious)], &lenient), Some(LabDecision::Pass { .. })));
        assert!(matches!(of(&[Some(Unknown)], &lenient), Some(LabDecision::Pass { clean: false, .. })));
        assert!(
            matches!(of(&[Some(Failed)], &lenient), Some(LabDecision::Pass { words, .. }) if words.contains("no verdict"))
        );
    }
}
