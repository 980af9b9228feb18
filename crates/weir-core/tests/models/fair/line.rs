//! The line of newcomers: a world of obedient programs, who keep their cookies and come back when they are told, beside visitors who do the same.
//!
//! The oracle is taking turns: networks that are present all the while are let in equally often, somebody of a new network stands behind one visitor of each other network at most,
//! and the place that somebody is told is how many are let in before, as long as no new network comes.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::fair::{Line, SessionKey, SubnetKey};
use weir_core::mutant::{Mutant, plant};

/// A line in which everybody who was let in comes back at once.
struct World {
    line: Line,
    /// Who has which number: session and network.
    numbers: BTreeMap<u64, (u64, u64)>,
    next: u64,
    now: u64,
    let_in: BTreeMap<u64, u64>,
}

impl World {
    fn new() -> World {
        World { line: Line::new(100_000), numbers: BTreeMap::new(), next: 0, now: BOTS, let_in: BTreeMap::new() }
    }

    fn come(&mut self, session: u64, network: u64, since: u64) -> u64 {
        self.next += 1;
        assert!(self.line.arrive(SessionKey(session), SubnetKey(network), since, self.next));
        self.numbers.insert(self.next, (session, network));
        self.next
    }

    /// Lets one in: its number, session and network.
    fn step(&mut self) -> (u64, u64, u64) {
        self.now += 1;
        let number = self.line.let_in(self.now).expect("somebody is present");
        let (session, network) = self.numbers.remove(&number).expect("it came");
        *self.let_in.entry(network).or_default() += 1;
        (number, session, network)
    }

    /// Bots who come back as soon as they were let in, with the cookie that they have always had.
    fn step_obedient(&mut self) -> (u64, u64, u64) {
        let (number, session, network) = self.step();
        if session < BOTS {
            self.come(session, network, session);
        }
        (number, session, network)
    }

    fn with_bots(networks: u64, each: u64) -> World {
        let mut world = World::new();
        for bot in 0..networks * each {
            world.come(bot, bot % networks, bot);
        }
        world
    }
}

/// Sessions below this are bots.
const BOTS: u64 = 1_000_000;

/// How many are let in before somebody of this network who comes now.
fn before_newcomer(world: &mut World, session: u64, network: u64) -> u64 {
    let own = world.come(session, network, world.now);
    let mut before = 0;
    while world.step_obedient().0 != own && before < NEVER {
        before += 1;
    }
    before
}

/// Who was not let in by then never is.
const NEVER: u64 = 100_000;

/// Eight networks of 250 obedient programs each; visitors of new networks, and of the programs' own.
fn play() -> Result<(), String> {
    let mut world = World::with_bots(8, 250);
    for _ in 0..500 {
        world.step_obedient();
    }
    for visitor in 0..20 {
        let before = before_newcomer(&mut world, BOTS + visitor, 100 + visitor);
        if before > 9 {
            return Err(format!("a visitor of a new network waited for {before}"));
        }
        let before = before_newcomer(&mut world, 2 * BOTS + visitor, visitor % 8);
        // One of its network's turns goes to everybody there who has had no more turns than it; eight networks take turns.
        if before > 8 * 251 {
            return Err(format!("a visitor of a network of 250 programs waited for {before}"));
        }
    }
    let turns: Vec<u64> = (0..8).map(|network| world.let_in[&network]).collect();
    match (turns.iter().max(), turns.iter().min()) {
        (Some(most), Some(least)) if most - least <= 22 => Ok(()),
        _ => Err(format!("networks had {turns:?} turns")),
    }
}

#[test]
fn obedient_programs_take_turns_with_everybody_else() {
    play().unwrap();
}

#[test]
fn a_line_that_forgets_turns_is_found() {
    let _planted = plant(Mutant::LineForgetsTurns);
    assert!(play().is_err(), "the oldest cookies of one network went first, and nobody noticed");
}

/// Two hundred programs, each of its own network, that are always there with old cookies. How many are let in before a visitor who came, was
/// told to come back, and does so nearly two rounds later.
fn before_who_comes_back() -> u64 {
    let mut world = World::with_bots(200, 1);
    for _ in 0..500 {
        world.step_obedient();
    }
    let (visitor, network, since) = (BOTS, 1_000, world.now);
    let first = world.come(visitor, network, since);
    world.line.leave(SessionKey(visitor), first, Some(since + 1_000));
    for _ in 0..350 {
        world.step_obedient();
    }
    let again = world.come(visitor, network, since);
    (0..NEVER).find(|_| world.step_obedient().0 == again).unwrap_or(NEVER)
}

#[test]
fn who_comes_back_when_told_goes_before_programs_that_had_turns_meanwhile() {
    assert_eq!(before_who_comes_back(), 0);
}

#[test]
fn a_line_that_believes_cookies_is_found() {
    let _planted = plant(Mutant::LineBelievesCookies);
    let before = before_who_comes_back();
    assert!(before > 50, "{before} went before, and nobody noticed");
}

