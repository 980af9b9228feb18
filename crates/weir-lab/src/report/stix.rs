//! The report as a STIX 2.1 bundle: the files, the result of each plugin's analysis, the malware if it is one, indicators, and a report
//! object that refers to all of them.
//!
//! Files, addresses and names have the ids that the standard gives them (section 2.9), so that they are the same objects in whatever bundle.
//! The ids of the others follow from the sample and from when it came. An export of the same sample later, when more is known, has the same
//! objects in a newer version: the same `created` and a later `modified` (section 3.6). The same content handed in again is told by objects of its own.

use super::ioc::IocKind;
use super::{Merged, rfc3339, uuid};
use crate::choices::Tlp;
use crate::sample_page::{ResultLine, SampleLine};
use crate::verdict::Verdict;
use serde_json::{Map, Value, json};

/// The standard's name space for what was observed.
const OBSERVED: [u8; 16] =
    [0x00, 0xab, 0xed, 0xb4, 0xaa, 0x42, 0x46, 0x6c, 0x9c, 0x01, 0xfe, 0xd2, 0x33, 0x15, 0xa9, 0xb7];

/// The identifier of the extension that defines this version for STIX 2.1.
const TLP_EXTENSION: &str = "extension-definition--60a3c5c5-0d10-413e-aab3-9e08dde9e88d";

pub fn bundle(merged: &Merged) -> Value {
    let sample = &merged.page.sample;
    let marking = marking(merged.tlp());
    let mut objects = Objects {
        all: Vec::new(),
        sample: sample.hash.clone(),
        created: rfc3339(sample.arrived_at),
        modified: rfc3339(merged.at().max(sample.arrived_at)),
        marking: marking["id"].clone(),
    };
    let identity = objects.add("identity", "weir", json!({ "name": "Weir", "identity_class": "system" }));
    for page in std::iter::once(&merged.page).chain(&merged.parts) {
        let file = objects.file(&page.sample);
        for result in page.results.iter().filter(|result| result.accepted) {
            objects.analysis(&page.sample, &file, result);
        }
        if page.sample.verdict == Verdict::Malicious.word() {
            objects.add(
                "malware",
                &page.sample.hash,
                json!({
                    "name": name(&page.sample), "is_family": false, "sample_refs": [file],
                    "description": page.reasons.join("; "),
                }),
            );
        }
    }
    for technique in &merged.techniques {
        let reference = json!({ "source_name": "mitre-attack", "external_id": technique.id, "url": technique.link() });
        let id = objects.add(
            "attack-pattern",
            technique.id,
            json!({
                "name": technique.name, "description": technique.findings.join("; "), "external_references": [reference],
                "created_by_ref": identity,
            }),
        );
        objects.uses(&id);
    }
    for ioc in &merged.iocs {
        objects.indicator(ioc.kind, &ioc.value, &ioc.from, &identity);
    }
    let everything: Vec<Value> = objects.all.iter().map(|object| object["id"].clone()).collect();
    let published = objects.modified.clone();
    let mut report = json!({
        "name": format!("Analysis of {}", name(sample)), "published": published, "created_by_ref": identity,
        "labels": [format!("verdict-{}", sample.verdict)],
        "description": merged.page.reasons.join("; "), "object_refs": everything,
    });
    // The standard has no word for a report about something harmless, or of which nothing is known.
    if sample.verdict == Verdict::Malicious.word() {
        report["report_types"] = json!(["malware"]);
    }
    objects.add("report", "", report);
    objects.all.insert(0, marking);
    json!({ "type": "bundle", "id": format!("bundle--{}", uuid::named(&format!("stix {}", sample.hash))), "objects": objects.all })
}

/// The object that says who may be told, in the form of the standard's extension for version 2.0 of the traffic light protocol.
fn marking(tlp: Tlp) -> Value {
    json!({
        "type": "marking-definition", "spec_version": "2.1", "id": tlp.marking(), "created": "2022-10-01T00:00:00.000Z",
        "name": tlp.label(),
        "extensions": { TLP_EXTENSION: { "extension_type": "property-extension", "tlp_2_0": tlp.word() } },
    })
}

