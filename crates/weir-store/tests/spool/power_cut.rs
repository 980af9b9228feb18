//! Power cuts and failing disks, simulated byte by byte: what was not synced may be gone, and what a failed sync left behind
//! is gone for good. Everything acknowledged must be there after the cut.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use weir_store::spool::faults::{Call, Faults};
use weir_store::spool::{FoundMessage, MessageId, Options, Spool};

use crate::dice::{Dice, quick_folder, runtime, tiny};

#[derive(Clone, Debug, Default)]
struct Message {
    body: Vec<u8>,
    envelope: Vec<u8>,
    acknowledged: bool,
    marks: Vec<Vec<u8>>,
    durable_marks: usize,
    finish: Finish,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Finish {
    #[default]
    No,
    Asked,
    Durable,
}

struct World {
    home: TempDir,
    round: usize,
    faults: Arc<Faults>,
    spool: Option<Spool>,
    messages: BTreeMap<MessageId, Message>,
    dice: Dice,
    failing: bool,
    lying: bool,
}

impl World {
    fn new(seed: u64, failing: bool, lying: bool) -> World {
        World {
            home: quick_folder(),
            round: 0,
            faults: Arc::default(),
            spool: None,
            messages: BTreeMap::new(),
            dice: Dice(seed),
            failing,
            lying,
        }
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join(self.round.to_string())
    }

    fn open(&mut self) -> Result<(), String> {
        self.faults = Arc::default();
        if self.lying {
            self.faults.let_syncs_lie();
        }
        // Marks that wait long for their sync show whether anything relies on them too early.
        let options = Options {
            faults: Some(Arc::clone(&self.faults)),
            segment_bytes: if self.dice.one_in(2) { 8 << 10 } else { 160 << 10 },
            marks_every: if self.dice.one_in(3) { Duration::ZERO } else { Duration::from_secs(3600) },
            ..tiny()
        };
        let (spool, found) = Spool::open(self.folder(), options).map_err(|error| error.to_string())?;
        // Of a sidecar it may be said that marks are lost: they were not durable, but nothing there says so.
        let mut damage = spool.damage().iter().filter(|damage| damage.path.extension().is_some_and(|is| is == "seg"));
        if let (false, Some(damage)) = (self.failing || self.lying, damage.next()) {
            return Err(format!("a power cut alone is no damage: {damage}"));
        }
        self.spool = Some(spool);
        self.check(&found)
    }

    async fn step(&mut self) {
        let spool = self.spool.clone().expect("an open spool");
        if self.failing && self.dice.one_in(6) {
            let calls = [Call::Write, Call::Sync, Call::Sync, Call::Create, Call::Cut, Call::Remove, Call::SyncFolder];
            let (call, skip) = (calls[self.dice.below(calls.len())], self.dice.below(4) as u32);
            self.faults.fail(call, skip, if self.dice.one_in(2) { 5 } else { 28 });
        }
        match self.dice.below(10) {
            0..4 => self.commit_some(&spool, false).await,
            4..6 => self.mark(&spool),
            6..8 => self.finish(&spool),
            8 => self.compact(&spool).await,
            _ => self.flush(&spool).await,
        }
    }

    /// Several drafts at once, so that they share a batch; with `cut`, the power goes while they wait.
    async fn commit_some(&mut self, spool: &Spool, cut: bool) {
        let mut commits = JoinSet::new();
        for _ in 0..1 + self.dice.below(4) {
            let length = if self.dice.one_in(8) { 60_000 + self.dice.below(90_000) } else { self.dice.below(2500) };
            let envelope_length = self.dice.below(200);
            let (body, envelope) = (self.dice.bytes(length), self.dice.bytes(envelope_length));
            let Ok(mut draft) = spool.draft() else { continue };
            let message = Message { body: body.clone(), envelope: envelope.clone(), ..Message::default() };
            self.messages.insert(draft.id(), message);
            let abandoned = self.dice.one_in(10);
            commits.spawn(async move {
                draft.write(&body).await?;
                if abandoned { Err(weir_store::spool::SpoolError::Closed) } else { draft.commit(envelope).await }
            });
        }
        if cut {
            for _ in 0..self.dice.below(3) {
                tokio::task::yield_now().await;
            }
            self.faults.power_cut();
        }
        while let Some(outcome) = commits.join_next().await {
            if let Ok(Ok(id)) = outcome {
                self.messages.entry(id).and_modify(|message| message.acknowledged = true);
            }
        }
    }

    fn pick(&mut self) -> Option<MessageId> {
        let live: Vec<MessageId> = self
            .messages
            .iter()
            .filter(|(_, message)| message.acknowledged && message.finish == Finish::No)
            .map(|(id, _)| *id)
            .collect();
        live.get(self.dice.below(live.len())).copied()
    }

    fn mark(&mut self, spool: &Spool) {
        let Some(id) = self.pick() else { return };
        let length = self.dice.below(50);
        let mark = self.dice.bytes(length);
        if spool.mark(id, mark.clone()).is_ok() {
            self.messages.entry(id).and_modify(|message| message.marks.push(mark));
        }
    }

