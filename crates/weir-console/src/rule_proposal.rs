//! Proposes rules for the mail scan from a sample of the lab: one that blocks its content, and a YARA rule made from the addresses that it
//! contacts and the files that it drops.
//!
//! Nothing is saved here: a person reviews the rules first. Whatever comes from the sample is bounded and written so that YARA reads it as
//! text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use weir_lab::operations::SampleLine;
use weir_lab::report::{Behaviour, Ioc, IocKind, Merged};
use weir_mail::operations::{NewRule, RuleSeverity, RuleView};
use weir_scan::plain::shown;

/// The largest number of indicators in one rule, and of hashes of dropped files.
const STRINGS_MAX: usize = 20;
const HASHES_MAX: usize = 20;
/// Shorter values are in honest mail too.
const VALUE_MIN: usize = 8;
const VALUE_MAX: usize = 200;
const NAME_SHOWN: usize = 60;

/// The rules that a sample suggests.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProposedRule")]
pub struct Proposal {
    /// A rule that blocks its content.
    pub hash: NewRule,
    /// A rule about what it contacts and drops; None if it does neither.
    pub yara: Option<String>,
    /// Rules that exist for it already.
    pub blocked: Vec<RuleView>,
}

impl Proposal {
    /// The proposal for a sample, given all rules.
    pub(crate) fn of(merged: &Merged, rules: Vec<RuleView>) -> Proposal {
        let sample = &merged.page.sample;
        let own = |rule: &RuleView| rule.sample == Some(sample.sample) || rule.content == sample.hash;
        let acted: Vec<&Behaviour> = merged.behaviour.iter().map(|(_, acted)| &acted.seen).collect();
        Proposal {
            hash: hash(sample),
            yara: yara(sample, &merged.named, &acted),
            blocked: rules.into_iter().filter(own).collect(),
        }
    }
}

fn hash(sample: &SampleLine) -> NewRule {
    let malicious = sample.verdict == "malicious";
    NewRule {
        sha256: sample.hash.clone(),
        bytes: u64::try_from(sample.size).ok(),
        severity: if malicious { RuleSeverity::Infected } else { RuleSeverity::Forbidden },
        sample: Some(sample.sample),
        about: format!(
            "sample {} of the lab is {}: {}",
            sample.sample,
            sample.verdict,
            shown(&sample.name, NAME_SHOWN)
        ),
        ..NewRule::default()
    }
}

/// A YARA rule from what a sample contacts and drops.
fn yara(sample: &SampleLine, iocs: &[Ioc], acted: &[&Behaviour]) -> Option<String> {
    let strings = strings(iocs, acted);
    let dropped = dropped(acted, &sample.hash);
    if strings.is_empty() && dropped.is_empty() {
        return None;
    }
    let mut text = String::new();
    if !dropped.is_empty() {
        text.push_str("import \"hash\"\n\n");
    }
    let _ = writeln!(text, "rule Lab_sample_{}\n{{\n    meta:", sample.sample);
    let _ = writeln!(text, "        description = \"what sample {} of the lab reaches and drops\"", sample.sample);
    let _ = writeln!(text, "        severity = \"forbidden\"\n        sample = {}", quoted(&sample.hash));
    if !strings.is_empty() {
        text.push_str("    strings:\n");
    }
    for (number, (value, whole)) in (1..).zip(&strings) {
        let whole = if *whole { " fullword" } else { "" };
        let _ = writeln!(text, "        $s{number} = {} ascii wide nocase{whole}", quoted(value));
    }
    let mut conditions: Vec<String> = if strings.is_empty() { Vec::new() } else { vec!["any of them".to_owned()] };
    conditions.extend(dropped.iter().map(|hash| format!("hash.sha256(0, filesize) == {}", quoted(hash))));
    let _ = write!(text, "    condition:\n        {}\n}}\n", conditions.join(" or\n        "));
    Some(text)
}

/// Values to search for, and whether each must be a whole word. What it contacted while it ran says more than what is in its content.
fn strings(iocs: &[Ioc], acted: &[&Behaviour]) -> Vec<(String, bool)> {
    let reached = |value: &str| acted.iter().flat_map(|acted| &acted.network).any(|line| line.to.contains(value));
    let worth = |ioc: &&Ioc| (VALUE_MIN..=VALUE_MAX).contains(&ioc.value.len());
    let mut chosen: Vec<&Ioc> = iocs.iter().filter(worth).collect();
    if chosen.iter().any(|ioc| reached(&ioc.value)) {
        chosen.retain(|ioc| reached(&ioc.value));
    }
    let of_kind = |ioc: &Ioc| matches!(ioc.kind, IocKind::Ip | IocKind::Domain);
    chosen.into_iter().take(STRINGS_MAX).map(|ioc| (ioc.value.clone(), of_kind(ioc))).collect()
}

