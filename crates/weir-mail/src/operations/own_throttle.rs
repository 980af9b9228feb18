//! A change of one user's throttle parameters, as the API takes it: rates per minute, and no field for what stays as it is.

use super::OperationError;
use crate::own::Own;
use crate::throttle::{overridden, stored};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use weir_core::throttle::{PARAMS, Param, ParamKind, Params};

/// What shall be different for one user. What is left out stays as it is.
///
/// As JSON, an object with `reset` and a field for each parameter that is asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OwnThrottle {
    /// First forget everything that was different until now.
    pub reset: bool,
    /// By the parameter's name; what is asked last counts.
    asked: BTreeMap<&'static str, ParamValue>,
}

/// What is asked for one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamValue {
    /// A rate: so many a minute.
    PerMin(f64),
    /// A number; for a cap, 0 is none.
    Number(u32),
    /// Of two words, the second.
    Second(bool),
}

impl OwnThrottle {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == OwnThrottle::default()
    }

    /// The same, which first forgets what was different until now, or does not.
    pub fn resetting(self, reset: bool) -> OwnThrottle {
        OwnThrottle { reset, ..self }
    }

    /// The same, with this asked of the parameter `name`. No such parameter, or another kind of value: nothing is asked.
    pub fn with(mut self, name: &str, asked: ParamValue) -> OwnThrottle {
        let fits = |param: &&Param| param.name == name && asked.is_of(&param.kind);
        if let Some(param) = PARAMS.iter().find(fits) {
            self.asked.insert(param.name, asked);
        }
        self
    }

    /// Changes `own` so, if every number lies within its bounds over the profile's `params`.
    pub(super) fn apply(&self, own: &mut Own, params: Params) -> Result<(), OperationError> {
        if self.reset {
            own.forget_parameters();
        }
        let mut changed = params;
        for (param, asked) in self.params() {
            param.set(&mut changed, asked.value()?);
        }
        // Stored parameters out of bounds would be ignored as a whole: they are refused here, each by name.
        let problems: Vec<String> = changed.problems().map(|problem| problem.to_string()).collect();
        if !problems.is_empty() {
            let hint = "docs/config.md has the bounds of every parameter under [throttle]";
            return Err(OperationError::invalid(problems.join("; "), hint));
        }
        self.params().for_each(|(param, _)| own.set(param.stored, stored::value(param, &changed)));
        Ok(())
    }

    fn params(&self) -> impl Iterator<Item = (&'static Param, ParamValue)> {
        PARAMS.iter().filter_map(|param| Some((param, *self.asked.get(param.name)?)))
    }
}

impl ParamValue {
    fn is_of(self, kind: &ParamKind) -> bool {
        match self {
            ParamValue::PerMin(_) => *kind == ParamKind::Rate,
            ParamValue::Number(_) => matches!(kind, ParamKind::Count(_) | ParamKind::Cap),
            ParamValue::Second(_) => matches!(kind, ParamKind::Choice(_)),
        }
    }

    /// The value as the throttle knows it.
    fn value(self) -> Result<u64, OperationError> {
        match self {
            ParamValue::PerMin(rate) => period_ns(rate),
            ParamValue::Number(number) => Ok(number.into()),
            ParamValue::Second(second) => Ok(second.into()),
        }
    }
}

/// The parameters in force for `own` over the profile's.
pub(super) fn in_force(own: &Own, profile: Params) -> Params {
    overridden(profile, &own.write())
}

fn period_ns(rate_per_min: f64) -> Result<u64, OperationError> {
    let seconds = 60.0 / rate_per_min;
    let period = Duration::try_from_secs_f64(seconds).ok().filter(|period| Params::PERIOD.contains(period));
    let ns = period.and_then(|period| u64::try_from(period.as_nanos()).ok());
    ns.ok_or_else(|| {
        let what = format!("{rate_per_min} a minute is not a possible rate");
        OperationError::invalid(what, "a rate lies between one in 366 days and 1000 a second")
    })
}

/// The field by which a parameter is asked for: a choice is asked by its second word.
fn field(param: &Param) -> &'static str {
    match param.kind {
        ParamKind::Choice([_, second]) => second,
        _ => param.field,
    }
}

