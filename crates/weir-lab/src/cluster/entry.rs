//! How a machine outside the lab that cannot be called learns who leads: it asks the lab's entry addresses.
//!
//! Any machine inside answers `weir-lab 1 leader`: the leader with its victory message, any other machine with the leader's address. Only
//! the leader's own word counts, on a connection on which it has shown its certificate.

use super::connection::{Caller, Lines, far_end};
use super::identity::Identity;
use super::registry::Registry;
use crate::wire::election::Said;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use weir_core::election::{Channel, Frame, Message, Origin, Role};

/// From a question to its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is asked.
const EVERY: Duration = Duration::from_secs(2);

/// Asks for ever.
pub(crate) async fn ask(entries: Vec<IpAddr>, caller: Caller, registry: Registry, frames: mpsc::Sender<Frame>) {
    loop {
        for entry in &entries {
            match who_leads(*entry, &caller, &registry).await {
                Ok(frame) => {
                    registry.heard(frame.from.id, frame.from.address);
                    if frames.send(frame).await.is_err() {
                        return;
                    }
                    break;
                }
                Err(error) => tracing::debug!(%error, %entry, "an entry of the lab does not say who leads"),
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What the leader says about itself, as the entry names it.
async fn who_leads(entry: IpAddr, caller: &Caller, registry: &Registry) -> io::Result<Frame> {
    let (answer, from) = question(entry, caller, registry).await?;
    match answer.strip_prefix("leader ").and_then(|address| address.parse().ok()) {
        Some(leader) => {
            let (answer, from) = question(leader, caller, registry).await?;
            victory(&answer, from)
        }
        None => victory(&answer, from),
    }
}

fn victory(answer: &str, mut from: Origin) -> io::Result<Frame> {
    let said = Said::parse(answer).map_err(|_| io::Error::other(answer.to_owned()))?;
    if !matches!(said.message, Message::Victory { .. }) || from.role != Role::Eligible {
        return Err(io::ErrorKind::InvalidData.into());
    }
    from.boot = said.boot;
    Ok(Frame { from, via: Channel::Stream, claim: said.claim, message: said.message })
}

/// The answer of the machine at this address, and which machine it is; its life is not known yet.
async fn question(address: IpAddr, caller: &Caller, registry: &Registry) -> io::Result<(String, Origin)> {
    let stream = caller.call(address, "leader", PATIENCE).await?;
    let shown = far_end(&stream).ok_or(io::ErrorKind::InvalidData)?;
    // A machine that may not lead can still say which one does.
    if !registry.admits(&shown).await && shown.identity.role == Role::Eligible {
        return Err(io::Error::other("its name was given to another machine"));
    }
    let line = tokio::time::timeout(PATIENCE, Lines::new(stream).line()).await;
    let line = line.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.unwrap_or_default();
    let Identity { role, priority, .. } = shown.identity;
    let (id, key) = (shown.identity.id(), shown.key);
    Ok((line, Origin { id, key, role, priority, address, boot: weir_core::election::Boot(0) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::election::{Boot, Epoch, KeyId, NodeId, Priority};

    #[test]
    fn only_a_victory_of_one_that_may_lead_counts() {
        let from = |role| {
            let (id, key, priority) = (NodeId(1), KeyId([1; 32]), Priority(3));
            Origin { id, key, role, priority, address: [10, 7, 0, 1].into(), boot: Boot(0) }
        };
        let frame = victory("7 3 5 stands victory 7.0 4", from(Role::Eligible)).unwrap();
        assert_eq!((frame.from.boot, frame.via), (Boot(7), Channel::Stream));
        assert!(matches!(frame.message, Message::Victory { epoch: Some(Epoch(4)), .. }));
        for (answer, role) in [
            ("7 3 5 stands victory 7.0 4", Role::Dispatcher),
            ("7 3 5 stands victory 7.0 4", Role::External),
            ("7 3 5 stands leader alive 7.0 4", Role::Eligible),
            ("bye nobody leads at the moment", Role::Eligible),
            ("", Role::Eligible),
        ] {
            assert!(victory(answer, from(role)).is_err(), "{answer} of {role:?}");
        }
    }
}
