//! A throttle as text, for the records.
//!
//! JSON, so that an operator can read it: the parameters it was last used with, and the throttle's state. The
//! parameters travel along so that the delay queue can be drained without knowing whose it is. `model` says that the
//! throttle is learning: no held mail stands behind its entries.

use super::stored::{self, ParamsText};
use serde::{Deserialize, Serialize};
use weir_core::throttle::{
    Entry, EntryId, Kind, Params, RecipientKey, Released, Saved, Stop, StopReason, Throttle, Today,
};
use weir_core::time::Instant;

/// The throttle as text.
pub(super) fn write(throttle: &Throttle) -> String {
    let (params, model) = (ParamsText(*throttle.params()), throttle.is_learning());
    serde_json::to_string(&ThrottleText { params, state: SavedText::from(throttle.export()), model })
        .unwrap_or_default()
}

/// The throttle of `text` with `params`, or with those it was written with; a new one where the text is empty.
pub(super) fn read(text: &str, params: Option<Params>, now: Instant) -> Result<Throttle, String> {
    if text.is_empty() {
        return Throttle::new(params.unwrap_or_default(), now).map_err(|e| e.to_string());
    }
    let text: ThrottleText = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let params = params.unwrap_or(text.params.0);
    let saved = Saved { learning: text.model, ..text.state.into() };
    Throttle::restore(params, saved).map_err(|e| e.to_string())
}

/// The throttle of `text` at `now`.
pub(crate) fn at(text: &str, params: Option<Params>, now: Instant) -> Result<Throttle, String> {
    let mut throttle = read(text, params, now)?;
    throttle.advance(now);
    Ok(throttle)
}

/// `params` with what a user's own JSON says otherwise; nonsense and what is out of bounds changes nothing.
pub(crate) fn overridden(params: Params, own: &str) -> Params {
    let Ok(serde_json::Value::Object(own)) = serde_json::from_str(own) else { return params };
    stored::changed(params, &own).filter(|changed| changed.check().is_ok()).unwrap_or(params)
}

#[derive(Serialize, Deserialize)]
struct ThrottleText {
    params: ParamsText,
    state: SavedText,
    #[serde(default)]
    model: bool,
}

#[derive(Serialize, Deserialize)]
struct SavedText {
    now: u64,
    single_end: u64,
    multi_end: u64,
    slack: u32,
    multi_slack: u32,
    working_set: Vec<u64>,
    /// Entry, recipient, whether its mail had one recipient.
    queue: Vec<(u64, u64, bool)>,
    next_entry: u64,
    stopped: Option<(u64, StopText)>,
    /// Not in texts of release 0.1.0.
    #[serde(default)]
    situation: u32,
    today: (u64, u32, u32),
    released: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum StopText {
    DelayQueue,
    MessagesADay,
    NewRecipientsADay,
    Person,
}

impl From<Saved> for SavedText {
    fn from(s: Saved) -> SavedText {
        let stop = |stop: Stop| {
            let reason = match stop.reason {
                StopReason::DelayQueue => StopText::DelayQueue,
                StopReason::MessagesADay => StopText::MessagesADay,
                StopReason::NewRecipientsADay => StopText::NewRecipientsADay,
                StopReason::Person => StopText::Person,
            };
            (stop.since.0, reason)
        };
        SavedText {
            now: s.now.0,
            single_end: s.single_period_end.0,
            multi_end: s.multi_period_end.0,
            slack: s.slack,
            multi_slack: s.multi_slack,
            working_set: s.working_set.iter().map(|key| key.0).collect(),
            queue: s.queue.iter().map(|e| (e.id.0, e.recipient.0, e.kind == Kind::Single)).collect(),
            next_entry: s.next_entry.0,
            stopped: s.stopped.map(stop),
            situation: s.situation,
            today: (s.today.day, s.today.messages, s.today.new_recipients),
            released: s.released.iter().map(|r| (r.entry.0, r.at.0)).collect(),
        }
    }
}

impl From<SavedText> for Saved {
    fn from(s: SavedText) -> Saved {
        let entry = |(id, recipient, single): (u64, u64, bool)| Entry {
            id: EntryId(id),
            recipient: RecipientKey(recipient),
            kind: if single { Kind::Single } else { Kind::Multi },
        };
        let stop = |(since, reason)| Stop {
            since: Instant(since),
            reason: match reason {
                StopText::DelayQueue => StopReason::DelayQueue,
                StopText::MessagesADay => StopReason::MessagesADay,
                StopText::NewRecipientsADay => StopReason::NewRecipientsADay,
                StopText::Person => StopReason::Person,
            },
        };
        Saved {
            now: Instant(s.now),
            single_period_end: Instant(s.single_end),
            multi_period_end: Instant(s.multi_end),
            slack: s.slack,
            multi_slack: s.multi_slack,
            working_set: s.working_set.into_iter().map(RecipientKey).collect(),
            queue: s.queue.into_iter().map(entry).collect(),
            next_entry: EntryId(s.next_entry),
            stopped: s.stopped.map(stop),
            situation: s.situation,
            learning: false,
            today: Today { day: s.today.0, messages: s.today.1, new_recipients: s.today.2 },
            released: s.released.into_iter().map(|(id, at)| Released { entry: EntryId(id), at: Instant(at) }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::throttle::Replacement;

    #[test]
    fn a_machine_survives_as_text_in_every_state() {
        let params = Params { replacement: Replacement::Lru, messages_a_day: Some(30), ..Params::default() };
        let mut throttle = Throttle::new(params, Instant(5)).unwrap();
        for mail in 0..40u64 {
            assert_eq!(read(&write(&throttle), None, Instant::ZERO).unwrap(), throttle);
            let keys: Vec<RecipientKey> = (0..=mail % 3).map(|k| RecipientKey(u64::MAX - mail * 7 - k)).collect();
            throttle.submit(Instant(mail * 7_000_000_000), &keys);
        }
        assert!(throttle.stopped().is_some());
        assert_eq!(read(&write(&throttle), None, Instant::ZERO).unwrap(), throttle);
    }

    #[test]
    fn nothing_really_waits_in_a_model() {
        let mut throttle = Throttle::new(Params::default(), Instant::ZERO).unwrap();
        throttle.submit(Instant::ZERO, &[1, 2].map(RecipientKey));
        let mut model = throttle.clone();
        for key in (3..9).map(RecipientKey) {
            throttle.submit(Instant::ZERO, &[key]);
            model.learn(Instant::ZERO, &[key]);
        }
        let held = |throttle| at(&write(throttle), None, Instant(1)).unwrap().held_count();
        assert_eq!((held(&throttle), held(&model)), (5, 0));
        assert_eq!(write(&model), write(&throttle).replace("\"model\":false", "\"model\":true"));
        assert_eq!(read(&write(&model), None, Instant::ZERO).unwrap(), model);
        let older = write(&throttle).replace(",\"model\":false", "");
        assert_eq!(read(&older, None, Instant::ZERO).unwrap(), throttle);
    }

    #[test]
    fn what_is_no_state_is_an_error() {
        for text in ["{}", "null", "[1]", "{\"params\":{}}"] {
            assert!(read(text, None, Instant::ZERO).is_err(), "{text}");
        }
    }
}