fn name(sample: &SampleLine) -> &str {
    if sample.name.is_empty() { &sample.hash } else { &sample.name }
}

struct Objects {
    all: Vec<Value>,
    /// The hash of the sample that was asked for.
    sample: String,
    /// When the sample came: that stays the same.
    created: String,
    /// When what is known of it last changed.
    modified: String,
    /// Who may be told of each.
    marking: Value,
}

impl Objects {
    /// An object with an id of its own in this report; an empty text is left out, as the standard requires.
    fn add(&mut self, kind: &str, of: &str, fields: Value) -> Value {
        let named = format!("stix {kind} {} {} {of}", self.sample, self.created);
        let id: Value = format!("{kind}--{}", uuid::named(&named)).into();
        let mut object = Map::new();
        object.insert("type".into(), kind.into());
        object.insert("spec_version".into(), "2.1".into());
        object.insert("id".into(), id.clone());
        object.insert("created".into(), self.created.clone().into());
        object.insert("modified".into(), self.modified.clone().into());
        let Value::Object(fields) = fields else { return id };
        object.extend(fields.into_iter().filter(|(_, value)| value.as_str() != Some("")));
        self.push(object.into());
        id
    }

    /// Observed objects have an id that is the same everywhere.
    fn observe(&mut self, kind: &str, contributing: &Value, more: Value) -> Value {
        let id: Value = format!("{kind}--{}", uuid::in_space(OBSERVED, &contributing.to_string())).into();
        let mut object = Map::new();
        object.insert("type".into(), kind.into());
        object.insert("spec_version".into(), "2.1".into());
        object.insert("id".into(), id.clone());
        for fields in [contributing.clone(), more] {
            let Value::Object(fields) = fields else { continue };
            object.extend(fields.into_iter().filter(|(_, value)| value.as_str() != Some("")));
        }
        self.push(object.into());
        id
    }

    fn push(&mut self, mut object: Value) {
        object["object_marking_refs"] = json!([self.marking]);
        if !self.all.iter().any(|other| other["id"] == object["id"]) {
            self.all.push(object);
        }
    }

    fn file(&mut self, sample: &SampleLine) -> Value {
        let hashes = json!({ "hashes": { "SHA-256": sample.hash } });
        self.observe(
            "file",
            &hashes,
            json!({ "name": sample.name, "size": sample.size, "mime_type": sample.file_type }),
        )
    }

    /// What one plugin says about one file.
    fn analysis(&mut self, sample: &SampleLine, file: &Value, result: &ResultLine) {
        let worst = crate::job::Report::read(result.report.get().as_bytes()).ok().and_then(|report| {
            let levels = report.summary.taxonomies.iter().map(|finding| finding.level);
            levels.max()
        });
        let verdict = match worst {
            Some(crate::job::Level::Malicious) => "malicious",
            Some(crate::job::Level::Suspicious) => "suspicious",
            Some(crate::job::Level::Safe) => "benign",
            _ => "unknown",
        };
        let of = format!("{} {} {}", sample.hash, result.plugin, result.version);
        self.add(
            "malware-analysis",
            &of,
            json!({
                "product": result.plugin.to_ascii_lowercase(), "analysis_engine_version": result.version,
                "result": verdict, "sample_ref": file,
            }),
        );
    }

    /// The relation "malware uses a technique", if something is malware.
    fn uses(&mut self, technique: &Value) {
        let Some(malware) = self.all.iter().find(|object| object["type"] == "malware").map(|found| found["id"].clone())
        else {
            return;
        };
        let of = format!("{malware} uses {technique}");
        self.add(
            "relationship",
            &of,
            json!({ "relationship_type": "uses", "source_ref": malware, "target_ref": technique }),
        );
    }

