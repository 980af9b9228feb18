//! Random operations on the spool and on a map, which must agree; also after damage, within what the damage explains.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;
use weir_store::spool::{Draft, FoundMessage, MessageId, Options, Spool};

use crate::dice::{Dice, quick_folder, runtime, tiny};
use crate::harm;

#[derive(Clone, Debug)]
enum Op {
    Begin,
    Write(usize, usize),
    Commit(usize, usize),
    Abandon(usize),
    Mark(usize, usize),
    Finish(usize),
    Read(usize),
    MoveOut(usize),
    Compact,
    Snapshot,
    Reopen(Harm),
}

/// What happens to the files while the spool is closed.
#[derive(Clone, Debug)]
enum Harm {
    None,
    /// Bytes behind the end of a file: of a segment (0) or a sidecar (1), random or zero.
    Garbage(usize, usize, bool),
    /// The last bytes of a file are gone: at most those of one record.
    Cut(usize, u64),
    /// One bit of a file is wrong.
    Flip(usize, usize, usize),
    /// A sidecar is gone.
    Sidecar(usize),
    /// The file with the marker is gone.
    Marker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    body: Vec<u8>,
    envelope: Vec<u8>,
    marks: Vec<Vec<u8>>,
}

/// How far the spool may differ from the model after harm.
#[derive(Clone, Copy, Debug, Default)]
struct Excuse {
    missing: usize,
    resurrected: usize,
    marks: usize,
}

struct World {
    folder: TempDir,
    options: Options,
    spool: Option<Spool>,
    drafts: Vec<(Draft, Vec<u8>)>,
    live: BTreeMap<MessageId, Message>,
    done: BTreeMap<MessageId, Message>,
    dice: Dice,
    harmed: bool,
    /// Damage that the model is not told of.
    betrayed: bool,
}

impl World {
    fn new(segment_kib: u64, betrayed: bool) -> World {
        World {
            folder: quick_folder(),
            options: Options { segment_bytes: segment_kib << 10, ..tiny() },
            spool: None,
            drafts: Vec::new(),
            live: BTreeMap::new(),
            done: BTreeMap::new(),
            dice: Dice(1),
            harmed: false,
            betrayed,
        }
    }

    fn spool(&self) -> &Spool {
        self.spool.as_ref().expect("an open spool")
    }

    fn pick(&self, number: usize) -> Option<MessageId> {
        self.live.keys().nth(number % self.live.len().max(1)).copied()
    }

