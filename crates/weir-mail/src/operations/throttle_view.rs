//! The state of a user's throttle in numbers and in words.

use super::{plural, when};
use crate::counted::{count, wait};
use crate::throttle::machine;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::throttle::{LaneId, PARAMS, Param, ParamKind, Params, Recipients, StopReason, Throttle};
use weir_core::time::Instant;
use weir_foundation::date::Date;
use weir_store::records::ThrottleRow;

/// A throttle as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Throttle")]
pub struct ThrottleView {
    /// `open`, `waiting`, `stopped` or `exempt`.
    pub state: String,
    /// The same in a sentence.
    pub in_words: String,
    /// Recipients in the delay queue.
    pub held: usize,
    /// When the next of them goes.
    #[schemars(extend("format" = "date-time"))]
    pub next_at: Option<String>,
    /// When the last of them goes.
    #[schemars(extend("format" = "date-time"))]
    pub last_at: Option<String>,
    /// Since when the user is stopped.
    #[schemars(extend("format" = "date-time"))]
    pub stopped_since: Option<String>,
    /// New addresses that may be mailed at once now.
    pub slack: u32,
    /// Recipients of a mail to several that may be reached at once now.
    pub multi_slack: u32,
    /// Addresses in the working set.
    pub working_set: usize,
    /// People written to before who may be reached at once now; none where recipients are all alike.
    pub correspondent_slack: Option<u32>,
    /// Colleagues who may be reached at once now; none where recipients are all alike.
    pub colleague_slack: Option<u32>,
    /// Networks new to the account from which strangers may be written to now; none where that is not looked at.
    pub new_networks: Option<u32>,
    /// The parameters in force.
    pub params: ParamsView,
}

/// Throttle parameters. As JSON, an object with a field for each, in units that people think in: rates by the minute, a
/// choice as its word, no cap as `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsView(pub Params);

impl Serialize for ParamsView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(PARAMS.len()))?;
        for param in &PARAMS {
            let value = param.value(&self.0);
            match param.kind {
                ParamKind::Rate => {
                    map.serialize_entry(param.field, &(60.0 / Duration::from_nanos(value).as_secs_f64()))?;
                }
                ParamKind::Count(_) => map.serialize_entry(param.field, &value)?,
                ParamKind::Cap => map.serialize_entry(param.field, &(value > 0).then_some(value))?,
                ParamKind::Choice([first, second]) => {
                    map.serialize_entry(param.field, if value == 0 { first } else { second })?;
                }
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ParamsView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ParamsView, D::Error> {
        let (given, mut params) = (Map::deserialize(deserializer)?, Params::default());
        for param in &PARAMS {
            let shown = given.get(param.field).ok_or_else(|| D::Error::missing_field(param.field))?;
            let value = match param.kind {
                ParamKind::Rate => shown.as_f64().map(|rate| (60e9 / rate).round() as u64),
                ParamKind::Cap if shown.is_null() => Some(0),
                ParamKind::Count(_) | ParamKind::Cap => shown.as_u64(),
                ParamKind::Choice([_, second]) => shown.as_str().map(|word| u64::from(word == second)),
            };
            let value = value.ok_or_else(|| D::Error::custom(format!("`{}` cannot be {shown}", param.field)))?;
            param.set(&mut params, value);
        }
        Ok(ParamsView(params))
    }
}

impl JsonSchema for ParamsView {
    fn schema_name() -> Cow<'static, str> {
        "ThrottleParameters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let schema = |param: &Param| match param.kind {
            ParamKind::Rate => json!({ "type": "number", "description": param.about }),
            ParamKind::Count(_) => json!({ "type": "integer", "minimum": 0, "description": param.about }),
            ParamKind::Cap => json!({ "type": ["integer", "null"], "minimum": 0, "description": param.about }),
            ParamKind::Choice(words) => json!({ "enum": words, "description": param.about }),
        };
        let fields: Map<String, Value> = PARAMS.iter().map(|param| (param.field.to_owned(), schema(param))).collect();
        let required: Vec<&str> = PARAMS.iter().map(|param| param.field).collect();
        schemars::json_schema!({ "type": "object", "properties": fields, "required": required })
    }
}

