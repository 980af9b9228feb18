//! What may happen to the node, drawn at random.

use super::model::{ME, PEERS};
use proptest::prelude::*;
use weir_core::election::{Aborter, Epoch, Message, NodeId, Phase, Round};

/// What may happen to the node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Say {
        peer: usize,
        kind: u8,
        epoch: u64,
        current_round: bool,
        lie: Lie,
    },
    Wait {
        ms: u64,
    },
    /// The database carries out the oldest order and answers.
    Answer,
    /// The oldest order is lost, or its answer.
    Drop {
        done: bool,
    },
    /// Somebody else takes the lease, if it is free.
    Rival,
    Resign,
    Rejoin,
    /// The database knows of nobody else.
    Alone,
    /// The operator gives the node another priority.
    Prioritise {
        priority: u8,
    },
}

/// How a frame may be false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lie {
    None,
    Priority,
    Key,
    Replay,
    WrongChannel,
}

fn op() -> impl Strategy<Value = Op> {
    let lie = prop_oneof![
        8 => Just(Lie::None),
        1 => Just(Lie::Priority),
        1 => Just(Lie::Key),
        1 => Just(Lie::Replay),
        1 => Just(Lie::WrongChannel),
    ];
    prop_oneof![
        6 => (0..PEERS.len(), 0u8..10, 0u64..6, any::<bool>(), lie)
            .prop_map(|(peer, kind, epoch, current_round, lie)| Op::Say { peer, kind, epoch, current_round, lie }),
        8 => (1u64..900).prop_map(|ms| Op::Wait { ms }),
        6 => Just(Op::Answer),
        1 => any::<bool>().prop_map(|done| Op::Drop { done }),
        1 => Just(Op::Rival),
        1 => Just(Op::Resign),
        2 => Just(Op::Rejoin),
        1 => Just(Op::Alone),
        2 => (0u8..4).prop_map(|priority| Op::Prioritise { priority }),
    ]
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..120)
}

/// The message of this kind.
pub(super) fn message(kind: u8, epoch: u64, round: Round) -> Message {
    let some = epoch.checked_sub(1).map(Epoch);
    match kind {
        0 => Message::LeaderRequest { round },
        1 => Message::LeaderRequestConfirm { round },
        2 | 3 => Message::Victory { round, epoch: some },
        4 => Message::Abort { phase: Phase::Confirm, round, by: Aborter::Better },
        5 => Message::Abort { phase: Phase::Victory, round, by: Aborter::Leader(some) },
        6 => Message::Ack { round },
        7 => Message::LeaderAlive { round, epoch: some },
        8 => Message::Present { following: epoch > 2, epoch: some },
        _ => Message::Resigned { epoch: some, successor: (epoch > 2).then_some(NodeId(u64::from(ME.2))) },
    }
}
