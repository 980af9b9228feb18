//! The main scheduler's conversation with one machine: it first asks what the machine has, then gives it work.

use super::outside::Outside;
use super::received::Received;
use super::{Input, LeaderHandle};
use crate::decision::{Equipment, MachineId, PluginResult, VmOffer};
use crate::dispatcher::{Dispatcher, Envelope};
use crate::job::Report;
use crate::json_text::readable;
use crate::verdict::Brief;
use crate::wire::{Ask, Message, PluginOutcome, one_line};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use weir_core::election::Epoch;
use weir_store::records::Fence;

/// If a machine does not report its VMs within this time, its connection is closed.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How often a machine is asked for its equipment, because some of it changes.
const EQUIPMENT_EVERY: Duration = Duration::from_secs(10);
/// The most VMs of a machine.
const VMS_MAX: usize = 128;

/// Both directions of a connection with a dispatcher, whatever carries them.
#[derive(Debug)]
pub struct Link {
    /// To the dispatcher.
    pub out: mpsc::UnboundedSender<Message>,
    /// From the dispatcher.
    pub from: mpsc::Receiver<Received>,
    /// For a machine outside the lab: nobody can call it to fetch the files that it found in samples, so they are requested here.
    pub outside: Option<Outside>,
}

/// Serves a machine until it, or the leader, is gone.
pub async fn attend(node: &str, mut link: Link, leader: &LeaderHandle) {
    let introduced = tokio::time::timeout(INTRODUCTION, introduce(&mut link)).await;
    let Ok(Some(vms)) = introduced else {
        return tracing::warn!(node, "a machine does not say what it has");
    };
    let names: Vec<String> = vms.iter().map(|vm| vm.name.clone()).collect();
    let (answer, joined) = oneshot::channel();
    let (node, out) = (node.to_owned(), link.out.clone());
    let input = Input::Joined { node, vms, out, answer };
    if leader.inputs.send(input).await.is_err() {
        return;
    }
    let Ok(Some(machine)) = joined.await else {
        let _ = link.out.send(Message::Bye("no machine is taken at the moment, or this one is drained".into()));
        return;
    };
    for name in &names {
        let _ = link.out.send(Message::Get(Ask::VmStatus(name.clone())));
    }
    for name in names {
        let _ = link.out.send(Message::Get(Ask::VmMemory(name)));
    }
    let mut again = tokio::time::interval(EQUIPMENT_EVERY);
    let mut later = VecDeque::new();
    loop {
        let heard = match later.pop_front() {
            Some(heard) => Some(heard),
            None => tokio::select! {
                heard = link.from.recv() => heard,
                _ = again.tick() => {
                    Equipment::ASKED.into_iter().for_each(|ask| drop(link.out.send(Message::Get(ask))));
                    continue;
                }
            },
        };
        let Some(heard) = heard else { break };
        let Some(mut input) = told(machine, heard) else { continue };
        if let (Input::Result(_, brought, _), Some(outside)) = (&mut input, &link.outside)
            && !brought.brief.children.is_empty()
        {
            // What it said besides is lost with the connection, too. It brings again what was not acknowledged.
            if !outside.fetch(&mut brought.brief, &link.out, (&mut link.from, &mut later)).await {
                break;
            }
        }
        if leader.inputs.send(input).await.is_err() {
            return;
        }
    }
    let _ = leader.inputs.send(Input::Left(machine)).await;
}

