//! `[scan.lab]`: what the lab sees of mail before it passes, how long mail waits for it, and what its verdicts mean.

use super::calls::Calls;
use super::value::Text;
use std::time::Duration;
use weir_mail::scan::{LabSettings, OnLab};
use weir_scan::samples::{CANDIDATES_MAX, SamplePolicy, Sort};
use weir_settings::Section;
use weir_settings::units::{Size, Span};

/// Mail that waits for the lab.
#[derive(Debug, Clone)]
pub(crate) struct ScanLab {
    pub(crate) enabled: bool,
    pub(crate) policy: SamplePolicy,
    pub(crate) settings: LabSettings,
}

const QUARANTINE: (&str, OnLab) = ("quarantine", OnLab::Quarantine);
const PASS: (&str, OnLab) = ("pass", OnLab::Pass);
/// What is before a rule's name.
const RULE: &str = "rule:";

impl ScanLab {
    pub(super) fn read(s: &mut Section<'_, '_>) -> ScanLab {
        let enabled =
            s.flag("enabled", true, "Whether mail waits for the lab's verdict, while scan and lab are both on");
        let policy = policy(s);
        ScanLab { enabled, policy, settings: settings(s) }
    }
}

fn policy(s: &mut Section<'_, '_>) -> SamplePolicy {
    let usual = ["scripts", "programs", "macros", "suspicious"].map(|word| Text(word.to_owned()));
    let words: Vec<Text> = s.list(
        "send",
        usual.to_vec(),
        ("words", 100),
        "Which files: scripts, programs, macros, suspicious (what a rule or scan.attachments calls so), documents, archives (that are not \
         opened here), everything, or rule:NAME for a rule of the severity suspicious",
    );
    let mut policy = SamplePolicy::default();
    for Text(word) in words {
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
                s.blame(
                    "send",
                    format!("{word:?} is no sort of files"),
                    &format!("{}, or rule:NAME", names.join(", ")),
                );
            }
        }
    }
    policy
}

fn settings(s: &mut Section<'_, '_>) -> LabSettings {
    let d = LabSettings::default();
    let span = |secs: u64| Span(Duration::from_secs(secs));
    LabSettings {
        wait: s.bounded("wait", Span(d.wait), span(1)..=span(86_400), "How long a message waits for a verdict at most").0,
        priority: s.bounded(
            "priority",
            d.priority as u32,
            0..=127,
            "How urgent its files are in the lab: below 32 they go before all that nobody waits for",
        ) as u64,
        on_late: s.choice(
            "on_late",
            &[QUARANTINE, PASS],
            "What becomes of mail without a verdict (too late, too much, the analysis failed): kept as error, or sent on with a header",
        ),
        on_suspicious: s.choice(
            "on_suspicious",
            &[QUARANTINE, PASS],
            "What becomes of mail with a file that the lab finds suspicious: kept, or sent on with a header",
        ),
        on_unknown: s.choice(
            "on_unknown",
            &[PASS, QUARANTINE],
            "What becomes of mail with a file of which the lab finds nothing that decides: sent on with a header, or kept",
        ),
        messages_max: s.bounded("messages", d.messages_max as u32, 1..=100_000, "Messages that wait at once") as usize,
        bytes_max: s
            .bounded("size", Size(d.bytes_max), Size(1 << 20)..=Size(1 << 40), "The size of all messages that wait at once")
            .0,
        samples_max: s.bounded(
            "files",
            d.samples_max as u32,
            1..=CANDIDATES_MAX as u32,
            "Files of one message that are sent; a message with more goes the way of on_late",
        ) as usize,
        sample_bytes_max: s
            .bounded("file_size", Size(d.sample_bytes_max), Size(1 << 10)..=Size(1 << 30), "The size of one file that is sent")
            .0,
        known_for: s
            .bounded(
                "known_for",
                Span(d.known_for),
                span(0)..=span(30 * 86_400),
                "How long the lab's verdict on the same content is used at once; malicious always is",
            )
            .0,
    }
}