    fn finish(&mut self, spool: &Spool) {
        let Some(id) = self.pick() else { return };
        if spool.finish(id).is_ok() {
            self.messages.entry(id).and_modify(|message| message.finish = Finish::Asked);
        }
    }

    /// Compacts while messages are being finished.
    async fn compact(&mut self, spool: &Spool) {
        let finishing = async {
            for _ in 0..self.dice.below(6) {
                for _ in 0..self.dice.below(3000) {
                    std::hint::spin_loop();
                }
                self.finish(spool);
            }
        };
        let _ = tokio::join!(biased; spool.compact(), finishing);
    }

    async fn flush(&mut self, spool: &Spool) {
        if spool.flush().await.is_err() {
            return;
        }
        for message in self.messages.values_mut() {
            message.durable_marks = message.marks.len();
            if message.finish == Finish::Asked {
                message.finish = Finish::Durable;
            }
        }
    }

    /// Cuts the power in the middle of something, and goes on with what the disk has.
    async fn cut(&mut self) -> Result<(), String> {
        let spool = self.spool.take().expect("an open spool");
        self.commit_some(&spool, true).await;
        drop(spool);
        let before = self.folder();
        self.round += 1;
        let dice = &mut self.dice;
        self.faults
            .remains(&before, &self.home.path().join(self.round.to_string()), &mut || dice.next())
            .map_err(|error| error.to_string())?;
        self.open()
    }

    fn check(&mut self, found: &[FoundMessage]) -> Result<(), String> {
        let spool = self.spool.clone().expect("an open spool");
        let mut seen: BTreeMap<MessageId, Message> = BTreeMap::new();
        for found in found {
            let message = self.messages.get(&found.id).ok_or_else(|| format!("{} was never begun", found.id))?;
            check_found(found, message)?;
            let marks: Vec<Vec<u8>> = found.marks.iter().map(<[u8]>::to_vec).collect();
            let durable_marks = marks.len();
            seen.insert(
                found.id,
                Message { marks, durable_marks, acknowledged: true, finish: Finish::No, ..message.clone() },
            );
            if !found.intact {
                if !self.failing && !self.lying {
                    return Err(format!("{} was never taken, and its sender would be told that it is lost", found.id));
                }
                seen.remove(&found.id);
                spool.finish(found.id).map_err(|error| error.to_string())?;
            }
        }
        for (id, message) in &self.messages {
            if message.acknowledged && message.finish == Finish::No && !seen.contains_key(id) {
                return Err(format!("{id} was acknowledged and is lost"));
            }
        }
        // What is gone now is gone for good.
        for (id, message) in &self.messages {
            let gone = Message { finish: Finish::Durable, ..message.clone() };
            seen.entry(*id).or_insert(gone);
        }
        self.messages = seen;
        Ok(())
    }

    async fn check_bodies(&self) -> Result<(), String> {
        let spool = self.spool.as_ref().expect("an open spool");
        for (id, message) in
            self.messages.iter().filter(|(_, message)| message.acknowledged && message.finish == Finish::No)
        {
            let body = spool.body(*id).map_err(|error| error.to_string())?;
            if body.read_all().await.map_err(|error| error.to_string())? != message.body {
                return Err(format!("{id} has another body"));
            }
        }
        Ok(())
    }
}

fn check_found(found: &FoundMessage, message: &Message) -> Result<(), String> {
    let id = found.id;
    if message.finish == Finish::Durable {
        return Err(format!("{id} was gone durably and is back"));
    }
    if *found.envelope != *message.envelope {
        return Err(format!("{id} has another envelope"));
    }
    if message.acknowledged && !found.intact {
        return Err(format!("{id} was acknowledged and has lost its body"));
    }
    let marks: Vec<&[u8]> = found.marks.iter().collect();
    let mut rest = message.marks.iter();
    if !marks.iter().all(|mark| rest.any(|known| known == mark)) {
        return Err(format!("{id} has marks that were never made"));
    }
    let durable = message.marks.get(..message.durable_marks).unwrap_or_default();
    if message.finish == Finish::No && (marks.len() < durable.len() || marks[..durable.len()] != *durable) {
        return Err(format!("{id} has lost marks that were durable"));
    }
    Ok(())
}

fn check(seed: u64, failing: bool, lying: bool) -> Result<(), String> {
    runtime().block_on(async {
        let mut world = World::new(seed, failing, lying);
        world.open()?;
        for _ in 0..4 {
            for _ in 0..world.dice.below(25) {
                world.step().await;
            }
            world.cut().await?;
            world.check_bodies().await?;
        }
        Ok(())
    })
}

fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150)
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    for seed in 0..seeds() {
        check(seed, false, false).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn also_on_a_disk_that_fails_now_and_then() {
    for seed in 0..seeds() {
        check(seed, true, false).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out() {
    assert!((0..20).any(|seed| check(seed, false, true).is_err()), "the check cannot fail");
}
