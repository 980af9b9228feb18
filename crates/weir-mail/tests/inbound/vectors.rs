//! The test vectors of RFC 7208, from the source package of pyspf (tools/setup), against a name server over UDP. Explanations are not
//! compared: nobody here is told them.

use super::authenticity::settings;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;
use weir_mail::inbound::authenticity::Authenticity;
use weir_peers::{NameServer, Record};

#[tokio::test]
async fn all_vectors_of_rfc_7208() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mail-authenticity/rfc7208-tests.json");
    let text = std::fs::read_to_string(&path).expect("the vectors are there once tools/setup has run");
    let scenarios: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let (mut right, mut wrong) = (0, Vec::new());
    for scenario in &scenarios {
        let dns = name_server(scenario["zonedata"].as_object().expect("a zone"));
        let authenticity = Authenticity::new(&settings(dns.address(), Duration::from_secs(30))).unwrap();
        for (name, test) in scenario["tests"].as_object().expect("tests") {
            let said = |key: &str| test[key].as_str().unwrap_or_default();
            let client = said("host").parse().expect("an address");
            let found = authenticity.spf_of(client, said("helo"), said("mailfrom")).await;
            let wanted = match &test["result"] {
                Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
                one => vec![one.as_str().expect("a result")],
            };
            if wanted.contains(&found) {
                right += 1;
            } else {
                wrong.push(format!("{name}: {found} instead of {}", wanted.join(" or ")));
            }
        }
    }
    println!("SPF: {right} of {} vectors right", right + wrong.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(right >= 200, "only {right} vectors were found");
}

fn name_server(zone: &Map<String, Value>) -> NameServer {
    let mut dns = NameServer::start();
    for (name, records) in zone {
        let records = records.as_array().expect("records");
        // Whoever has records of the type SPF, which is no more, has the same as text, unless it says otherwise.
        let has_text = records.iter().any(|record| record.get("TXT").is_some());
        for record in records {
            for record in read(record, has_text) {
                dns = dns.with(name, record);
            }
        }
    }
    dns
}

fn read(record: &Value, has_text: bool) -> Vec<Record> {
    let Some(record) = record.as_object() else { return vec![Record::Fails] };
    let text = |value: &Value| value.as_str().unwrap_or_default().trim_end_matches('.').to_owned();
    let strings = |value: &Value| match value {
        Value::Array(parts) => {
            Record::Strings(parts.iter().map(|part| part.as_str().unwrap_or_default().to_owned()).collect())
        }
        one => Record::Txt(one.as_str().unwrap_or_default().to_owned()),
    };
    let read = |(kind, value): (&String, &Value)| match kind.as_str() {
        "TXT" if value == "NONE" => None,
        "TXT" => Some(strings(value)),
        "SPF" => (!has_text).then(|| strings(value)),
        "A" | "AAAA" => Some(Record::Address(value.as_str()?.parse().ok()?)),
        "MX" => Some(Record::Mx(value[0].as_u64()? as u16, text(&value[1]))),
        "PTR" => Some(Record::Ptr(text(value))),
        "CNAME" => Some(Record::Alias(text(value))),
        other => panic!("{other} records are not known"),
    };
    record.iter().filter_map(read).collect()
}
