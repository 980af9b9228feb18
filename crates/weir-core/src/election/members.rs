//! The nodes that this one has heard of, and which of them are its local nodes: those that answer it. A local node that misses n replies in
//! a row stops being one.
//!
//! The table has at most `members_max` entries. When it is full, a node that has been silent for long is removed to make room; if there is
//! none, the new node is refused. Every operation costs O(log n) or one walk of the table.

use super::window::Window;
use super::{Boot, Channel, Frame, KeyId, MessageRefusal, NodeId, Rank, Role, Settings};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

/// This many lives of a machine are remembered in addition to its present one.
const OTHER_LIVES: usize = 3;

/// The table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Members {
    members: BTreeMap<NodeId, Member>,
}

/// One other node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    key: KeyId,
    pub(crate) role: Role,
    pub(crate) address: IpAddr,
    pub(crate) rank: Rank,
    stands: bool,
    window: Window,
    /// The windows of lives before or beside this one, the latest first: clones may alternate with their original.
    other_lives: [Option<Window>; OTHER_LIVES],
    /// The latest life ever heard of.
    latest: Boot,
    /// A stream has shown its life and its address, and datagrams do not change them any more, because many machines can write a datagram.
    proved: bool,
    heard_at: Instant,
    /// Beats since its last reply; none if it is not a local node.
    missed: Option<u32>,
}

impl Members {
    /// Admits a frame and remembers its sender. Returns the frame with the address at which the sender is known. A refusal changes nothing.
    pub(crate) fn admit(&mut self, now: Instant, frame: &Frame, settings: &Settings) -> Result<Frame, MessageRefusal> {
        if let Some(known) = self.members.get(&frame.from.id) {
            known.check(now, frame, settings)?;
        } else {
            self.make_room(now, settings)?;
        }
        let member = self.members.entry(frame.from.id).or_insert_with(|| Member::new(frame, now));
        let frame = member.known(frame);
        member.hear(now, &frame);
        Ok(frame)
    }

    fn make_room(&mut self, now: Instant, settings: &Settings) -> Result<(), MessageRefusal> {
        if self.members.len() >= settings.members_max {
            self.members.retain(|_, m| m.is_recent(now, settings));
        }
        if self.members.len() < settings.members_max { Ok(()) } else { Err(MessageRefusal::TableFull) }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The role of a node that was heard of.
    pub(crate) fn role(&self, id: NodeId) -> Option<Role> {
        self.members.get(&id).map(|member| member.role)
    }

    /// The addresses of the nodes of the lab's network that were heard of lately.
    pub(crate) fn in_lab(&self, now: Instant, settings: &Settings) -> Vec<IpAddr> {
        let known = self.members.values().filter(|m| m.role != Role::External && m.is_recent(now, settings));
        known.map(|m| m.address).collect()
    }

    /// Puts a node on the list of local nodes, or resets its missed beats.
    pub(crate) fn note_local(&mut self, id: NodeId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.missed = Some(0);
        }
    }

    /// One more beat without a reply; more than `n` take a node off the list.
    pub(crate) fn miss_beat(&mut self, n: u32) {
        for member in self.members.values_mut() {
            member.missed = member.missed.map(|missed| missed + 1).filter(|missed| *missed <= n);
        }
    }

    /// Empties the list of local nodes.
    pub(crate) fn clear_local(&mut self) {
        self.members.values_mut().for_each(|m| m.missed = None);
    }

    pub(crate) fn local(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().filter(|(_, m)| m.missed.is_some()).map(|(id, m)| (*id, m))
    }

    /// The best of the local nodes that would lead.
    pub(crate) fn best_local(&self) -> Option<NodeId> {
        self.best().map(|(id, _)| id)
    }

    pub(crate) fn best_local_rank(&self) -> Option<Rank> {
        self.best().map(|(_, member)| member.rank)
    }

