//! An attacker in the network, who sends messages each of which is false in one way.

use super::node::Node;
use crate::rng::Rng;
use weir_core::election::{
    Aborter, Channel, Claim, Epoch, Frame, KeyId, Message, MessageRefusal, NodeId, Origin, Phase, Priority, Role, Round,
};

/// A false message, and whether the shell itself drops it.
#[derive(Debug)]
pub(super) struct Forgery {
    pub(super) frame: Frame,
    pub(super) authentic: bool,
}

impl Forgery {
    /// A message for `victim` that pretends to come from `other` or repeats what the victim has heard.
    pub(super) fn random(rng: &mut Rng, victim: &Node, other: &Node) -> Option<Forgery> {
        let election = victim.election.as_ref()?;
        let claim = Claim { priority: other.me.priority, index: other.index, stands: true };
        let message = damaging(rng, election.round(), election.me().id);
        let mut frame = Frame { from: other.me, via: Channel::Stream, claim, message };
        let kind = rng.below(5);
        match kind {
            0 => frame.from = outsider(rng, &other.me),
            1 => frame.claim.priority = Priority(claim.priority.0.wrapping_add(1 + rng.below(255) as u8)),
            2 => frame.via = Channel::Datagram { sequence: 1 << 40 },
            3 => frame = victim.overheard?,
            // An unauthenticated message may say anything.
            _ => {}
        }
        let refusable = kind != 2 || message.needs_stream();
        (refusable && frame.from.id != election.me().id).then_some(Forgery { frame, authentic: kind != 4 })
    }

    /// Whether this is how such a message must be refused.
    pub(super) fn is_refused_by(verdict: Result<(), MessageRefusal>) -> bool {
        matches!(
            verdict,
            Err(MessageRefusal::Role | MessageRefusal::Priority | MessageRefusal::Channel | MessageRefusal::Replayed)
        ) || matches!(verdict, Err(MessageRefusal::EarlierLife | MessageRefusal::LaterLife | MessageRefusal::Revenant))
    }
}

/// A message that would do the most harm if it were believed.
fn damaging(rng: &mut Rng, round: Round, victim: NodeId) -> Message {
    let epoch = Some(Epoch(1 + rng.below(1 << 50)));
    match rng.below(5) {
        0 => Message::Victory { round, epoch },
        1 => Message::Abort { phase: Phase::Victory, round, by: Aborter::Leader(epoch) },
        2 => Message::LeaderAlive { round, epoch },
        3 => Message::Resigned { epoch, successor: Some(victim) },
        _ => Message::LeaderRequestConfirm { round },
    }
}

/// A machine with a good certificate that does not let it lead.
fn outsider(rng: &mut Rng, like: &Origin) -> Origin {
    let role = if rng.chance(0.5) { Role::External } else { Role::Dispatcher };
    Origin { id: NodeId(1_000_000), key: KeyId([0xee; 32]), role, priority: like.priority, ..*like }
}
