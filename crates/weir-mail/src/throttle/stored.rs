//! Throttle parameters as they are stored: with the state of a throttle, and as a user's own.
//!
//! Names and order are those of the core's table. Periods are in nanoseconds, no cap is `null`, a choice is whether it is
//! the second word.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use weir_core::throttle::{PARAMS, Param, ParamKind, Params};

/// What is stored for one parameter.
pub(crate) fn value(param: &Param, params: &Params) -> Value {
    match (&param.kind, param.value(params)) {
        (ParamKind::Cap, 0) => Value::Null,
        (ParamKind::Choice(_), value) => Value::from(value != 0),
        (_, value) => Value::from(value),
    }
}

/// `params` with those that `fields` names otherwise; nothing if one of them cannot be read.
pub(super) fn changed(params: Params, fields: &Map<String, Value>) -> Option<Params> {
    let mut changed = params;
    for (param, value) in PARAMS.iter().filter_map(|param| Some((param, fields.get(param.stored)?))) {
        param.set(&mut changed, read(param, value)?);
    }
    Some(changed)
}

fn read(param: &Param, value: &Value) -> Option<u64> {
    match param.kind {
        ParamKind::Rate => value.as_u64(),
        ParamKind::Cap if value.is_null() => Some(0),
        ParamKind::Count(_) | ParamKind::Cap => value.as_u64().filter(|number| u32::try_from(*number).is_ok()),
        ParamKind::Choice(_) => value.as_bool().map(u64::from),
    }
}

/// All parameters as one object. A parameter that is not there, because the text is older, has its default.
pub(super) struct ParamsText(pub(super) Params);

impl Serialize for ParamsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(PARAMS.len()))?;
        for param in &PARAMS {
            map.serialize_entry(param.stored, &value(param, &self.0))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ParamsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ParamsText, D::Error> {
        deserializer.deserialize_map(ParamsVisitor)
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = ParamsText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("throttle parameters by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParamsText, A::Error> {
        let mut params = Params::default();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let Some(param) = PARAMS.iter().find(|param| param.stored == name) else { continue };
            let value = read(param, &value).ok_or_else(|| A::Error::custom(format!("{name} cannot be {value}")))?;
            param.set(&mut params, value);
        }
        Ok(ParamsText(params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_core::throttle::Replacement;

    #[test]
    fn the_stored_text_is_what_it_always_was() {
        let params = Params {
            multi_rate_period: Duration::from_secs(1),
            replacement: Replacement::Lru,
            messages_a_day: Some(30),
            ..Params::default()
        };
        let text = "{\"rate_ns\":60000000000,\"multi_rate_ns\":1000000000,\"working_set\":5,\"lru\":true,\"max_slack\":1,\
                    \"max_multi_slack\":15,\"stop_at\":20,\"messages_a_day\":30,\"new_recipients_a_day\":null}";
        let written = serde_json::to_string(&ParamsText(params)).unwrap();
        assert!(written.starts_with(text.trim_end_matches('}')) && written.contains("\"classed\":false"), "{written}");
        assert_eq!(serde_json::from_str::<ParamsText>(text).unwrap().0, params);
    }

    #[test]
    fn what_is_of_another_kind_is_refused_and_what_is_missing_has_its_default() {
        for text in ["{\"stop_at\":null}", "{\"lru\":1}", "{\"rate_ns\":\"1\"}", "{\"max_slack\":4294967296}", "[]"] {
            assert!(serde_json::from_str::<ParamsText>(text).is_err(), "{text}");
        }
        let some: ParamsText = serde_json::from_str("{\"stop_at\":7,\"of later\":{}}").unwrap();
        assert_eq!(some.0, Params { stop_at: 7, ..Params::default() });
    }
}