/// Hashes of files that it wrote.
fn dropped(acted: &[&Behaviour], own: &str) -> Vec<String> {
    let is_hash = |hash: &&String| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let written = acted.iter().flat_map(|acted| &acted.files).filter(|file| file.what == "written");
    let hashes = written.filter_map(|file| file.sha256.as_ref()).filter(is_hash).map(|hash| hash.to_ascii_lowercase());
    let mut found: Vec<String> = Vec::new();
    for hash in hashes {
        if found.len() < HASHES_MAX && hash != own && !found.contains(&hash) {
            found.push(hash);
        }
    }
    found
}

/// A text in YARA's syntax.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' => quoted.push_str("\\\""),
            b'\\' => quoted.push_str("\\\\"),
            b' '..=b'~' => quoted.push(char::from(byte)),
            byte => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::report::{FileChange, Network};
    use weir_scan::yara::{Externals, RuleFile, Rules};

    fn sample() -> SampleLine {
        SampleLine {
            sample: 7,
            hash: "ab".repeat(32),
            name: "a\u{202e}\" b".repeat(100),
            size: 5,
            file_type: "text/plain".into(),
            submitter: "ann".into(),
            priority: 32,
            state: "done".into(),
            why: String::new(),
            arrived_at: 0,
            ended_at: Some(1),
            verdict: "suspicious".into(),
            parent: None,
            depth: 0,
        }
    }

    fn ioc(kind: IocKind, value: &str) -> Ioc {
        Ioc { kind, value: value.into(), from: "strings".into() }
    }

    fn finds(text: &str, data: &[u8]) -> bool {
        let file = RuleFile { name: "x".into(), text: text.into() };
        let mut rules = Rules::compile(&[file]).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        !rules.scan(data, &Externals::default(), std::time::Duration::from_secs(5)).0.is_empty()
    }

    #[test]
    fn the_text_compiles_whatever_the_sample_says_and_finds_what_it_names() {
        let iocs = [
            ioc(IocKind::Url, "http://evil.example/a\"\\x}'é"),
            ioc(IocKind::Domain, "evil.example"),
            ioc(IocKind::Ip, "9.9.9.9"),
            ioc(IocKind::Url, &"http://long.example/".repeat(100)),
        ];
        let text = yara(&sample(), &iocs, &[]).unwrap();
        assert!(finds(&text, b"see http://EVIL.example/a\"\\x}'\xc3\xa9 now"), "{text}");
        assert!(finds(&text, b"to evil.example, please") && !finds(&text, b"notevil.examples"), "{text}");
        assert!(!finds(&text, b"9.9.9.9"), "too short to mean anything: {text}");
    }

    #[test]
    fn what_was_reached_counts_more_than_what_stands_in_it() {
        let mut acted = Behaviour::default();
        acted.network.push(Network { to: "c2.evil.example".into(), what: "dns".into(), ..Network::default() });
        let dropped = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for sha256 in [dropped, "no hash", "\"} rule y { condition: true", &sample().hash] {
            let file = FileChange { what: "written".into(), sha256: Some(sha256.into()), ..FileChange::default() };
            acted.files.push(file);
        }
        let iocs = [ioc(IocKind::Domain, "c2.evil.example"), ioc(IocKind::Domain, "www.w3.example")];
        let text = yara(&sample(), &iocs, &[&acted]).unwrap();
        assert!(text.contains("c2.evil.example") && !text.contains("w3.example"), "{text}");
        assert_eq!(text.matches("hash.sha256").count(), 1, "{text}");
        assert!(finds(&text, b"x c2.evil.example x") && !finds(&text, b"hello"));
        assert_eq!(yara(&sample(), &[], &[]), None);
    }

    #[test]
    fn the_rule_of_its_content_says_where_it_comes_from() {
        let rule = hash(&sample());
        assert_eq!((rule.severity, rule.sample, rule.bytes), (RuleSeverity::Forbidden, Some(7), Some(5)));
        assert!(
            rule.about.starts_with("sample 7 of the lab is suspicious: a·\" b") && rule.about.chars().count() < 200
        );
    }
}
