//! Kills the gate under load again and again, and checks its promise: every mail that was answered with `250` arrives.
//!
//! `WEIR_KILLS` says how often it is killed (5), `WEIR_SEED` replays the moments and the load of a run, and `WEIR_BIN` names another
//! binary. docs/durability.md says what is promised.

mod books;
pub(crate) mod disk;
mod load;
mod machine;
mod power;
mod scanned;
mod sink;
mod site;

use books::{Answer, Books, Verdict};
use disk::SmallDisk;
use load::{Load, Sender};
use power::Power;
use sink::Sink;
use site::{DELIVERIES, Life, Site, wait_for};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use weir_peers::Postgres;
use weir_sim::rng::Rng;

const SENDERS: [Sender; 4] = [
    Sender { user: "bulk", sessions: 4, recipients: 1, pause: Duration::ZERO, infected: false },
    Sender { user: "crowd", sessions: 2, recipients: 6, pause: Duration::from_millis(2), infected: false },
    Sender { user: "slow", sessions: 1, recipients: 3, pause: Duration::from_millis(60), infected: false },
    Sender { user: "worm", sessions: 1, recipients: 2, pause: Duration::from_millis(5), infected: false },
];
/// The most that one batch of the spool may contain: this much progress may be unwritten before deliveries wait for it.
const BATCH: usize = 256;
/// What a batch usually contains: one commit of each session.
const USUAL_BATCH: usize = 8;
/// How many more mails a power cut repeats: those that were delivered in the last moments (`store.marks_every`), because that was not on
/// the disk yet.
const POWER_CUT_MORE: usize = 100;

#[test]
fn every_acknowledged_message_survives_kills() {
    let kills = number("WEIR_KILLS", 5);
    let mut world = World::new("kills", None, "");
    world.kill_often(kills, |world, _| {
        let moment = Duration::from_millis(world.rng.between(50, 1500));
        if world.rng.chance(0.5) {
            std::thread::sleep(moment / 2);
            // It does not matter whether this still gets an answer.
            drop(world.site.weir(&["held", "release", "--user", "worm"]));
        }
        std::thread::sleep(moment);
    });
    let verdict = world.settle();
    verdict.demand(DELIVERIES + BATCH, kills as usize * (DELIVERIES + BATCH));
    let extra: usize = verdict.extra.values().sum();
    assert!(extra <= kills as usize * (DELIVERIES + USUAL_BATCH), "{kills} kills cost {extra} extra deliveries");
}

#[test]
fn a_full_disk_refuses_mail_and_loses_none() {
    // With a floor, the spool refuses mail before the disk is full; without one, everything meets the end of the disk.
    for (floor, seed) in [("2MiB", 1), ("0", 2)] {
        let Some(disk) = SmallDisk::mount(32) else { return };
        let store = format!("segment = \"1MiB\"\nfree_space = \"{floor}\"");
        let mut world = World::new("full disk", Some(&disk.path().join("data")), &store);
        world.rng = Rng::new(world.seed ^ seed);
        let life = world.begin();
        world.load.gate_at(Some(life.up()));
        world.some(Answer::is_taken, 50);
        let filler = disk.fill();
        world.some(|answer| answer.is("452 4.3.1"), 20);
        std::thread::sleep(Duration::from_millis(world.rng.between(200, 1200)));
        filler.remove();
        world.some(Answer::is_taken, 50);

        // Mail piles up, then the disk becomes full, then all of it is delivered. A kill must not repeat that mail.
        world.sink.hold(true);
        world.some(Answer::is_taken, 150);
        let filler = disk.fill();
        world.some(|answer| answer.is("452 4.3.1"), 5);
        world.sink.hold(false);
        let taken = world.sink.taken().len();
        wait_for("deliveries on a full disk", Duration::from_secs(30), || {
            (world.sink.taken().len() > taken + 60).then_some(())
        });
        world.kill(life);
        // Without a byte of free space it need not start, but then it must say why.
        let mut life = world.begin();
        if let Some(code) = life.ended_within(Duration::from_secs(2)) {
            let said = life.said();
            assert!(code == Some(1) && (said.contains("space") || said.contains("full")), "{code:?}: {said}");
            say(&format!("full disk: no start, as it should be: {}", said.lines().last().unwrap_or_default()));
            filler.remove();
            life = world.begin();
        } else {
            filler.remove();
        }
        world.load.gate_at(Some(life.up()));
        world.some(Answer::is_taken, 50);
        world.kill(life);
        let refusals = world.books.refusals(&["bulk", "crowd"]);
        assert_eq!(refusals.iter().map(String::as_str).collect::<Vec<_>>(), ["452 4.3.1"], "floor {floor}");
        // On a very slow machine, a batch contains more than usual. But the pile of 150 must not be delivered again.
        let most = 2 * (DELIVERIES + USUAL_BATCH);
        world.settle().demand(most, most);
    }
}

