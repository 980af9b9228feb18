//! Askers who make their price wrong: the shell prices a request by what others of its kind have cost, and whoever asks for dear pages among cheap ones
//! is priced too low, or too high, as it likes.

use std::collections::{BTreeMap, VecDeque};
use weir_core::fair::{Fair, Profile, SessionKey, Settings, SubnetKey, Ticket, Work};
use weir_core::mutant::{Mutant, plant};

const MS: u64 = 1_000_000;
const SLOTS: u32 = 4;
const VISITORS: u64 = 20;
const BOTS: u64 = 800;
const BOT_SUBNETS: u64 = 8;
const VISIT: u64 = 20 * MS;
/// No request takes longer.
const LARGEST: u64 = 1_000 * MS;

/// What a bot's request really takes, by the time at which it is dispatched.
type Cost = fn(bot: u64, at: u64) -> u64;

struct World {
    fair: Fair,
    /// Session, arrival, and what has been charged.
    asked: BTreeMap<Ticket, (u64, u64)>,
    /// End, ticket, beginning, cost and what was charged so far; in the order of their ends.
    running: Vec<Running>,
    /// The price of all pages: they have one route.
    price: u64,
    now: u64,
}

struct Running {
    end: u64,
    ticket: Ticket,
    begun: u64,
    cost: u64,
    charged: u64,
}

fn subnet(session: u64) -> u64 {
    if session < BOTS { session % BOT_SUBNETS } else { session }
}

impl World {
    fn ask(&mut self, session: u64) {
        let price = Work(self.price);
        let ticket = self.fair.arrive(SessionKey(session), SubnetKey(subnet(session)), price).expect("there is room");
        self.asked.insert(ticket, (session, self.now));
    }

    /// The earliest that ends has ended.
    fn end_first(&mut self) -> u64 {
        let first = (0..self.running.len()).min_by_key(|at| self.running[*at].end).expect("something runs");
        let Running { ticket, cost, .. } = self.running.swap_remove(first);
        self.fair.finish(ticket, Work(cost));
        self.price = (7 * self.price + cost) / 8;
        self.asked.remove(&ticket).expect("it was asked for").0
    }

    /// As the shell does ten times a second.
    fn charge_overruns(&mut self) {
        for running in &mut self.running {
            let extra = (self.now - running.begun).saturating_sub(running.charged);
            if extra > 0 {
                running.charged += extra;
                self.fair.overrun(running.ticket, Work(extra));
            }
        }
    }
}

/// The longest that a visitor waits for a slot within `seconds`: twenty of them, each in its own subnet, ask for a page of 20 ms twice a second. Eight subnets
/// of a hundred bots each ask again as soon as they are answered. Pages were cheap when the bots came.
fn longest_wait(seconds: u64, cost: Cost) -> u64 {
    let settings = Settings { slots: SLOTS, ..Settings::default() };
    let fair = Fair::new(settings, Profile::default());
    let mut world = World { fair, asked: BTreeMap::new(), running: Vec::new(), price: VISIT, now: 0 };
    let (mut visits, mut ticks, mut worst) = (0_u64, 0_u64, 0_u64);
    (0..BOTS).for_each(|bot| world.ask(bot));
    loop {
        let visit_at = 1_000 * MS + visits * 1_000 * MS / (2 * VISITORS);
        let tick_at = (ticks + 1) * 100 * MS;
        let end_at = world.running.iter().map(|running| running.end).min().unwrap_or(u64::MAX);
        world.now = visit_at.min(tick_at).min(end_at);
        if world.now > seconds * 1_000 * MS {
            // Who waits still has waited until now.
            let running = |ticket: &Ticket| world.running.iter().any(|running| running.ticket == *ticket);
            let stuck = world.asked.iter().filter(|(ticket, (session, _))| *session >= BOTS && !running(ticket));
            return stuck.map(|(_, (_, since))| world.now - since).fold(worst, u64::max);
        }
        if world.now == end_at {
            let session = world.end_first();
            if session < BOTS {
                world.ask(session);
            }
        } else if world.now == visit_at {
            world.ask(BOTS + visits % VISITORS);
            visits += 1;
        } else {
            world.charge_overruns();
            ticks += 1;
        }
        while let Some(ticket) = world.fair.dispatch() {
            let (session, since) = world.asked[&ticket];
            let now = world.now;
            let cost = if session < BOTS { cost(session, now) } else { VISIT };
            worst = worst.max(if session < BOTS { 0 } else { now - since });
            world.running.push(Running { end: now + cost, ticket, begun: now, cost, charged: world.price });
        }
    }
}

const COSTS: [(&str, Cost); 4] = [
    ("all dear", |_, _| 500 * MS),
    ("cheap first, then dear", |_, at| if at < 5_000 * MS { MS } else { LARGEST }),
    ("cheap and dear in turn", |bot, at| if (at / (2_000 * MS) + bot).is_multiple_of(2) { MS } else { LARGEST }),
    ("anything", |bot, at| MS * (1 + (bot * 7_919 + at / MS * 104_729) % 1_000)),
];

/// In fluid sharing a visitor has its page after 20 ms at a 28th of four slots, 140 ms. Without preemption a largest request may be in the way of all four slots, and then
/// the pages of all who came in that second.
#[test]
fn nobody_gains_by_asking_for_dear_pages_at_a_cheap_price() {
    for (name, cost) in COSTS {
        let worst = longest_wait(40, cost);
        let fluid = VISIT * (VISITORS + BOT_SUBNETS) / u64::from(SLOTS);
        let others = VISIT * 2 * VISITORS / u64::from(SLOTS);
        assert!(worst <= fluid + LARGEST + others, "{name}: somebody waited for {} ms", worst / MS);
    }
}

#[test]
fn an_order_that_believes_prices_is_found() {
    let _planted = plant(Mutant::FairBelievesPrices);
    let worst = longest_wait(40, COSTS[0].1);
    assert!(worst > 5_000 * MS, "the bug would be found: {} ms", worst / MS);
}

/// Sessions of one subnet that ask for cheap and dear pages are served the same work, whatever they were priced at.
#[test]
fn neighbours_share_by_what_they_spend() {
    let mut fair = Fair::new(Settings { slots: 1, ..Settings::default() }, Profile::default());
    let costs = [10 * MS, 200 * MS];
    // Two requests each, so that both always wait: who pauses saves nothing up.
    let mut waiting: VecDeque<u64> = VecDeque::from([0, 1, 0, 1]);
    let mut served = [0_u64; 2];
    let mut owners = BTreeMap::new();
    for _ in 0..2_000 {
        while let Some(session) = waiting.pop_front() {
            // Both are priced alike, one of them far too low.
            owners.insert(fair.arrive(SessionKey(session), SubnetKey(1), Work(10 * MS)).unwrap(), session);
        }
        let ticket = fair.dispatch().expect("somebody waits");
        let session = owners.remove(&ticket).unwrap();
        fair.finish(ticket, Work(costs[session as usize]));
        served[session as usize] += costs[session as usize];
        waiting.push_back(session);
    }
    let ratio = served[0] as f64 / served[1] as f64;
    assert!((0.9..1.1).contains(&ratio), "{served:?}");
}