    fn indicator(&mut self, kind: IocKind, value: &str, from: &str, identity: &Value) {
        let (observed, path) = match kind {
            IocKind::Url => ("url", "url:value"),
            IocKind::Ip if value.contains(':') => ("ipv6-addr", "ipv6-addr:value"),
            IocKind::Ip => ("ipv4-addr", "ipv4-addr:value"),
            IocKind::Domain => ("domain-name", "domain-name:value"),
            IocKind::Email => ("email-addr", "email-addr:value"),
        };
        self.observe(observed, &json!({ "value": value }), json!({}));
        let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
        let valid_from = self.created.clone();
        self.add("indicator", &format!("{path} {value}"), json!({
            "name": value, "pattern": format!("[{path} = '{quoted}']"), "pattern_type": "stix", "valid_from": valid_from,
            "indicator_types": ["anomalous-activity"], "created_by_ref": identity, "description": format!("found by {from}"),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_the_same_each_time_and_every_reference_is_in_it() {
        let merged = super::super::tests::merged();
        let bundle = bundle(&merged);
        assert_eq!(bundle, super::bundle(&merged));
        let objects = bundle["objects"].as_array().unwrap();
        let ids: Vec<&str> = objects.iter().map(|object| object["id"].as_str().unwrap()).collect();
        let mut refs = Vec::new();
        for object in objects {
            for (key, value) in object.as_object().unwrap() {
                if key.ends_with("_ref") {
                    refs.push(value.as_str().unwrap());
                } else if key.ends_with("_refs") {
                    refs.extend(value.as_array().unwrap().iter().map(|id| id.as_str().unwrap()));
                }
            }
        }
        assert!(refs.iter().all(|id| ids.contains(id)));
        let of = |kind: &str| objects.iter().filter(|object| object["type"] == kind).count();
        assert_eq!((of("file"), of("malware"), of("indicator"), of("malware-analysis"), of("report")), (2, 2, 6, 3, 1));
        assert_eq!((of("attack-pattern"), of("relationship")), (3, 3));
        let pattern = objects.iter().find(|object| object["type"] == "attack-pattern").unwrap();
        assert_eq!(pattern["external_references"][0]["external_id"], "T1053.003");
        let url = objects
            .iter()
            .find(|object| object["type"] == "indicator" && object["name"].as_str().unwrap().starts_with("http"))
            .unwrap();
        assert_eq!(url["pattern"], r"[url:value = 'http://evil.example/a?b=\'c\'']");
    }

    #[test]
    fn a_later_export_has_newer_versions_of_the_same_objects() {
        let early = super::super::tests::merged();
        let mut late = early.clone();
        late.parts[0].sample.ended_at = Some(1_700_000_900_000_000_000);
        let mut again = early.clone();
        again.page.sample.arrived_at += 1_000_000_000;
        let versions = |merged: &Merged| -> Vec<[String; 3]> {
            let bundle = bundle(merged);
            let objects = bundle["objects"].as_array().unwrap().clone();
            let made = objects.into_iter().filter(|object| object.get("modified").is_some());
            made.map(|object| ["id", "created", "modified"].map(|key| object[key].as_str().unwrap().to_owned()))
                .collect()
        };
        let (early, late, again) = (versions(&early), versions(&late), versions(&again));
        assert!(!early.is_empty() && early.len() == late.len());
        for ([id, created, modified], [late_id, late_created, late_modified]) in early.iter().zip(&late) {
            assert_eq!((id, created), (late_id, late_created));
            assert!(created < modified && modified < late_modified, "{created} {modified} {late_modified}");
        }
        assert!(
            early.iter().all(|[id, ..]| !again.iter().any(|[other, ..]| other == id)),
            "another time, other objects"
        );
    }

    #[test]
    fn only_a_report_about_malware_says_that_it_is_one() {
        for (verdict, types) in [("malicious", json!(["malware"])), ("clean", Value::Null), ("unknown", Value::Null)] {
            let mut merged = super::super::tests::merged();
            merged.page.sample.verdict = verdict.into();
            let bundle = bundle(&merged);
            let report =
                bundle["objects"].as_array().unwrap().iter().find(|object| object["type"] == "report").unwrap();
            assert_eq!(report["report_types"], types, "{verdict}");
        }
    }
}
