//! Entries for fuzzing: what other proxies tell the web gate. `make test` runs them with fixed seeds, `make soak` guided by coverage.

use weir_http1::Field;

use crate::proxy::forward_auth::log_line::ended;
use crate::proxy::forward_auth::question::{Question, RequestId};

/// The fields of a question to the forward-auth door, one on each line, and the same octets as a line of a log.
pub fn forward_auth(data: &[u8]) {
    let fields: Vec<Field<'_>> = data.split(|octet| *octet == b'\n').filter_map(field).collect();
    for with_id in [false, true] {
        if let Ok(question) = Question::read(&fields[..], with_id) {
            assert!(question.target.starts_with('/') && question.path().starts_with('/'));
            assert_eq!(question.id.is_some(), with_id, "a request has a name where one is needed, and only there");
            assert_eq!(question.client, question.client.to_canonical());
        }
    }
    if let Some(end) = ended(data) {
        assert_eq!(RequestId::read(end.id.as_str().as_bytes()), Some(end.id.clone()));
        // The number that ends a request is at the beginning of a line of syslog, or in complete JSON.
        let whole = serde_json::from_slice::<serde::de::IgnoredAny>(data.trim_ascii()).is_ok();
        assert!(data.trim_ascii().starts_with(b"<") || whole);
    }
}

fn field(line: &[u8]) -> Option<Field<'_>> {
    let colon = line.iter().position(|octet| *octet == b':')?;
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    Some(Field { name, value: line[colon + 1..].trim_ascii() })
}
