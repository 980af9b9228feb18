//! The report as a MISP event (MISP core format): one attribute for each file and indicator, and tags for the verdict.
//!
//! It is not marked as published and its distribution is limited to one's own organisation; whoever wants to share it can change that.

use super::ioc::IocKind;
use super::{Merged, Technique, rfc3339, uuid};
use serde_json::{Value, json};

pub fn event(merged: &Merged) -> Value {
    let sample = &merged.page.sample;
    let at = merged.at();
    let stamp = at.div_euclid(1_000_000_000).to_string();
    let named = |what: &str, value: &str| uuid::named(&format!("misp {what} {} {value}", sample.hash));
    let attribute = |kind: &str, category: &str, value: &str, to_ids: bool, comment: String| {
        json!({
            "uuid": named(kind, value), "type": kind, "category": category, "value": value, "to_ids": to_ids,
            "comment": comment, "distribution": "5", "timestamp": stamp, "disable_correlation": false,
        })
    };
    let mut attributes = Vec::new();
    for (place, part) in merged.samples().enumerate() {
        let bad = matches!(part.verdict.as_str(), "malicious" | "suspicious");
        let comment = if place == 0 { part.file_type.clone() } else { format!("{}, found in it", part.file_type) };
        attributes.push(attribute("sha256", "Payload delivery", &part.hash, bad, comment));
        if !part.name.is_empty() {
            attributes.push(attribute(
                "filename",
                "Payload delivery",
                &part.name,
                false,
                format!("name of {}", part.hash),
            ));
        }
    }
    for ioc in &merged.iocs {
        let (kind, category) = match ioc.kind {
            IocKind::Url => ("url", "Network activity"),
            IocKind::Ip => ("ip-dst", "Network activity"),
            IocKind::Domain => ("domain", "Network activity"),
            IocKind::Email => ("email", "Social network"),
        };
        // An indicator that was only read somewhere must not block anything automatically.
        attributes.push(attribute(kind, category, &ioc.value, false, format!("found by {}", ioc.from)));
    }
    for reason in &merged.page.reasons {
        attributes.push(attribute("text", "External analysis", reason, false, "reason of the verdict".into()));
    }
    // Two parts may have the same name.
    let mut seen = std::collections::BTreeSet::new();
    attributes.retain(|attribute| seen.insert(attribute["uuid"].to_string()));
    let mut tags = vec![
        json!({ "name": format!("weir:verdict=\"{}\"", sample.verdict) }),
        json!({ "name": format!("tlp:{}", merged.tlp().word()) }),
    ];
    // In the spelling of MISP's own galaxy.
    let galaxy = |technique: &Technique| {
        let name = technique.name.rsplit(": ").next().unwrap_or(technique.name);
        json!({ "name": format!("misp-galaxy:mitre-attack-pattern=\"{name} - {}\"", technique.id) })
    };
    tags.extend(merged.techniques.iter().map(galaxy));
    let threat = match sample.verdict.as_str() {
        "malicious" => "1",
        "suspicious" => "2",
        "clean" => "3",
        _ => "4",
    };
    json!({ "Event": {
        "uuid": named("event", ""),
        "info": format!("Analysis of {} ({})", if sample.name.is_empty() { "a sample" } else { sample.name.as_str() }, sample.verdict),
        "date": &rfc3339(at)[..10], "timestamp": stamp, "published": false,
        "threat_level_id": threat, "analysis": if sample.ended_at.is_some() { "2" } else { "1" }, "distribution": "0",
        "Attribute": attributes,
        "Tag": tags,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_same_each_time_and_names_everything_once() {
        let merged = super::super::tests::merged();
        let event = event(&merged);
        assert_eq!(event, super::event(&merged));
        let attributes = event["Event"]["Attribute"].as_array().unwrap();
        let of = |kind: &str| attributes.iter().filter(|attribute| attribute["type"] == kind).count();
        assert_eq!((of("sha256"), of("url"), of("ip-dst"), of("domain"), of("filename")), (2, 1, 3, 2, 2));
        let tags = event["Event"]["Tag"].to_string();
        assert!(tags.contains(r#"mitre-attack-pattern=\"Cron - T1053.003\""#), "{tags}");
        assert_eq!((&event["Event"]["threat_level_id"], &event["Event"]["date"]), (&"1".into(), &"2023-11-14".into()));
    }
}