/// A throttle at one moment, with the time at which each entry will go.
pub(super) struct Snapshot {
    throttle: Throttle,
    expected: BTreeMap<i64, Option<Instant>>,
}

impl Snapshot {
    /// The machine of a stored row, moved to `now` in thought only.
    pub(super) fn of(row: Option<&ThrottleRow>, params: Option<Params>, now: Instant) -> Result<Snapshot, String> {
        let throttle = machine(row.map_or("", |row| row.state.as_str()), params, now)?;
        let expected = throttle.held().map(|held| (held.entry.0 as i64, held.expected_at)).collect();
        Ok(Snapshot { throttle, expected })
    }

    /// When an entry goes; nothing while the user is stopped.
    pub(super) fn expected(&self, entry: i64) -> Option<Instant> {
        self.expected.get(&entry).copied().flatten()
    }

    /// Why the user is stopped, in words.
    pub(super) fn stopped(&self) -> Option<String> {
        let stop = self.throttle.stopped()?;
        let params = self.throttle.params();
        let waiting = self.throttle.held_count();
        let since = Date::new(stop.since);
        let why = match stop.reason {
            StopReason::Person => "a person locked the account".to_owned(),
            StopReason::DelayQueue => format!("more than {} waited", count(params.stop_at, "recipient")),
            StopReason::Correspondents => {
                format!("more than {} people waited who were written to before", params.correspondents.stop_at)
            }
            StopReason::Colleagues => format!("more than {} waited", count(params.colleagues.stop_at, "colleague")),
            StopReason::Networks => format!(
                "more than {} waited who were written to from networks that are new to the account",
                count(params.network_stop_at, "stranger")
            ),
            StopReason::MessagesADay => {
                format!("more than {} in a day", count(params.messages_a_day.unwrap_or(0), "message"))
            }
            StopReason::NewRecipientsADay => {
                format!("more than {} in a day", count(params.new_recipients_a_day.unwrap_or(0), "new recipient"))
            }
        };
        Some(format!("stopped since {since}: {why}; {} for a decision", wait(waiting, "recipient")))
    }

    pub(super) fn view(&self, exempt: bool) -> ThrottleView {
        let (saved, params) = (self.throttle.export(), self.throttle.params());
        let classed = params.recipients == Recipients::Classed;
        let stop = self.throttle.stopped();
        let (next, last) = (self.next_at(), self.last_at());
        let state = match (exempt, stop, self.expected.len()) {
            (true, ..) => "exempt",
            (_, Some(_), _) => "stopped",
            (_, None, 0) => "open",
            (_, None, _) => "waiting",
        };
        ThrottleView {
            state: state.to_owned(),
            in_words: self.words(exempt),
            held: self.expected.len(),
            next_at: next.map(|at| when(at.0 as i64)),
            last_at: last.map(|at| when(at.0 as i64)),
            stopped_since: stop.map(|stop| when(stop.since.0 as i64)),
            slack: saved.slack,
            multi_slack: saved.multi_slack,
            working_set: saved.working_set.len(),
            correspondent_slack: classed.then(|| self.throttle.slack_of(LaneId::Correspondents)),
            colleague_slack: classed.then(|| self.throttle.slack_of(LaneId::Colleagues)),
            new_networks: (params.new_networks > 0).then(|| self.throttle.slack_of(LaneId::Networks)),
            params: ParamsView(*self.throttle.params()),
        }
    }

    /// When the first entry goes.
    fn next_at(&self) -> Option<Instant> {
        self.expected.values().copied().flatten().min()
    }

    /// When the last entry goes.
    fn last_at(&self) -> Option<Instant> {
        self.expected.values().copied().flatten().max()
    }