#[test]
fn a_failing_postgresql_refuses_mail_and_lets_nothing_pass() {
    let postgres = Postgres::start();
    let mut world = World::new("postgresql", None, &format!("records = \"{}\"", postgres.database()));
    let life = world.begin();
    world.load.gate_at(Some(life.up()));
    for how in ["stopped", "killed", "stopped", "killed"] {
        world.some(Answer::is_taken, 50);
        std::thread::sleep(Duration::from_millis(world.rng.between(0, 500)));
        if how == "killed" {
            postgres.kill();
        } else {
            postgres.stop();
        }
        world.some(Answer::is_refused, 3);
        std::thread::sleep(Duration::from_millis(world.rng.between(0, 1000)));
        postgres.restart();
    }
    world.some(Answer::is_taken, 50);
    // Both are killed at once, and the gate comes back first.
    postgres.kill();
    world.kill(life);
    let mut life = world.begin();
    let code = life.ended_within(Duration::from_secs(15));
    assert!(code == Some(Some(1)) && life.said().contains("the records cannot be opened"), "{code:?}: {}", life.said());
    postgres.restart();
    let life = world.begin();
    world.load.gate_at(Some(life.up()));
    world.some(Answer::is_taken, 50);
    world.kill(life);
    let refusals = world.books.refusals(&["bulk", "crowd", "slow"]);
    assert!(refusals.iter().all(|code| code.starts_with("45")), "{refusals:?}");
    let reached = world.books.reached("worm", &world.sink.taken());
    assert!(reached <= 2, "one new recipient, and one of a mail to several, may be reached a day; {reached} were");
    world.settle().demand(DELIVERIES + BATCH, DELIVERIES + USUAL_BATCH);
}

#[test]
#[ignore = "needs a virtual machine: tools/soak-vm"]
fn every_acknowledged_message_survives_power_cuts() {
    let mut power = Power::new();
    for _ in 0..number("WEIR_ROUNDS", 3) {
        power.cut_under_load();
    }
    let verdict = power.settle();
    verdict.demand(DELIVERIES + BATCH + POWER_CUT_MORE, usize::MAX);
}

#[test]
#[ignore = "needs a virtual machine: tools/soak-vm"]
fn a_disk_that_lies_is_found_out() {
    let mut power = Power::new();
    power.machine.lies = true;
    // A single cut may by chance find everything written.
    for _ in 0..4 {
        power.cut_under_load();
    }
    power.machine.lies = false;
    assert!(!power.settle().missing.is_empty(), "flushes were swallowed, and nobody noticed");
}

#[test]
fn a_missing_file_of_held_mail_is_said_once() {
    let (site, sink) = (Site::new(None, ""), Sink::default());
    let door = sink.open(0);
    let life = site.spawn(0, door.address);
    let address = life.up();
    site.add_users();
    let books = Arc::new(Books::default());
    let load = Load::start(&SENDERS[3..], &books, &mut Rng::new(1));
    load.gate_at(Some(address));
    wait_for("held mail", Duration::from_secs(30), || (site.held().len() > 12).then_some(()));
    load.stop();
    let list = site.json(&["held", "list"]);
    let message = list["messages"][0]["message"].as_str().expect("an id").to_owned();
    let file = site.data().join("held").join(format!("{message}.eml"));
    let aside = file.with_extension("aside");
    std::fs::rename(&file, &aside).expect("it is there");
    assert!(site.weir(&["held", "list"]).ok().contains("its file is missing"));

    site.weir(&["held", "release", "--all"]).ok();
    let others =
        || (site.held().len() == list["messages"][0]["recipients"].as_array().map_or(0, Vec::len)).then_some(());
    wait_for("the others to go", Duration::from_secs(30), others);
    wait_for("a word about it", Duration::from_secs(30), || life.said().contains("is missing").then_some(()));
    assert!(site.weir(&["held", "show", &message]).ok().contains("its file is missing"));
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(life.said().matches("ERROR").count(), 1, "{}", life.said());
    std::fs::rename(&aside, &file).expect("it is there");
    wait_for("it to go", Duration::from_secs(60), || site.held().is_empty().then_some(()));
    wait_for("it to arrive", Duration::from_secs(30), || books.verdict(&sink.taken()).missing.is_empty().then_some(()));
}

/// The load, the gate and the sink.
struct World {
    name: &'static str,
    seed: u64,
    rng: Rng,
    sink: Sink,
    door: sink::Door,
    site: Site,
    books: Arc<Books>,
    load: Load,
    life: u32,
}

impl World {
    fn new(name: &'static str, data: Option<&std::path::Path>, store: &str) -> World {
        World::with(name, data, store, &SENDERS)
    }