    fn best(&self) -> Option<(NodeId, &Member)> {
        let eligible = self.local().filter(|(_, m)| m.role == Role::Eligible && m.stands);
        eligible.min_by_key(|(_, m)| m.rank)
    }
}

impl Member {
    fn new(frame: &Frame, now: Instant) -> Member {
        Member {
            key: frame.from.key,
            role: frame.from.role,
            address: frame.from.address,
            rank: frame.rank(),
            stands: frame.claim.stands,
            window: Window::new(frame.from.boot),
            other_lives: [None; OTHER_LIVES],
            latest: frame.from.boot,
            proved: frame.via == Channel::Stream,
            heard_at: now,
            missed: None,
        }
    }

    fn is_recent(&self, now: Instant, settings: &Settings) -> bool {
        now.since(self.heard_at) < settings.forget_after()
    }

    fn check(&self, now: Instant, frame: &Frame, settings: &Settings) -> Result<(), MessageRefusal> {
        if frame.from.key != self.key {
            // The shell accepts streams with the registered key only, so the name has been given to another machine. A datagram shows no key.
            return if frame.via == Channel::Stream { Ok(()) } else { Err(MessageRefusal::OtherKey) };
        }
        match frame.via {
            Channel::Stream if !self.proved => return Ok(()),
            Channel::Datagram { .. } if self.proved && frame.from.boot > self.latest => {
                return Err(MessageRefusal::LaterLife);
            }
            _ => {}
        }
        // A stream shows that the earlier life still runs: the later one was a clone, and is gone.
        let silent = now.since(self.heard_at) >= settings.silence();
        if frame.from.boot < self.window.boot() && !(silent && frame.via == Channel::Stream) {
            return Err(if silent { MessageRefusal::Revenant } else { MessageRefusal::EarlierLife });
        }
        match frame.via {
            Channel::Datagram { sequence } if !self.is_new(frame.from.boot, sequence) => Err(MessageRefusal::Replayed),
            _ => Ok(()),
        }
    }

    fn is_new(&self, boot: Boot, sequence: u64) -> bool {
        let mut windows = core::iter::once(&self.window).chain(self.other_lives.iter().flatten());
        match windows.find(|window| window.boot() == boot) {
            Some(window) => window.is_new(sequence),
            None => boot > self.latest,
        }
    }

    /// A datagram of a node that a stream has shown counts as sent from the address of the stream, whatever its source says.
    fn known(&self, frame: &Frame) -> Frame {
        let mut frame = *frame;
        if self.proved && frame.via != Channel::Stream {
            frame.from.address = self.address;
        }
        frame
    }

    fn hear(&mut self, now: Instant, frame: &Frame) {
        if frame.from.boot != self.window.boot() {
            let is_it = |life: &Option<Window>| life.is_some_and(|window| window.boot() == frame.from.boot);
            // If the new life is remembered, it is exchanged with the present one; otherwise it replaces the life that was left longest ago.
            let place = self.other_lives.iter().position(is_it).unwrap_or(OTHER_LIVES - 1);
            self.other_lives[..=place].rotate_right(1);
            let [before, ..] = &mut self.other_lives;
            self.window = before
                .replace(self.window)
                .filter(|window| window.boot() == frame.from.boot)
                .unwrap_or(Window::new(frame.from.boot));
        }
        let newcomer = frame.from.key != self.key;
        if newcomer {
            // It has a count of lives of its own, and has not answered anybody yet.
            (self.key, self.missed) = (frame.from.key, None);
        }
        if frame.via == Channel::Stream && (newcomer || !self.proved) {
            // What datagrams have said of later lives until now may have come from anybody; their sequence numbers stay used.
            (self.proved, self.latest) = (true, frame.from.boot);
        }
        if let Channel::Datagram { sequence } = frame.via {
            self.window.take(sequence);
        }
        (self.role, self.address, self.rank) = (frame.from.role, frame.from.address, frame.rank());
        self.stands = frame.claim.stands;
        self.latest = self.latest.max(frame.from.boot);
        self.heard_at = now;
    }
}