    fn words(&self, exempt: bool) -> String {
        let waiting = self.expected.len();
        let queue = match self.next_at().zip(self.last_at()) {
            _ if self.throttle.stopped().is_some() => self.stopped().unwrap_or_default(),
            Some((next, last)) => format!(
                "{waiting} recipient{} wait{}: the next goes at {}, the last at {}",
                plural(waiting),
                if waiting == 1 { "s" } else { "" },
                Date::new(next).hour_minute(),
                Date::new(last).hour_minute()
            ),
            None => String::new(),
        };
        match (exempt, queue.is_empty()) {
            (true, true) => "exempt: the throttle does not look at this user".to_owned(),
            (true, false) => format!("exempt: new mail is not throttled; from before, {queue}"),
            (false, false) => queue,
            (false, true) => {
                let saved = self.throttle.export();
                format!(
                    "nothing waits; may now mail {} new address{} at once, or {} recipient{} of one mail{}",
                    saved.slack,
                    if saved.slack == 1 { "" } else { "es" },
                    saved.multi_slack,
                    plural(saved.multi_slack as usize),
                    self.besides()
                )
            }
        }
    }
}

impl Snapshot {
    /// Who else may be reached, where recipients have classes.
    fn besides(&self) -> String {
        if self.throttle.params().recipients == Recipients::Alike {
            return String::new();
        }
        let [known, colleagues] = [LaneId::Correspondents, LaneId::Colleagues].map(|lane| self.throttle.slack_of(lane));
        format!("; besides, {known} who were written to before and {colleagues} colleagues")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::throttle::RecipientKey;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn snapshot(mails: u64) -> Snapshot {
        let mut throttle = Throttle::new(Params::default(), at(0)).unwrap();
        for mail in 0..mails {
            throttle.submit(at(1), &[RecipientKey(mail)]);
        }
        let expected = throttle.held().map(|held| (held.entry.0 as i64, held.expected_at)).collect();
        Snapshot { throttle, expected }
    }

    #[test]
    fn parameters_are_shown_in_units_that_people_think_in() {
        let params = Params { messages_a_day: Some(30), ..Params::default() };
        let text = "{\"rate_per_min\":1.0,\"multi_rate_per_min\":1.0,\"working_set\":5,\"replacement\":\"fifo\",\"max_slack\":1,\
                    \"max_multi_slack\":15,\"stop_at\":20,\"messages_a_day\":30,\"new_recipients_a_day\":null,\
                    \"recipients\":\"alike\",\"correspondent_slack\":20,\"correspondent_rate_per_min\":0.5,\
                    \"correspondent_drain_per_min\":1.2,\"correspondent_stop_at\":21,\"colleague_slack\":22,\
                    \"colleague_rate_per_min\":0.3333333333333333,\"colleague_drain_per_min\":1.2,\"colleague_stop_at\":21,\"new_networks\":0,\
                    \"network_rate_per_min\":0.005555555555555556,\"network_stop_at\":10}";
        assert_eq!(serde_json::to_string(&ParamsView(params)).unwrap(), text);
        assert_eq!(serde_json::from_str::<ParamsView>(text).unwrap(), ParamsView(params));
    }

    #[test]
    fn every_state_has_its_sentence() {
        let said = |mails, exempt| snapshot(mails).view(exempt).in_words;
        assert_eq!(said(0, false), "nothing waits; may now mail 1 new address at once, or 15 recipients of one mail");
        assert_eq!(said(2, false), "1 recipient waits: the next goes at 00:01 UTC, the last at 00:01 UTC");
        assert_eq!(said(4, false), "3 recipients wait: the next goes at 00:01 UTC, the last at 00:03 UTC");
        assert_eq!(
            said(30, false),
            "stopped since 1970-01-01 00:00:01 UTC: more than 20 recipients waited; 21 recipients wait for a decision"
        );
        assert_eq!(said(0, true), "exempt: the throttle does not look at this user");
        assert!(said(4, true).starts_with("exempt: new mail is not throttled; from before, 3 recipients wait"));
    }

    #[test]
    fn numbers_and_states_agree() {
        for (mails, state, held) in [(0, "open", 0), (4, "waiting", 3), (30, "stopped", 21)] {
            let view = snapshot(mails).view(false);
            assert_eq!((view.state.as_str(), view.held), (state, held));
            assert_eq!(view.next_at.is_some(), state == "waiting");
        }
    }
}
