//! The last steps of a run in words, to explain a failure.

use super::Payload;
use super::lab::ElectionLab;
use crate::world::{Happening, WorldAddress};

/// How many lines are kept.
const LINES: usize = 60;

impl ElectionLab {
    /// Notes a step, if notes are kept.
    pub(super) fn log(&mut self, happening: &Happening<Payload>) {
        let Some(history) = &mut self.history else { return };
        if matches!(happening, Happening::Note(Payload::Look | Payload::Work | Payload::Intrude(_))) {
            return;
        }
        let line = match happening {
            Happening::Arrived { from, to, payload } => format!("{} → {}: {}", place(*from), place(*to), said(payload)),
            Happening::Timer(host) => format!("node {host}: timer"),
            Happening::Note(Payload::Begin(name)) => format!("begins: {:?}", self.plan.episodes[*name]),
            Happening::Note(Payload::End(name)) => format!("ends: {:?}", self.plan.episodes[*name]),
            Happening::Note(note) => format!("{note:?}"),
        };
        if history.len() == LINES {
            history.pop_front();
        }
        history.push_back(format!("{:9.4} s  {line}", self.world.now().as_secs_f64()));
    }
}

fn place(place: WorldAddress) -> String {
    match place {
        WorldAddress::Host(host) => format!("node {host}"),
        WorldAddress::Database => "database".into(),
    }
}

/// A payload in one line.
fn said(payload: &Payload) -> String {
    match payload {
        Payload::Frame { frame, .. } => {
            let (from, claim) = (&frame.from, &frame.claim);
            format!("[life {} rank {}/{}] {:?}", from.boot.0, claim.priority.0, claim.index.0, frame.message)
        }
        other => format!("{other:?}"),
    }
}