    async fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Begin => {
                let draft = self.spool().draft().map_err(|error| error.to_string())?;
                self.drafts.push((draft, Vec::new()));
            }
            Op::Write(which, length) => {
                let bytes = self.dice.bytes(*length);
                let count = self.drafts.len();
                if let Some((draft, body)) = self.drafts.get_mut(which % count.max(1)) {
                    draft.write(&bytes).await.map_err(|error| error.to_string())?;
                    body.extend_from_slice(&bytes);
                }
            }
            Op::Commit(which, length) => self.commit(*which, *length).await?,
            Op::Abandon(which) => {
                if !self.drafts.is_empty() {
                    self.drafts.swap_remove(which % self.drafts.len());
                }
            }
            Op::Mark(which, length) => {
                let (mark, id) = (self.dice.bytes(*length), self.pick(*which));
                if let Some(id) = id {
                    self.spool().mark(id, mark.clone()).map_err(|error| error.to_string())?;
                    self.live.entry(id).and_modify(|message| message.marks.push(mark));
                }
            }
            Op::Finish(which) => {
                if let Some(id) = self.pick(*which) {
                    self.spool().finish(id).map_err(|error| error.to_string())?;
                    self.done.extend(self.live.remove_entry(&id));
                }
            }
            Op::Read(which) => {
                if let Some(id) = self.pick(*which) {
                    check_content(self.spool(), id, &self.live[&id]).await?;
                }
            }
            Op::MoveOut(which) => self.move_out(*which).await?,
            Op::Compact => self.spool().compact().await.map_err(|error| error.to_string())?,
            Op::Snapshot => self.snapshot().await?,
            Op::Reopen(harm) => self.reopen(harm).await?,
        }
        Ok(())
    }

    async fn commit(&mut self, which: usize, length: usize) -> Result<(), String> {
        if self.drafts.is_empty() {
            return Ok(());
        }
        let (draft, body) = self.drafts.swap_remove(which % self.drafts.len());
        let (envelope, expected) = (self.dice.bytes(length), draft.id());
        let id = draft.commit(envelope.clone()).await.map_err(|error| error.to_string())?;
        if id != expected {
            return Err(format!("draft {expected} became message {id}"));
        }
        self.live.insert(id, Message { body, envelope, marks: Vec::new() });
        Ok(())
    }

    async fn move_out(&mut self, which: usize) -> Result<(), String> {
        let Some(id) = self.pick(which) else { return Ok(()) };
        let path = self.folder.path().join(format!("{id}.eml"));
        self.spool().move_out(id, &path).await.map_err(|error| error.to_string())?;
        let written = std::fs::read(&path).map_err(|error| error.to_string())?;
        if written == self.live[&id].body { Ok(()) } else { Err(format!("{id} was moved out with other bytes")) }
    }

    async fn snapshot(&mut self) -> Result<(), String> {
        let copy = quick_folder();
        let to = copy.path().join("copy");
        self.spool().snapshot(&to).await.map_err(|error| error.to_string())?;
        let (spool, found) = Spool::open(&to, self.options.clone()).map_err(|error| error.to_string())?;
        compare(&spool, &found, (&self.live, &self.done), Excuse::default()).await
    }

    async fn reopen(&mut self, harm: &Harm) -> Result<(), String> {
        self.drafts.clear();
        self.spool = None;
        let excuse = self.inflict(harm);
        let (spool, found) = Spool::open(self.path(), self.options.clone()).map_err(|error| error.to_string())?;
        compare(&spool, &found, (&self.live, &self.done), excuse).await?;
        let differs = found.len() != self.live.len()
            || found.iter().any(|found| self.live.get(&found.id) != message_of(found, &self.live).as_ref());
        let torn = matches!(harm, Harm::Cut(..));
        if (differs || found.iter().any(|found| !found.intact)) && !torn && spool.damage().is_empty() {
            return Err("something changed and no damage was reported".to_owned());
        }
        if !self.harmed && !spool.damage().is_empty() {
            return Err(format!("damage out of nowhere: {:?}", spool.damage()));
        }
        self.adopt(&spool, &found);
        self.spool = Some(spool);
        Ok(())
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("spool")
    }

    /// From here on the model believes what was found; what lost its body is finished, as a caller would.
    fn adopt(&mut self, spool: &Spool, found: &[FoundMessage]) {
        let known: BTreeMap<_, _> = std::mem::take(&mut self.live).into_iter().chain(self.done.clone()).collect();
        for found in found {
            let Some(message) = known.get(&found.id) else { continue };
            let marks = found.marks.iter().map(<[u8]>::to_vec).collect();
            if found.intact {
                self.live.insert(found.id, Message { marks, ..message.clone() });
            } else {
                spool.finish(found.id).expect("a message that was found");
            }
        }
        self.done = known.into_iter().filter(|(id, _)| !self.live.contains_key(id)).collect();
    }

    fn inflict(&mut self, harm: &Harm) -> Excuse {
        let path = self.path();
        if !path.exists() {
            return Excuse::default();
        }
        let endings = ["seg", "marks"];
        let pick = |part: usize, which: usize| {
            let files = harm::files(&path, endings[part % 2]);
            files.get(which % files.len().max(1)).cloned()
        };
        let one_record = |part: usize| match part % 2 {
            0 => Excuse { missing: 1, ..Excuse::default() },
            _ => Excuse { resurrected: 1, marks: 1, ..Excuse::default() },
        };
        let mut excuse = Excuse::default();
        match *harm {
            Harm::None => return excuse,
            Harm::Garbage(part, length, zero) => {
                let bytes = if zero { vec![0; length] } else { self.dice.bytes(length) };
                pick(part, length).inspect(|file| harm::append(file, &bytes));
            }
            Harm::Cut(part, bytes) => {
                pick(part, usize::MAX - 1).inspect(|file| harm::cut(file, bytes));
                excuse = one_record(part);
            }
            Harm::Flip(part, which, place) => {
                pick(part, which).inspect(|file| harm::flip(file, place));
                excuse = one_record(part);
            }
            Harm::Sidecar(which) => {
                pick(1, which).inspect(|file| std::fs::remove_file(file).expect("a sidecar"));
                excuse = Excuse { missing: 0, resurrected: usize::MAX, marks: usize::MAX };
            }
            Harm::Marker => {
                let _ = std::fs::remove_file(path.join("marker"));
            }
        }
        self.harmed = true;
        if self.betrayed { Excuse::default() } else { excuse }
    }
}

/// The message as it was found, with the body and envelope that the model knows.
fn message_of(found: &FoundMessage, live: &BTreeMap<MessageId, Message>) -> Option<Message> {
    let marks = found.marks.iter().map(<[u8]>::to_vec).collect();
    live.get(&found.id).map(|message| Message { marks, ..message.clone() })
}

async fn check_content(spool: &Spool, id: MessageId, message: &Message) -> Result<(), String> {
    let body = spool.body(id).map_err(|error| error.to_string())?;
    if body.size() != message.body.len() as u64 {
        return Err(format!("{id} has the size {} instead of {}", body.size(), message.body.len()));
    }
    if body.read_all().await.map_err(|error| error.to_string())? != message.body {
        return Err(format!("{id} has another body"));
    }
    if spool.envelope(id).await.map_err(|error| error.to_string())? != message.envelope {
        return Err(format!("{id} has another envelope"));
    }
    Ok(())
}