impl Serialize for OwnThrottle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("reset", &self.reset)?;
        for (param, asked) in self.params() {
            match asked {
                ParamValue::PerMin(rate) => map.serialize_entry(field(param), &rate)?,
                ParamValue::Number(number) => map.serialize_entry(field(param), &number)?,
                ParamValue::Second(second) => map.serialize_entry(field(param), &second)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for OwnThrottle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnThrottle, D::Error> {
        deserializer.deserialize_map(OwnThrottleVisitor)
    }
}

impl JsonSchema for OwnThrottle {
    fn schema_name() -> Cow<'static, str> {
        "OwnThrottle".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let schema = |param: &Param| match param.kind {
            ParamKind::Rate => json!({ "type": ["number", "null"], "description": param.about }),
            ParamKind::Count(_) | ParamKind::Cap => {
                json!({ "type": ["integer", "null"], "minimum": 0, "description": param.about })
            }
            ParamKind::Choice(_) => json!({ "type": ["boolean", "null"], "description": param.about }),
        };
        let reset =
            json!({ "type": "boolean", "description": "First forget everything that was different until now." });
        let fields = PARAMS.iter().map(|param| (field(param).to_owned(), schema(param)));
        let fields: Map<String, Value> = fields.chain([("reset".to_owned(), reset)]).collect();
        schemars::json_schema!({ "type": "object", "properties": fields, "additionalProperties": false })
    }
}

struct OwnThrottleVisitor;

impl<'de> Visitor<'de> for OwnThrottleVisitor {
    type Value = OwnThrottle;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("throttle parameters by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnThrottle, A::Error> {
        let mut own = OwnThrottle::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == "reset" {
                own.reset = map.next_value()?;
                continue;
            }
            let Some(param) = PARAMS.iter().find(|param| field(param) == key) else {
                let known: Vec<String> = PARAMS.iter().map(|param| format!("`{}`", field(param))).collect();
                return Err(Error::custom(format!("unknown field `{key}`, expected `reset` or {}", known.join(", "))));
            };
            let asked = match param.kind {
                ParamKind::Rate => map.next_value::<Option<f64>>()?.map(ParamValue::PerMin),
                ParamKind::Count(_) | ParamKind::Cap => map.next_value::<Option<u32>>()?.map(ParamValue::Number),
                ParamKind::Choice(_) => map.next_value::<Option<bool>>()?.map(ParamValue::Second),
            };
            own.asked.extend(asked.map(|asked| (param.name, asked)));
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_in_force_and_the_rest_is_the_profiles() {
        let mut own = Own::read("{\"max_slack\":9}");
        let asked = r#"{"rate_per_min":5.0,"stop_at":50,"messages_a_day":100,"new_recipients_a_day":0,"lru":true,"max_multi_slack":null}"#;
        let asked: OwnThrottle = serde_json::from_str(asked).unwrap();
        let again: OwnThrottle = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!(again, asked);
        let profile = Params { new_recipients_a_day: Some(3), ..Params::default() };
        asked.apply(&mut own, profile).unwrap();
        let params = in_force(&own, profile);
        assert_eq!(params.rate_period, Duration::from_secs(12));
        assert_eq!((params.stop_at, params.max_slack, params.max_multi_slack), (50, 9, 15));
        assert_eq!((params.messages_a_day, params.new_recipients_a_day), (Some(100), None));
        let stored = serde_json::json!({
            "max_slack": 9, "rate_ns": 12_000_000_000_u64, "lru": true, "stop_at": 50, "messages_a_day": 100, "new_recipients_a_day": null
        });
        assert_eq!(serde_json::from_str::<Value>(&own.write()).unwrap(), stored);
        OwnThrottle { reset: true, ..OwnThrottle::default() }.apply(&mut own, profile).unwrap();
        assert_eq!(in_force(&own, profile), profile);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        let refused = |asked: OwnThrottle| asked.apply(&mut Own::default(), Params::default()).unwrap_err().to_string();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e18, 1e-18] {
            let asked = OwnThrottle::default().with("rate", ParamValue::PerMin(rate));
            assert!(refused(asked).contains("not a possible rate"));
        }
        let both =
            OwnThrottle::default().with("stop_at", ParamValue::Number(0)).with("working_set", ParamValue::Number(129));
        let said = refused(both);
        assert!(said.contains("stop_at must be") && said.contains("working_set must be"), "{said}");
    }

    #[test]
    fn what_is_no_parameter_is_refused() {
        for text in ["{\"slack\":1}", "{\"stop_at\":-1}", "{\"lru\":1}", "{\"rate_per_min\":\"5\"}", "[]"] {
            assert!(serde_json::from_str::<OwnThrottle>(text).is_err(), "{text}");
        }
    }
}
