//! The report of one sample: what every plugin says about it and about the files found in it, and what others can watch for.
//!
//! It is made from the records each time it is asked for. [`misp`] and [`stix`] write the same report in other formats. Ids in them are
//! derived from the content, in STIX also from when it came, so that the same sample is the same event however often it is exported.

pub mod attack;
mod behaviour;
mod ioc;
pub mod misp;
pub mod stix;
mod timeline;
mod uuid;

pub use attack::Technique;
pub use behaviour::Acted;
pub(crate) use ioc::is_foreign;
pub use ioc::{Ioc, IocKind};
pub use timeline::TimelineEvent;
pub use weir_guest::behaviour::{
    Act, Behaviour, Capture, FileChange, Network, Persistence, Process, RegistryChange, Screen,
};

use crate::choices::Tlp;
use crate::sample_page::{SampleLine, SamplePage};
use serde::Serialize;
use std::collections::BTreeSet;

/// How many indicators a report names.
const IOCS_MAX: usize = 1000;

/// Everything that is known.
#[derive(Debug, Clone, Serialize)]
pub struct Merged {
    /// The sample that was asked for.
    #[serde(flatten)]
    pub page: SamplePage,
    /// What was found in it, and in that, and so on.
    pub parts: Vec<SamplePage>,
    /// What others can watch for.
    pub iocs: Vec<Ioc>,
    /// The same with bare strings, from which a person who makes a rule may choose. They are not passed on.
    #[serde(skip)]
    pub named: Vec<Ioc>,
    /// The techniques in MITRE's ATT&CK to which it belongs.
    pub techniques: Vec<Technique>,
    /// Its behaviour where it was run, each with the number of the sample.
    pub behaviour: Vec<(i64, Acted)>,
}

impl Merged {
    /// From a sample and everything in it.
    pub fn new(page: SamplePage, parts: Vec<SamplePage>) -> Merged {
        let (mut seen, mut iocs, mut behaviour) = (BTreeSet::new(), Vec::new(), Vec::new());
        let (mut known, mut named) = (BTreeSet::new(), Vec::new());
        for page in std::iter::once(&page).chain(&parts) {
            for result in page.results.iter().filter(|result| result.accepted) {
                let acted = Acted::of(&result.report);
                let found = ioc::of(&result.plugin, &result.report, acted.as_ref());
                let is_new = |ioc: &&Ioc| known.insert((ioc.kind, ioc.value.clone()));
                named.extend(found.iter().filter(is_new).cloned());
                let counts = |ioc: &Ioc| !ioc.is_bare() && seen.insert((ioc.kind, ioc.value.clone()));
                iocs.extend(found.into_iter().filter(counts));
                behaviour.extend(acted.map(|acted| (page.sample.sample, acted)));
            }
        }
        for list in [&mut iocs, &mut named] {
            list.truncate(IOCS_MAX);
            list.sort_by(|a: &Ioc, b: &Ioc| (a.kind, &a.value).cmp(&(b.kind, &b.value)));
        }
        let techniques = attack::of(std::iter::once(&page).chain(&parts));
        Merged { page, parts, iocs, named, techniques, behaviour }
    }

    /// The sample and its parts.
    pub fn samples(&self) -> impl Iterator<Item = &SampleLine> {
        std::iter::once(&self.page).chain(&self.parts).map(|page| &page.sample)
    }

    /// Who may be told: amber, unless the submitter chose something else.
    pub fn tlp(&self) -> Tlp {
        self.page.choices.tlp.unwrap_or_default()
    }

    /// The time of its newest part, in nanoseconds since the Unix epoch.
    fn at(&self) -> i64 {
        let ends = self.samples().map(|sample| sample.ended_at.unwrap_or(sample.arrived_at));
        ends.max().unwrap_or(0)
    }
}