    /// The same with its own load.
    fn with(name: &'static str, data: Option<&std::path::Path>, store: &str, senders: &[Sender]) -> World {
        let seed = number("WEIR_SEED", u64::from(std::process::id()) << 20 | 1);
        say(&format!("{name}: WEIR_SEED={seed}"));
        let mut rng = Rng::new(seed);
        let (sink, site, books) = (Sink::default(), Site::new(data, store), Arc::new(Books::default()));
        let door = sink.open(0);
        let first = site.spawn(0, door.address);
        first.up();
        site.add_users();
        for sender in senders.iter().filter(|sender| SENDERS.iter().all(|usual| usual.user != sender.user)) {
            site.add_user(sender.user, "exempt");
        }
        first.kill();
        let load = Load::start(senders, &books, &mut rng);
        World { name, seed, rng, sink, door, site, books, load, life: 0 }
    }

    /// Starts the next life of the gate, which delivers to a door of its own.
    fn begin(&mut self) -> Life {
        self.life += 1;
        self.door = self.sink.open(self.life);
        self.site.spawn(self.life, self.door.address)
    }

    /// Waits until this many more clients have got such an answer.
    #[track_caller]
    fn some(&self, answer: impl Fn(&Answer) -> bool, more: usize) {
        let before = self.books.count(&answer);
        let heard = || (self.books.count(&answer) >= before + more).then_some(());
        wait_for(&format!("{more} such answers ({})", self.name), Duration::from_secs(45), heard);
    }

    fn kill(&mut self, life: Life) {
        let log = life.kill();
        self.load.gate_at(None);
        complain(self.life, &log);
    }

    /// As many lives as `kills`, each killed: some in the middle of their start, the others after a while under load.
    fn kill_often(&mut self, kills: u64, mut live: impl FnMut(&mut World, &Life)) {
        for _ in 0..kills {
            let life = self.begin();
            if self.rng.chance(0.2) {
                let moment = Duration::from_millis(self.rng.between(0, 300));
                if let Some(address) = life.up_within(moment) {
                    self.load.gate_at(Some(address));
                }
            } else {
                self.load.gate_at(Some(life.up()));
                live(self, &life);
            }
            self.kill(life);
        }
    }

    /// Runs a last life without load: held mail is accounted for and released, and everything must arrive.
    #[track_caller]
    fn settle(self) -> Verdict {
        self.settle_and(|_, _| {})
    }

    /// The same, with a look at the site and the books while the last life runs.
    #[track_caller]
    fn settle_and(mut self, look: impl FnOnce(&Site, &Books)) -> Verdict {
        self.sink.be_plain();
        let life = self.begin();
        self.load.gate_at(Some(life.up()));
        let World { load, site, sink, books, .. } = self;
        load.stop();
        wait_for("the queue to empty", Duration::from_secs(120), || site.queued().is_empty().then_some(()));
        account_for(&site, &sink, &books);
        let released = site.weir(&["held", "release", "--all"]);
        let arrived = || {
            let verdict = books.verdict(&sink.taken());
            (verdict.missing.is_empty() && site.held().is_empty()).then_some(())
        };
        let begun = std::time::Instant::now();
        while arrived().is_none() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(100));
        }
        // Mail that arrives late may still be a copy.
        std::thread::sleep(Duration::from_millis(500));
        let left = site.held();
        look(&site, &books);
        complain(self.life, &life.kill());
        let verdict = books.verdict(&sink.taken());
        say(&format!("{}: WEIR_SEED={}: {} lives; {verdict}", self.name, self.seed, self.life + 1));
        assert!(left.is_empty(), "released, and still held: {left:?}; {}{}", released.stdout, released.stderr);
        verdict
    }
}

/// Checks that every recipient whose mail was acknowledged but did not arrive is visibly held or queued.
#[track_caller]
fn account_for(site: &Site, sink: &Sink, books: &Books) {
    wait_for("every message to be somewhere", Duration::from_secs(20), || {
        let held = site.held();
        let queued = site.queued();
        // This is looked at last, because mail that was sent meanwhile has arrived.
        let missing = books.verdict(&sink.taken()).missing;
        let nowhere: BTreeSet<&String> =
            missing.iter().map(|(_, to)| to).filter(|to| !held.contains(*to) && !queued.contains(*to)).collect();
        if !nowhere.is_empty() {
            say(&format!("{} recipients are nowhere now, such as {:?}", nowhere.len(), nowhere.first()));
        }
        nowhere.is_empty().then_some(())
    });
}

/// Copies the gate's errors into the output of the test.
fn complain(life: u32, log: &str) {
    for line in log.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).take(5) {
        say(&format!("life {life}: {line}"));
    }
    assert!(!log.contains("panicked"), "{log}");
}

pub(crate) fn say(line: &str) {
    use std::io::Write;
    // This bypasses the capture of the test harness, because the seed must be printed even if nothing fails.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