/// Eight networks of visitors who were all told a place and are away; one in `part` of them comes. What a visitor after them was told, and how many went before.
fn told_and_true(part: u64) -> (u64, u64) {
    const OF_EACH: u64 = 60;
    let mut world = World::new();
    let lesson = 0..8 * OF_EACH;
    // Earlier visitors show how many come, and are let in.
    for visitor in lesson.clone() {
        world.line.expect(SessionKey(visitor), SubnetKey(visitor % 8), visitor, 1_000);
    }
    for visitor in lesson.clone().filter(|visitor| visitor / 8 % part == 0) {
        world.come(visitor, visitor % 8, visitor);
        world.step();
    }
    world.line.expire(1_000);
    for visitor in lesson.clone() {
        world.line.expect(SessionKey(BOTS + visitor), SubnetKey(visitor % 8), 2_000 + visitor, 9_000);
    }
    let (own, network) = (2 * BOTS, 3);
    let told = world.line.ahead(SessionKey(own), SubnetKey(network));
    world.line.expect(SessionKey(own), SubnetKey(network), 3_000, 9_000);
    // They come in another order than that of their places.
    for visitor in lesson.rev().filter(|visitor| visitor / 8 % part == 0) {
        world.come(BOTS + visitor, visitor % 8, 0);
    }
    world.come(own, network, 0);
    let mut before = 0;
    while world.step().1 != own {
        before += 1;
    }
    (told, before)
}

fn places_are_true() -> Result<(), String> {
    for part in [1, 2, 5] {
        let (told, before) = told_and_true(part);
        if told.abs_diff(before) > 8 + before / 8 {
            return Err(format!("one in {part} comes: told {told}, and {before} went before"));
        }
    }
    Ok(())
}

#[test]
fn a_place_counts_those_who_were_told_to_come_and_do() {
    places_are_true().unwrap();
}

#[test]
fn a_line_that_forgets_whom_it_expects_is_found() {
    let _planted = plant(Mutant::LineForgetsExpected);
    assert!(places_are_true().is_err(), "nobody noticed that those who are away go before");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whoever waits in whatever mixture of networks is told the number of those who are let in before it, if nobody comes anew.
    #[test]
    fn a_place_is_the_number_of_those_let_in_before(all in prop::collection::vec((0u64..6, 0u64..1_000), 1..60), pick: prop::sample::Index) {
        let mut world = World::new();
        for (session, (network, since)) in all.iter().enumerate() {
            world.come(session as u64, *network, *since);
        }
        let at = pick.index(all.len());
        let told = world.line.ahead(SessionKey(at as u64), SubnetKey(all[at].0));
        let mut before = 0;
        while world.step().1 != at as u64 {
            before += 1;
        }
        // In the round in which its own turn comes, some other networks are before it and some behind: all are counted.
        prop_assert!(before <= told && told - before < 6, "told {told}, and {before} went before");
    }

    /// Of whom some are away, those who are here are let in as if the others were not in the line.
    #[test]
    fn those_before_whom_hardly_anybody_is_here_are_soon_let_in(
        all in prop::collection::vec((0u64..6, 0u64..1_000, any::<bool>()), 1..60), pick: prop::sample::Index
    ) {
        let mut world = World::new();
        let at = pick.index(all.len());
        for (session, (network, since, away)) in all.iter().enumerate() {
            let number = world.come(session as u64, *network, *since);
            if *away && session != at {
                world.line.leave(SessionKey(session as u64), number, Some(1_000));
            }
        }
        let here = world.line.ahead_here(SessionKey(at as u64), SubnetKey(all[at].0), 1_000);
        let mut before = 0;
        while world.step().1 != at as u64 {
            before += 1;
        }
        prop_assert!(before <= here && here - before < 6, "{here} were here before, and {before} went before");
    }

    /// Whatever comes, leaves and is let in, nobody is lost and nothing is left behind.
    #[test]
    fn nobody_is_lost(ops in prop::collection::vec((0u8..5, 0u64..12, 0u64..4), 0..200)) {
        let (mut line, mut held, mut number) = (Line::new(1_000), BTreeMap::<u64, u64>::new(), 0);
        for (op, session, network) in ops {
            let key = SessionKey(session);
            match op {
                0 | 1 => {
                    number += 1;
                    prop_assert!(line.arrive(key, SubnetKey(session % 4), number, number));
                    held.insert(number, session);
                }
                2 => {
                    let own = held.iter().find(|(_, of)| **of == session).map(|(number, _)| *number);
                    if let Some(own) = own {
                        held.remove(&own);
                        line.leave(key, own, (network > 0).then_some(10));
                    }
                }
                3 => line.expect(key, SubnetKey(session % 4), number, 10),
                _ => {
                    let next = line.let_in(number);
                    prop_assert_eq!(next.is_some(), !held.is_empty());
                    if let Some(next) = next {
                        prop_assert!(held.remove(&next).is_some());
                    }
                }
            }
            prop_assert_eq!(line.present(), held.len());
        }
        line.expire(10);
        while let Some(next) = line.let_in(number) {
            prop_assert!(held.remove(&next).is_some());
        }
        prop_assert!(held.is_empty());
        prop_assert_eq!((line.visitors(), line.networks(), line.present(), line.expected()), (0, 0, 0, 0));
        prop_assert_eq!(line.ahead(SessionKey(99), SubnetKey(0)), 0);
    }
}
