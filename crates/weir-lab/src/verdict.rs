//! The verdict that follows from all findings on a sample: malicious, suspicious, clean or unknown, with the reasons.
//!
//! The most serious finding decides. In order of seriousness: malicious, suspicious, a reason to doubt, safe. A sample is clean only if
//! some plugin calls it safe, no plugin says anything else, and its analysis ended well. A failed plugin never makes a sample clean, and a
//! plugin that did not see everything a sample does reports a doubt, which outweighs a scanner that found nothing. Unknown always has its
//! reasons in words. The verdict on a file found in a sample counts for the sample too, and so does a doubt about such a file: the records take
//! care of that when the analysis of the file ends, or that of the sample if it ends later.

use crate::active;
use crate::display_name::display_name;
use crate::job::{Level, Report};
use serde::{Deserialize, Serialize};
use weir_store::records::NOBODY_KNOWS;
use weir_store::samples::SampleHash;

/// How many findings of one report are stored, the most serious first.
const FINDINGS_MAX: usize = 16;
/// How many reasons are given, and how long one may be.
const REASONS_MAX: usize = 32;
const REASON_CHARS: usize = 200;
const NOT_ENDED: &str = "its analysis did not end well";

/// How bad a sample is. A worse verdict is greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No plugin says anything that decides.
    #[default]
    Unknown,
    /// Some plugin calls it harmless, and none says otherwise.
    Clean,
    /// A finding speaks against it.
    Suspicious,
    /// It is malware.
    Malicious,
}

impl Verdict {
    /// All of them, the best first.
    pub const ALL: [Verdict; 4] = [Verdict::Unknown, Verdict::Clean, Verdict::Suspicious, Verdict::Malicious];

    /// The number in the records.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// The verdict with this number; unknown if there is none.
    pub fn numbered(number: i64) -> Verdict {
        Verdict::ALL.into_iter().find(|verdict| verdict.number() == number).unwrap_or_default()
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Unknown => "unknown",
            Verdict::Clean => "clean",
            Verdict::Suspicious => "suspicious",
            Verdict::Malicious => "malicious",
        }
    }

    pub fn named(word: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.word() == word)
    }
}

/// What a leader needs to know of a report: its findings, and the files that it returns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// Findings that decide something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Files that are stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Child>,
    /// It found files that are not stored, because there was no room for them this time. So another analysis may say more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// One finding, with the name of its plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How serious it is.
    pub level: Level,
    /// In words.
    pub text: String,
}

/// A file that was found in a sample and is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its hash.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// The name it should have.
    pub name: String,
    /// Its type by content.
    pub file_type: String,
}

impl Child {
    /// Whether both are one: the same content, which is opened in the same way.
    fn is_like(&self, other: &Child) -> bool {
        self.sha256 == other.sha256 && active::are_opened_alike(&self.name, &other.name)
    }
}

impl Brief {
    /// The brief of a plugin's report.
    pub fn of(plugin: &str, report: &Report) -> Brief {
        let mut findings = findings(plugin, report, Level::Safe);
        let left_out: Vec<&str> = report.artifacts.iter().filter_map(|artifact| artifact.left_out.as_deref()).collect();
        if let Some(why) = left_out.first() {
            // Nobody has examined them.
            let text = cut(&format!("{plugin}: files that are not analysed: {} ({why})", left_out.len()));
            findings.push(Finding { level: Level::Unknown, text });
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        }
        let child = |artifact: &crate::job::Artifact| {
            // A text that is not a hash identifies no content, and may be too long for an index.
            let hash: SampleHash = artifact.sha256.as_deref().filter(|_| artifact.data_type == "file")?.parse().ok()?;
            Some(Child {
                sha256: hash.to_string(),
                bytes: artifact.bytes?,
                name: display_name(artifact.filename.as_ref().or(artifact.file.as_ref()).map_or("", String::as_str)),
                file_type: artifact.content_type.clone()?,
            })
        };
        let mut children: Vec<Child> = Vec::new();
        for child in report.artifacts.iter().filter_map(child) {
            // By another name it may be opened in another way.
            if !children.iter().any(|other| other.is_like(&child)) {
                children.push(child);
            }
        }
        Brief { findings, children, partial: !left_out.is_empty() }
    }

    /// Files were found that nobody will examine: a doubt, and another analysis may say more.
    pub fn leave_out(&mut self, count: usize, why: &str) {
        let text = cut(&format!("files that are not analysed: {count} ({why})"));
        self.findings.push(Finding { level: Level::Unknown, text });
        self.partial = true;
    }

    /// The brief of an attempt that failed: what speaks against the sample, for example that it crashed its guest. Such findings count
    /// only if there are no better ones.
    pub fn of_failure(plugin: &str, report: &str) -> Brief {
        let read = Report::parse(report.as_bytes()).ok();
        let findings = read.map(|report| findings(plugin, &report, Level::Suspicious)).unwrap_or_default();
        Brief { findings, ..Brief::default() }
    }
}

/// The findings from this level on, the most serious first.
fn findings(plugin: &str, report: &Report, least: Level) -> Vec<Finding> {
    let found = report.summary.taxonomies.iter().filter(|found| found.level >= least);
    let mut findings: Vec<Finding> = found
        .map(|found| Finding {
            level: found.level,
            text: cut(&format!("{plugin}: {}: {}", found.predicate, found.value)),
        })
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings.truncate(FINDINGS_MAX);
    findings
}

