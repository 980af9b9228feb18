//! A throttle as text, for the records.
//!
//! JSON, so that an operator can read it: the parameters it was last used with, and the throttle's state. The
//! parameters travel along so that the delay queue can be drained without knowing whose it is. `model` says that the
//! throttle is learning: no held mail stands behind its entries.

use super::stored::{self, ParamsText};
use serde::{Deserialize, Serialize};
use weir_core::throttle::{
    Entry, EntryId, LaneId, MailKind, NetworkKey, Params, RecipientKey, Released, Saved, SavedLane, Stop, StopReason,
    Throttle, Today,
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
    throttle.mind_gap(now, super::LOOKED_AT_WITHIN);
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
    /// Entry, time, recipient and lane; in texts of release 0.1.0 only the first two. Mail is handed out before a text is written, so
    /// there are hardly ever any.
    released: Vec<Vec<u64>>,
    /// The lanes of the wider classes and of networks. Not in texts of release 0.1.0, nor where they were never needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lanes: Option<[LaneText; 3]>,
}

#[derive(Serialize, Deserialize)]
struct LaneText {
    drain_end: u64,
    refill_end: u64,
    slack: u32,
    recent: Vec<u32>,
    /// Entry, recipient, whether it was alone among strangers, network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queue: Vec<(u64, u64, bool, u32)>,
}

impl LaneText {
    fn new(lane: SavedLane) -> LaneText {
        let entry = |e: &Entry| (e.id.0, e.recipient.0, e.kind == MailKind::Single, e.network.0);
        LaneText {
            drain_end: lane.drain_end.0,
            refill_end: lane.refill_end.0,
            slack: lane.slack,
            queue: lane.queue.iter().map(entry).collect(),
            recent: lane.recent,
        }
    }

    fn read(self, lane: LaneId) -> SavedLane {
        let entry = |(id, recipient, single, network)| Entry {
            id: EntryId(id),
            recipient: RecipientKey(recipient),
            network: NetworkKey(network),
            kind: if single { MailKind::Single } else { MailKind::Multi },
            lane,
        };
        SavedLane {
            drain_end: Instant(self.drain_end),
            refill_end: Instant(self.refill_end),
            slack: self.slack,
            recent: self.recent,
            queue: self.queue.into_iter().map(entry).collect(),
        }
    }
}

/// What was released, as numbers; nothing if they say nothing.
fn released(numbers: &[u64]) -> Option<Released> {
    let (entry, at) = (EntryId(*numbers.first()?), Instant(*numbers.get(1)?));
    let lane = numbers.get(3).and_then(|place| LaneId::WIDER.get((*place as usize).checked_sub(1)?));
    let recipient = RecipientKey(numbers.get(2).copied().unwrap_or(0));
    Some(Released { entry, recipient, lane: lane.copied().unwrap_or_default(), at })
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum StopText {
    DelayQueue,
    MessagesADay,
    NewRecipientsADay,
    Person,
    Correspondents,
    Colleagues,
    Networks,
}

impl From<Saved> for SavedText {
    fn from(s: Saved) -> SavedText {
        let stop = |stop: Stop| {
            let reason = match stop.reason {
                StopReason::DelayQueue => StopText::DelayQueue,
                StopReason::MessagesADay => StopText::MessagesADay,
                StopReason::NewRecipientsADay => StopText::NewRecipientsADay,
                StopReason::Person => StopText::Person,
                StopReason::Correspondents => StopText::Correspondents,
                StopReason::Colleagues => StopText::Colleagues,
                StopReason::Networks => StopText::Networks,
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
            queue: s.queue.iter().map(|e| (e.id.0, e.recipient.0, e.kind == MailKind::Single)).collect(),
            next_entry: s.next_entry.0,
            stopped: s.stopped.map(stop),
            situation: s.situation,
            today: (s.today.day, s.today.messages, s.today.new_recipients),
            released: s.released.iter().map(|r| vec![r.entry.0, r.at.0, r.recipient.0, r.lane as u64]).collect(),
            lanes: s.wider.map(|lanes| lanes.map(LaneText::new)),
        }
    }
}

impl From<SavedText> for Saved {
    fn from(s: SavedText) -> Saved {
        let entry = |(id, recipient, single): (u64, u64, bool)| Entry {
            id: EntryId(id),
            recipient: RecipientKey(recipient),
            network: NetworkKey::default(),
            kind: if single { MailKind::Single } else { MailKind::Multi },
            lane: LaneId::Strangers,
        };
        let stop = |(since, reason)| Stop {
            since: Instant(since),
            reason: match reason {
                StopText::DelayQueue => StopReason::DelayQueue,
                StopText::MessagesADay => StopReason::MessagesADay,
                StopText::NewRecipientsADay => StopReason::NewRecipientsADay,
                StopText::Person => StopReason::Person,
                StopText::Correspondents => StopReason::Correspondents,
                StopText::Colleagues => StopReason::Colleagues,
                StopText::Networks => StopReason::Networks,
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
            released: s.released.iter().filter_map(|numbers| released(numbers)).collect(),
            wider: s.lanes.map(|lanes| {
                let mut ids = LaneId::WIDER.into_iter();
                lanes.map(|lane| lane.read(ids.next().unwrap_or_default()))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::throttle::{Class, Mail, Recipient, Recipients, Replacement};

    #[test]
    fn the_lanes_survive_as_text_and_old_texts_have_none() {
        let params =
            Params { recipients: Recipients::Classed, new_networks: 2, network_stop_at: 90, ..Params::default() };
        let mut throttle = Throttle::new(params, Instant(5)).unwrap();
        let class = [Class::Stranger, Class::Correspondent, Class::Colleague];
        for mail in 0..30u64 {
            let to: Vec<_> =
                (0..6).map(|n| Recipient { key: RecipientKey(mail * 7 + n), class: class[n as usize % 3] }).collect();
            throttle.submit_mail(Instant(mail * 1_000_000), &Mail { to: &to, from: Some(NetworkKey(mail as u32)) });
            assert_eq!(read(&write(&throttle), None, Instant::ZERO).unwrap(), throttle);
        }
        assert!(throttle.stopped().is_some() && throttle.waiting_in(LaneId::Networks) > 0);
        let paper = write(&Throttle::new(Params::default(), Instant(5)).unwrap());
        assert!(!paper.contains("lanes"), "{paper}");
    }

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