/// Serves a machine in this very process.
pub async fn attend_here(node: &str, fence: &Fence, dispatcher: &Dispatcher, leader: &LeaderHandle) {
    let (out, mut heard) = mpsc::unbounded_channel();
    let (said, mut envelope) = mpsc::unbounded_channel();
    let (to_leader, from) = mpsc::channel(64);
    if !dispatcher.connect(Epoch(fence.epoch.cast_unsigned()), said) {
        return;
    }
    let talk = async move {
        let listen = async {
            while let Some(message) = heard.recv().await {
                if matches!(message, Message::Bye(_)) {
                    break;
                }
                dispatcher.hear(&message);
            }
        };
        let speak = async {
            while let Some(said) = envelope.recv().await {
                if to_leader.send(Received { envelope: said, share: None }).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = listen => {}
            () = speak => {}
        }
        // This ends the channel that the session reads, so it tells the leader that the machine is gone.
        drop(to_leader);
    };
    tokio::join!(talk, attend(node, Link { out, from, outside: None }, leader));
}

/// Asks for the VMs, and for what each has; None if the machine is gone or reports too much. A dispatcher sends results only
/// after that, when it is asked for the status of its VMs; anything else that it sends meanwhile is ignored.
async fn introduce(link: &mut Link) -> Option<Vec<VmOffer>> {
    link.out.send(Message::Get(Ask::VmList)).ok()?;
    let mut vms: Vec<VmOffer> = Vec::new();
    loop {
        match link.from.recv().await?.envelope.message {
            Message::Vm(name) if vms.len() < VMS_MAX => vms.push(VmOffer { name, ..VmOffer::default() }),
            Message::Vm(_) => return None,
            Message::VmListEnd(count) => {
                if count as usize != vms.len() {
                    return None;
                }
                break;
            }
            _ => {}
        }
    }
    for vm in &vms {
        link.out.send(Message::Get(Ask::VmPlugins(vm.name.clone()))).ok()?;
        link.out.send(Message::Get(Ask::VmTags(vm.name.clone()))).ok()?;
    }
    let mut answers = 2 * vms.len();
    while answers > 0 {
        let message = link.from.recv().await?.envelope.message;
        let of = |vms: &mut Vec<VmOffer>, name: &str| vms.iter().position(|vm| vm.name == name);
        match message {
            Message::VmPlugins(name, plugins) => {
                let at = of(&mut vms, &name)?;
                vms[at].plugins = plugins;
                answers -= 1;
            }
            Message::VmTags(name, tags) => {
                let at = of(&mut vms, &name)?;
                vms[at].tags = tags;
                answers -= 1;
            }
            _ => {}
        }
    }
    Some(vms)
}

/// A message as an input for the leader; None for messages that the leader need not know.
fn told(machine: MachineId, Received { envelope: Envelope { message, payload }, share }: Received) -> Option<Input> {
    Some(match message {
        Message::VmStatus(vm, status) => Input::Status(machine, vm, status),
        Message::Memory(_)
        | Message::MemoryFree(_)
        | Message::Cores(_)
        | Message::Load(_)
        | Message::Index(_)
        | Message::Slots(_)
        | Message::VmMemory(..) => Input::Has(machine, message),
        Message::Over(attempt) => Input::Over(machine, attempt.cast_signed()),
        Message::Refused(attempt, why) => Input::Refused(machine, attempt.cast_signed(), one_line(&why)),
        Message::Lacks(attempt, why) => Input::Lacks(machine, attempt.cast_signed(), one_line(&why)),
        Message::Result { attempt, plugin, version, outcome, .. } => {
            Input::Result(machine, brought(attempt, (plugin, version), outcome, &payload), share)
        }
        _ => return None,
    })
}

/// A report counts only if it can be parsed as one. The text in it is only data, and no reason to refuse it.
fn brought(attempt: u64, plugin: (String, String), outcome: PluginOutcome, payload: &[u8]) -> PluginResult {
    let report = readable(payload);
    let read = Report::read(report.as_bytes()).ok().filter(|_| outcome == PluginOutcome::Done);
    let (outcome, brief) = match read {
        Some(read) => (PluginOutcome::Done, Brief::of(&plugin.0, &read)),
        None => (PluginOutcome::Failed, Brief::of_failure(&plugin.0, &report)),
    };
    // PostgreSQL cannot store a zero character. Inside strings it has been escaped; a report with one elsewhere is replaced.
    let report = match report.contains('\0') {
        true => r#"{"success":false,"errorMessage":"the report is no text"}"#.into(),
        false => report,
    };
    PluginResult { attempt: attempt.cast_signed(), plugin, outcome, report, brief }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_come_into_the_records_as_one_line_of_text() {
        let mut decision = crate::decision::Decision::new(Default::default(), 1, crate::decision::Rules::default());
        let now = crate::decision::Now { clock: weir_core::time::Instant(0), wall: 0 };
        let vm = VmOffer { name: "a".into(), ..VmOffer::default() };
        let machine = decision.plug(now, "n1", &[vm]).unwrap();
        for message in [Message::Refused(7, "\0 a\nb".into()), Message::Lacks(7, "\0 a\nb".into())] {
            let input = told(machine, Received { envelope: message.into(), share: None });
            let (Some(Input::Refused(_, 7, why)) | Some(Input::Lacks(_, 7, why))) = input else { panic!("{input:?}") };
            assert_eq!(why, "  a b");
        }
    }

    #[test]
    fn zero_characters_and_halves_of_characters_hide_nothing() {
        let report = br#"{"success":true,"full":{"a":"\u0000\udc80"},"summary":{"taxonomies":[
            {"level":"malicious","namespace":"n","predicate":"rule","value":"\u0000 \ud800"}]},
            "artifacts":[{"dataType":"file","file":"a","filename":"x\u0000.sh","sha256":"HASH","bytes":5,"contentType":"text/plain"}]}"#;
        let report = String::from_utf8_lossy(report).replace("HASH", &"ab".repeat(32));
        let brought = brought(7, ("yara".into(), "1".into()), PluginOutcome::Done, report.as_bytes());
        assert_eq!((brought.outcome, brought.brief.findings.len()), (PluginOutcome::Done, 1));
        assert_eq!(brought.brief.children[0].name, "x\u{fffd}.sh", "names go into columns and pages");
        assert!(brought.report.contains("\\u0000") && !brought.report.contains('\0'));
        let words = serde_json::to_string(&brought.brief).unwrap();
        assert!(!words.contains("\\u0000"), "{words}");
    }

    #[test]
    fn a_failure_may_say_what_it_is_a_sign_of() {
        let report = br#"{"success":false,"errorMessage":"the guest died","summary":{"taxonomies":[
            {"level":"suspicious","namespace":"run-linux","predicate":"kills-guest","value":"the guest died"},
            {"level":"safe","namespace":"run-linux","predicate":"p","value":"v"}]}}"#;
        let brought = brought(7, ("run-linux".into(), "1".into()), PluginOutcome::Failed, report);
        assert_eq!(brought.outcome, PluginOutcome::Failed);
        let texts: Vec<&str> = brought.brief.findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, ["run-linux: kills-guest: the guest died"], "what failed makes nothing clean");
    }
}
