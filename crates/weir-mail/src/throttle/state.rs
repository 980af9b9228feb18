//! A throttle as text, for the records.
//!
//! JSON, so that an operator can read it: the parameters it was last used with, and the machine's state. The
//! parameters travel along so that the delay queue can be drained without knowing whose it is. Where learn-only mode has made a
//! model of it, no held mail stands behind its entries.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::throttle::{
    Entry, EntryId, Kind, Params, RecipientKey, Released, Replacement, Saved, Stop, StopReason, Throttle, Today,
};
use weir_core::time::Instant;

/// The machine as text.
pub(super) fn write(throttle: &Throttle, model: bool) -> String {
    let text = Text { params: ParamsText::from(throttle.params()), state: SavedText::from(throttle.export()), model };
    serde_json::to_string(&text).unwrap_or_default()
}

/// The machine of `text` with `params`, or with those it was written with, and whether it is a model; a new one where the text is
/// empty.
pub(super) fn read(text: &str, params: Option<Params>, now: Instant) -> Result<(Throttle, bool), String> {
    if text.is_empty() {
        let new = Throttle::new(params.unwrap_or_default(), now).map_err(|e| e.to_string())?;
        return Ok((new, false));
    }
    let text: Text = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let params = params.unwrap_or_else(|| text.params.into());
    let throttle = Throttle::restore(params, text.state.into()).map_err(|e| e.to_string())?;
    Ok((throttle, text.model))
}

/// The machine of `text` at `now`, with what really waits.
pub(crate) fn at(text: &str, params: Option<Params>, now: Instant) -> Result<Throttle, String> {
    let (mut throttle, model) = read(text, params, now)?;
    throttle.advance(now);
    if model {
        empty(&mut throttle, now);
    }
    Ok(throttle)
}

/// Forgets all that waits in a model.
pub(super) fn empty(throttle: &mut Throttle, now: Instant) {
    let waiting: Vec<EntryId> = throttle.held().map(|held| held.entry).collect();
    for entry in waiting {
        throttle.delete(now, entry);
    }
}

/// `params` with what a user's own JSON says otherwise; nonsense and what is out of bounds changes nothing.
pub(crate) fn overridden(params: Params, own: &str) -> Params {
    let Ok(serde_json::Value::Object(own)) = serde_json::from_str(own) else { return params };
    let mut text = serde_json::to_value(ParamsText::from(&params)).unwrap_or_default();
    if let Some(fields) = text.as_object_mut() {
        fields.extend(own);
    }
    let changed = serde_json::from_value::<ParamsText>(text).map(Params::from).unwrap_or(params);
    if changed.check().is_ok() { changed } else { params }
}

#[derive(Serialize, Deserialize)]
struct Text {
    params: ParamsText,
    state: SavedText,
    #[serde(default)]
    model: bool,
}

#[derive(Serialize, Deserialize)]
struct ParamsText {
    rate_ns: u64,
    multi_rate_ns: u64,
    working_set: usize,
    lru: bool,
    max_slack: u32,
    max_multi_slack: u32,
    stop_at: u32,
    messages_a_day: Option<u32>,
    new_recipients_a_day: Option<u32>,
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

impl From<&Params> for ParamsText {
    fn from(p: &Params) -> ParamsText {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        ParamsText {
            rate_ns: nanos(p.rate_period),
            multi_rate_ns: nanos(p.multi_rate_period),
            working_set: p.working_set,
            lru: p.replacement == Replacement::Lru,
            max_slack: p.max_slack,
            max_multi_slack: p.max_multi_slack,
            stop_at: p.stop_at,
            messages_a_day: p.messages_a_day,
            new_recipients_a_day: p.new_recipients_a_day,
        }
    }
}

impl From<ParamsText> for Params {
    fn from(p: ParamsText) -> Params {
        Params {
            rate_period: Duration::from_nanos(p.rate_ns),
            multi_rate_period: Duration::from_nanos(p.multi_rate_ns),
            working_set: p.working_set,
            replacement: if p.lru { Replacement::Lru } else { Replacement::Fifo },
            max_slack: p.max_slack,
            max_multi_slack: p.max_multi_slack,
            stop_at: p.stop_at,
            messages_a_day: p.messages_a_day,
            new_recipients_a_day: p.new_recipients_a_day,
        }
    }
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
            today: Today { day: s.today.0, messages: s.today.1, new_recipients: s.today.2 },
            released: s.released.into_iter().map(|(id, at)| Released { entry: EntryId(id), at: Instant(at) }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_survives_as_text_in_every_state() {
        let params = Params { replacement: Replacement::Lru, messages_a_day: Some(30), ..Params::default() };
        let mut throttle = Throttle::new(params, Instant(5)).unwrap();
        for mail in 0..40u64 {
            let (again, model) = read(&write(&throttle, mail % 2 == 0), None, Instant::ZERO).unwrap();
            assert_eq!((again, model), (throttle.clone(), mail % 2 == 0));
            let keys: Vec<RecipientKey> = (0..=mail % 3).map(|k| RecipientKey(u64::MAX - mail * 7 - k)).collect();
            throttle.submit(Instant(mail * 7_000_000_000), &keys);
        }
        assert!(throttle.stopped().is_some());
        assert_eq!(read(&write(&throttle, false), None, Instant::ZERO).unwrap(), (throttle, false));
    }

    #[test]
    fn nothing_really_waits_in_a_model() {
        let mut throttle = Throttle::new(Params::default(), Instant::ZERO).unwrap();
        throttle.submit(Instant::ZERO, &[1, 2].map(RecipientKey));
        (3..9).for_each(|key| drop(throttle.submit(Instant::ZERO, &[RecipientKey(key)])));
        let held = |model| at(&write(&throttle, model), None, Instant(1)).unwrap().held_count();
        assert_eq!((held(false), held(true)), (5, 0));
        let older = write(&throttle, false).replace(",\"model\":false", "");
        assert_eq!(read(&older, None, Instant::ZERO).unwrap(), (throttle, false));
    }

    #[test]
    fn what_is_no_state_is_an_error() {
        for text in ["{}", "null", "[1]", "{\"params\":{}}"] {
            assert!(read(text, None, Instant::ZERO).is_err(), "{text}");
        }
    }
}