/// A time in the form of both formats, to the millisecond.
fn rfc3339(nanos: i64) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(nanos.div_euclid(1_000_000_000));
    let at = at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let millis = nanos.rem_euclid(1_000_000_000) / 1_000_000;
    let (month, day) = (u8::from(at.month()), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", at.year())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::sample_page::{ResultLine, SampleLine};
    use serde_json::value::RawValue;

    fn result(plugin: &str, report: &str) -> ResultLine {
        let (plugin, version, outcome) = (plugin.to_owned(), "1".to_owned(), "done".to_owned());
        let report = RawValue::from_string(report.to_owned()).unwrap();
        ResultLine { plugin, version, accepted: true, outcome, of_sample: None, report }
    }

    fn page(sample: i64, name: &str, results: Vec<ResultLine>) -> SamplePage {
        let line = SampleLine {
            sample,
            hash: format!("{sample:064x}"),
            name: name.into(),
            size: 68,
            file_type: "text/plain".into(),
            submitter: "ann".into(),
            priority: 32,
            state: "done".into(),
            why: String::new(),
            arrived_at: 1_700_000_000_123_456_789,
            ended_at: Some(1_700_000_001_000_000_000),
            verdict: "malicious".into(),
            parent: (sample > 1).then_some(1),
            depth: i64::from(sample > 1),
        };
        let reasons = vec!["yara: rule: EICAR".to_owned()];
        SamplePage {
            sample: line,
            now: String::new(),
            reasons,
            choices: Choices { tlp: (sample == 1).then_some(Tlp::Red), ..Choices::default() },
            attempts: Vec::new(),
            results,
            children: Vec::new(),
            left_out: 0,
        }
    }

    pub(crate) fn merged() -> Merged {
        let strings = r#"{"success":true,"summary":{"taxonomies":[{"level":"malicious","namespace":"yara","predicate":"rule","value":"<EICAR>"}]},
            "artifacts":[{"dataType":"url","data":"http://evil.example/a?b='c'"},{"dataType":"ip","data":"192.0.2.7"},{"dataType":"ip","data":"not one"},
            {"dataType":"domain","data":"evil.example"},{"dataType":"ip","data":"2001:db8::7"},{"dataType":"hash","data":"zz"}]}"#;
        let run = r#"{"success":true,"summary":{"taxonomies":[
            {"level":"suspicious","namespace":"run-linux","predicate":"stays","value":"cron"},
            {"level":"suspicious","namespace":"run-linux","predicate":"runs-fetched","value":"http://c2.example/x"}]},"full":{"machine":"m","accelerator":"tcg","ended":"exit 0",
            "processes":[{"pid":7,"parent":1,"path":"/bin/sh","arguments":["sh","<x>"],"user":1000,"ended":"exit 0"},
                {"pid":8,"parent":7,"path":"/bin/cat","arguments":["cat"],"user":1000,"ended":"signal 9"}],
            "files":[{"path":"/tmp/x","what":"written","bytes":5,"sha256":"00"}],
            "network":[{"pid":7,"what":"connect","to":"198.51.100.4:80","detail":""},{"pid":7,"what":"dns","to":"c2.example","detail":""}],
            "persistence":[{"path":"/etc/cron.d/x","what":"cron"}]}}"#;
        Merged::new(
            page(1, "a <b>.zip", vec![result("office-pdf", strings), result("run-linux", run)]),
            vec![page(2, "b.exe", vec![result("office-pdf", strings)])],
        )
    }

    #[test]
    fn what_is_said_of_all_parts_is_one() {
        let merged = merged();
        let values: Vec<&str> = merged.iocs.iter().map(|ioc| ioc.value.as_str()).collect();
        assert_eq!(
            values,
            ["http://evil.example/a?b='c'", "192.0.2.7", "198.51.100.4", "2001:db8::7", "c2.example", "evil.example"]
        );
        let (_, acted) = &merged.behaviour[0];
        assert_eq!((acted.seen.processes.len(), acted.seen.persistence[0].what.as_str()), (2, "cron"));
        assert_eq!(merged.samples().count(), 2);
    }

    #[test]
    fn times() {
        assert_eq!(rfc3339(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(i64::MIN), "1677-09-21T00:12:43.145Z");
    }
}
