//! The decision about one mail whose recipients have classes (stranger, correspondent, colleague) and whose client is in a network.
//!
//! The recipients of each class are decided on as if they were the whole mail: the paper's rules apply to strangers, and each wider class
//! has a lane. For strangers the client's network counts too: a mail from a network that is new to the account spends slack for networks,
//! and if there is none left, its strangers wait in the lane for networks. A stop holds for all classes.

use super::lane::{Lane, short};
use super::{
    Entry, EntryId, Held, LaneId, Mail, MailDecision, MailKind, NetworkKey, Recipient, Recipients, StopReason, Throttle,
};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Throttle {
    /// Decides about a mail: to which of its recipients it is sent now, and which wait. Each recipient is named once. A mail to nobody is accepted and
    /// changes nothing.
    pub fn submit_mail(&mut self, now: Instant, mail: &Mail<'_>) -> MailDecision {
        self.catch_up(now);
        if self.stopped().is_some() {
            return MailDecision::Refused;
        }
        self.end_learning();
        let (fates, stopped) = self.accept_mail(mail);
        self.check_invariants();
        MailDecision::Accepted { fates, stopped }
    }

    /// As [`Throttle::enqueue`], but each recipient waits in the lane of its class.
    pub fn enqueue_mail(&mut self, now: Instant, to: &[Recipient], kind: MailKind) -> Vec<Held> {
        self.catch_up(now);
        self.end_learning();
        let before = self.lengths();
        let from = self.next_entry;
        to.iter().for_each(|to| self.join(self.lane_of(to), to, kind, NetworkKey::default()));
        if self.stopped().is_none()
            && let Some(reason) = self.over_a_threshold(&before)
            && !planted(Mutant::ThrottleEnqueueNeverStops)
        {
            self.enter_stop(reason);
        }
        self.check_invariants();
        self.held_since(EntryId(from), &before)
    }

    /// A mail of a user who is not stopped: the fate of each recipient, and whether that stopped the user.
    pub(super) fn accept_mail(&mut self, mail: &Mail<'_>) -> (Vec<Option<Held>>, Option<StopReason>) {
        let before = self.lengths();
        let from = self.next_entry;
        let fence = self.count_mail(mail);
        let waits: Vec<bool> = match (fence, mail.to) {
            (Some(_), to) => self.hold_all(to),
            (None, [one]) if self.working_set.hit(one.key, self.params.replacement) => alloc::vec![false],
            (None, to) => self.pass_or_join(to, mail.from),
        };
        let stopped = fence.or(self.over_a_threshold(&before));
        if let Some(reason) = stopped {
            self.enter_stop(reason);
        }
        let mut held = self.held_since(EntryId(from), &before).into_iter();
        (waits.into_iter().map(|waits| if waits { held.next() } else { None }).collect(), stopped)
    }

    fn count_mail(&mut self, mail: &Mail<'_>) -> Option<StopReason> {
        let strangers = mail.to.iter().filter(|to| self.lane_of(to) == LaneId::Strangers);
        let new = strangers.filter(|to| !self.working_set.contains(to.key)).count();
        self.count_today(mail.to.len(), new)
    }

    /// A cap is passed: all recipients wait.
    fn hold_all(&mut self, to: &[Recipient]) -> Vec<bool> {
        let kind = self.kind_of_strangers(to);
        to.iter().for_each(|to| self.join(self.lane_of(to), to, kind, NetworkKey::default()));
        alloc::vec![true; to.len()]
    }

    /// Splits the recipients: for each of them, in order, whether it has to wait (otherwise the mail is sent to it now).
    fn pass_or_join(&mut self, to: &[Recipient], from: Option<NetworkKey>) -> Vec<bool> {
        let kind = self.kind_of_strangers(to);
        let strangers: Vec<&Recipient> = to.iter().filter(|to| self.lane_of(to) == LaneId::Strangers).collect();
        let elsewhere = from.filter(|from| !strangers.is_empty() && !self.network_passes(*from));
        let mut at_once = match strangers.as_slice() {
            _ if elsewhere.is_some() => 0,
            [one] => usize::from(self.pass_single(one.key)),
            many => self.pass_multi(many.len()),
        };
        let mut decide = |to: &Recipient| {
            let lane = self.lane_of(to);
            let passes = match lane {
                LaneId::Strangers => at_once > 0,
                _ => self.lane_passes(lane, short(to.key)),
            };
            match (lane, elsewhere) {
                (LaneId::Strangers, _) if passes => at_once -= 1,
                _ if passes => {}
                (LaneId::Strangers, Some(network)) => self.join(LaneId::Networks, to, kind, network),
                _ => self.join(lane, to, kind, NetworkKey::default()),
            }
            !passes
        };
        to.iter().map(&mut decide).collect()
    }

    /// Whether the paper's rules see the strangers of a mail as one recipient or as several.
    fn kind_of_strangers(&self, to: &[Recipient]) -> MailKind {
        let strangers = to.iter().filter(|to| self.lane_of(to) == LaneId::Strangers).count();
        if strangers > 1 { MailKind::Multi } else { MailKind::Single }
    }

    fn lane_of(&self, to: &Recipient) -> LaneId {
        match self.params.recipients {
            Recipients::Alike => LaneId::Strangers,
            Recipients::Classed => to.class.into(),
        }
    }

    fn network_passes(&mut self, from: NetworkKey) -> bool {
        self.params.new_networks == 0
            || planted(Mutant::ThrottleNewNetworksPass)
            || self.lane_passes(LaneId::Networks, from.0)
    }

    fn lane_passes(&mut self, id: LaneId, key: u32) -> bool {
        let params = self.params.lane(id);
        self.lane_mut(id).is_some_and(|lane| lane.passes(key, &params))
    }

    /// Puts a recipient at the end of a lane.
    fn join(&mut self, lane: LaneId, to: &Recipient, kind: MailKind, network: NetworkKey) {
        let entry = Entry { id: EntryId(self.next_entry), recipient: to.key, network, kind, lane };
        self.next_entry = self.next_entry.saturating_add(1);
        match self.lane_mut(lane) {
            Some(lane) => lane.queue.push(entry),
            None => self.queue.push(entry),
        }
    }

    /// A wider lane; it is created when it is first needed.
    fn lane_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        let place = id.wider()?;
        let (params, now) = (&self.params, self.now);
        let lanes =
            self.wider.get_or_insert_with(|| Box::new(LaneId::WIDER.map(|id| Lane::new(&params.lane(id), now))));
        lanes.get_mut(place)
    }

    /// A wider lane, if it was ever needed.
    pub(super) fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.wider.as_ref()?.get(id.wider()?)
    }

    /// How many entries wait in each lane.
    fn lengths(&self) -> [usize; 4] {
        let wider = LaneId::WIDER.map(|id| self.lane(id).map_or(0, |lane| lane.queue.len()));
        [self.queue.len(), wider[0], wider[1], wider[2]]
    }

    /// Why this stops the user: a lane has grown since `before`, and is now over its threshold.
    fn over_a_threshold(&self, before: &[usize; 4]) -> Option<StopReason> {
        let over = |(id, before): (LaneId, &usize)| {
            let length = self.lane(id)?.queue.len();
            let over = length > self.params.lane(id).stop_at as usize && length > *before;
            (over && !planted(Mutant::ThrottleLanesNeverStop)).then(|| id.into())
        };
        self.over_threshold(before[0]).or_else(|| LaneId::WIDER.into_iter().zip(&before[1..]).find_map(over))
    }

    /// The entries with this id or a later one, in order. `before` is how many waited in each lane before them.
    fn held_since(&self, from: EntryId, before: &[usize; 4]) -> Vec<Held> {
        let stopped = self.stopped().is_some();
        let mut held: Vec<Held> = self.held_from(before[0]).collect();
        for (id, before) in LaneId::WIDER.into_iter().zip(&before[1..]) {
            held.extend(self.lane(id).into_iter().flat_map(|lane| lane.held_from(*before)));
        }
        held.retain(|held| held.entry >= from);
        held.sort_unstable_by_key(|held| held.entry);
        if stopped {
            held.iter_mut().for_each(|held| held.expected_at = None);
        }
        held
    }

    /// The entries in the wider lanes, with the times at which they will be released.
    pub(super) fn held_in_lanes(&self) -> impl Iterator<Item = Held> {
        let stopped = self.stopped().is_some();
        let lanes = LaneId::WIDER.into_iter().filter_map(|id| self.lane(id));
        lanes
            .flat_map(|lane| lane.held_from(0))
            .map(move |held| Held { expected_at: held.expected_at.filter(|_| !stopped), ..held })
    }
}