/// The verdict that follows from findings, and why. If the analysis did not end well, a sample is never clean.
pub fn judged(findings: &[Finding], ended_well: bool) -> (Verdict, Vec<String>) {
    let worst = findings.iter().map(|finding| finding.level).max();
    let verdict = match worst {
        Some(Level::Malicious) => Verdict::Malicious,
        Some(Level::Suspicious) => Verdict::Suspicious,
        Some(Level::Safe) if ended_well => Verdict::Clean,
        _ => Verdict::Unknown,
    };
    let least = match verdict {
        Verdict::Malicious | Verdict::Suspicious => Level::Suspicious,
        Verdict::Clean => Level::Safe,
        Verdict::Unknown if worst == Some(Level::Unknown) => Level::Unknown,
        Verdict::Unknown if ended_well => return (verdict, vec![NOBODY_KNOWS.to_owned()]),
        Verdict::Unknown => return (verdict, vec![NOT_ENDED.to_owned()]),
    };
    let mut grave: Vec<&Finding> = findings.iter().filter(|finding| finding.level >= least).collect();
    grave.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    (verdict, grave.into_iter().take(REASONS_MAX).map(|finding| finding.text.clone()).collect())
}

fn cut(text: &str) -> String {
    text.chars().take(REASON_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level) -> Finding {
        Finding { level, text: format!("{level:?}") }
    }

    #[test]
    fn the_gravest_decides_and_failure_makes_nothing_clean() {
        use Level::{Malicious, Safe, Suspicious, Unknown};
        let of = |levels: &[Level], well| judged(&levels.iter().copied().map(finding).collect::<Vec<_>>(), well);
        assert_eq!(of(&[], true), (Verdict::Unknown, vec![NOBODY_KNOWS.to_owned()]));
        assert_eq!(of(&[Safe, Unknown], true), (Verdict::Unknown, vec!["Unknown".to_owned()]), "a doubt outweighs");
        assert_eq!(of(&[Suspicious, Unknown], true).0, Verdict::Suspicious);
        assert_eq!(of(&[Safe], true), (Verdict::Clean, vec!["Safe".to_owned()]));
        assert_eq!(of(&[Safe], false), (Verdict::Unknown, vec![NOT_ENDED.to_owned()]));
        assert_eq!(of(&[Safe, Suspicious], false).0, Verdict::Suspicious);
        let (verdict, reasons) = of(&[Suspicious, Safe, Malicious], true);
        assert_eq!((verdict, reasons), (Verdict::Malicious, vec!["Malicious".to_owned(), "Suspicious".to_owned()]));
    }

    #[test]
    fn files_that_are_left_out_are_a_doubt() {
        let text = r#"{"success":true,"summary":{"taxonomies":[{"level":"safe","namespace":"n","predicate":"known","value":"x"}]},
            "artifacts":[{"dataType":"file","file":"a","leftOut":"one plugin may bring 100 files"}]}"#;
        let brief = Brief::of("archive", &Report::read(text.as_bytes()).unwrap());
        assert!(brief.partial);
        let (verdict, reasons) = judged(&brief.findings, true);
        assert_eq!(verdict, Verdict::Unknown);
        assert!(reasons[0].contains("not analysed: 1 (one plugin may bring 100 files)"), "{reasons:?}");
    }

    #[test]
    fn what_is_remembered_of_a_report() {
        let text = r#"{"success":true,"summary":{"taxonomies":[
            {"level":"info","namespace":"n","predicate":"type","value":"x"},
            {"level":"safe","namespace":"n","predicate":"known","value":"ls"},
            {"level":"malicious","namespace":"n","predicate":"rule","value":"EICAR\u001b[2J"}]},
            "artifacts":[{"dataType":"file","file":"a","filename":"b.exe","sha256":"HASH","bytes":5,"contentType":"text/plain"},
            {"dataType":"file","file":"no-hash","sha256":"../ff","bytes":5,"contentType":"text/plain"},
            {"dataType":"file","file":"c","filename":"d.EXE","sha256":"HASH","bytes":5,"contentType":"text/plain"},
            {"dataType":"file","file":"left"},{"dataType":"url","data":"http://x"}]}"#;
        let text = text.replacen("HASH", &"AB".repeat(32), 1).replace("HASH", &"ab".repeat(32));
        let brief = Brief::of("yara", &Report::read(text.as_bytes()).unwrap());
        assert_eq!(
            brief.findings.iter().map(|finding| finding.level).collect::<Vec<_>>(),
            [Level::Malicious, Level::Safe]
        );
        assert_eq!(brief.findings[0].text, "yara: rule: EICAR [2J");
        assert_eq!(brief.children.len(), 1, "a file is one however its hash is written, and what has none is none");
        assert_eq!((brief.children[0].name.as_str(), &brief.children[0].sha256), ("b.exe", &"ab".repeat(32)));
        let again: Brief = serde_json::from_str(&serde_json::to_string(&brief).unwrap()).unwrap();
        assert_eq!(again, brief);
    }

    #[test]
    fn words_and_numbers() {
        for verdict in Verdict::ALL {
            assert_eq!((Verdict::numbered(verdict.number()), Verdict::named(verdict.word())), (verdict, Some(verdict)));
        }
        assert_eq!((Verdict::numbered(99), Verdict::named("good")), (Verdict::Unknown, None));
    }
}