type Messages = BTreeMap<MessageId, Message>;

async fn compare(
    spool: &Spool,
    found: &[FoundMessage],
    (live, done): (&Messages, &Messages),
    excuse: Excuse,
) -> Result<(), String> {
    let (mut resurrected, mut marks) = (0, 0);
    let mut seen = Vec::new();
    for found in found {
        let (message, is_done) = match live.get(&found.id) {
            Some(message) => (message, false),
            None => (done.get(&found.id).ok_or_else(|| format!("{} was never committed", found.id))?, true),
        };
        if *found.envelope != *message.envelope || found.size != message.body.len() as u64 {
            return Err(format!("{} was found with another envelope or size", found.id));
        }
        resurrected += usize::from(is_done);
        let found_marks: Vec<&[u8]> = found.marks.iter().collect();
        if !is_done && found_marks != message.marks {
            marks += 1;
            let mut rest = message.marks.iter();
            if !found_marks.iter().all(|mark| rest.any(|known| known == mark)) {
                return Err(format!("{} has marks that were never made", found.id));
            }
            if excuse.marks == 1 && found_marks.len() + 1 != message.marks.len() {
                return Err(format!("{} lost more than one mark to one bad record", found.id));
            }
        }
        if found.intact {
            check_content(spool, found.id, message).await?;
            seen.push(found.id);
        }
    }
    let missing = live.keys().filter(|id| !seen.contains(id)).count();
    if missing > excuse.missing || resurrected > excuse.resurrected || marks > excuse.marks {
        return Err(format!("{missing} missing, {resurrected} resurrected, {marks} other marks; excused: {excuse:?}"));
    }
    Ok(())
}

fn check(segment_kib: u64, ops: &[Op], betrayed: bool) -> Result<(), String> {
    runtime().block_on(async {
        let mut world = World::new(segment_kib, betrayed);
        world.reopen(&Harm::None).await?;
        for op in ops {
            world.apply(op).await.map_err(|problem| format!("{problem}\nat {op:?}"))?;
        }
        world.reopen(&Harm::None).await?;
        world.reopen(&Harm::None).await
    })
}

fn harm_strategy() -> impl Strategy<Value = Harm> {
    prop_oneof![
        3 => Just(Harm::None),
        1 => (0..2usize, 1..200usize, any::<bool>()).prop_map(|(part, length, zero)| Harm::Garbage(part, length, zero)),
        1 => (0..2usize, 1..40u64).prop_map(|(part, bytes)| Harm::Cut(part, bytes)),
        2 => (0..2usize, 0..8usize, any::<usize>()).prop_map(|(part, which, place)| Harm::Flip(part, which, place)),
        1 => (0..8usize).prop_map(Harm::Sidecar),
        1 => Just(Harm::Marker),
    ]
}

fn op_strategy() -> impl Strategy<Value = Op> {
    let any_one = 0..1000usize;
    let length = prop_oneof![6 => 0..3000usize, 1 => Just(65_536usize), 1 => 60_000..200_000usize];
    prop_oneof![
        8 => Just(Op::Begin),
        8 => (any_one.clone(), length).prop_map(|(which, length)| Op::Write(which, length)),
        9 => (any_one.clone(), 0..300usize).prop_map(|(which, length)| Op::Commit(which, length)),
        1 => any_one.clone().prop_map(Op::Abandon),
        5 => (any_one.clone(), 0..60usize).prop_map(|(which, length)| Op::Mark(which, length)),
        5 => any_one.clone().prop_map(Op::Finish),
        3 => any_one.clone().prop_map(Op::Read),
        1 => any_one.prop_map(Op::MoveOut),
        2 => Just(Op::Compact),
        1 => Just(Op::Snapshot),
        4 => harm_strategy().prop_map(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)) })]

    #[test]
    fn the_spool_and_a_map_agree(
        segment_kib in prop_oneof![Just(8u64), Just(200)],
        ops in prop::collection::vec(op_strategy(), 1..80),
    ) {
        check(segment_kib, &ops, false).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn damage_that_the_model_does_not_know_of_is_noticed() {
    let mut ops = Vec::new();
    for _ in 0..4 {
        ops.extend([Op::Begin, Op::Write(0, 500), Op::Commit(0, 20), Op::Mark(0, 9)]);
    }
    for harm in [Harm::Flip(0, 0, 8 * 300), Harm::Flip(1, 0, 8 * 60), Harm::Cut(0, 5), Harm::Sidecar(0)] {
        let mut ops = ops.clone();
        ops.push(Op::Reopen(harm.clone()));
        assert_eq!(check(8, &ops, false), Ok(()), "{harm:?}");
        assert!(check(8, &ops, true).is_err(), "{harm:?}");
    }
}
