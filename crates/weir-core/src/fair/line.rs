//! The line in which newcomers wait, and who of them is let in next.
//!
//! Everybody in it has come back with a cookie that we gave out. Networks take turns, however many visitors each has; within a network the
//! visitors take turns, however many requests each has; of two that have had equally many turns, the one that asked first goes first. These
//! are start-time fair queues, one above the other, in which every turn counts alike. So a network with a thousand programs that wait as
//! they are told delays only its own visitors.
//!
//! A *visitor* is somebody who waits: *present* with a request that is held, or away until the time at which it was told to come back. Only
//! a visitor who is present can be let in. One who is away keeps its place, and is forgotten when it does not come back in time. A visitor
//! who was shown a place but has not come back yet is *expected*: it counts for the places that others are told, and for nothing else
//! ([`Expected`]).
//!
//! Each call is O(log N), except [`Line::ahead`], which counts up to [`COUNTED`] neighbours. Memory: about 250 bytes for each visitor, and
//! as much for each network; there are at most `visitors_max` of both.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::expected::Expected;
use super::had_turns::HadTurns;
use super::keys::{KeyMap, SessionKey, SubnetKey};
use super::sizes::{COUNTED, ONE, Sizes};
use crate::mutant::{Mutant, planted};

/// The line before one backend.
#[derive(Clone, Debug)]
pub struct Line {
    visitors: KeyMap<Visitor>,
    networks: KeyMap<NetworkInLine>,
    /// Networks of which somebody is present: how many turns they had, when the first of them asked, and their key.
    ready: BTreeSet<(u64, u64, u64)>,
    /// Networks that are remembered only for the turn that they have just had.
    served: BTreeSet<(u64, u64)>,
    /// When visitors who are away are forgotten.
    until: BTreeSet<(u64, u64)>,
    expected: Expected,
    had_turns: HadTurns,
    /// How many visitors each network has, including those who are expected.
    sizes: Sizes,
    /// The turn that is being given out.
    turn: u64,
    present: usize,
    visitors_max: usize,
}

/// The rank of a visitor in its network: turns that it had, when it first asked, its key.
type Rank = (u64, u64, u64);

#[derive(Clone, Debug)]
struct Visitor {
    subnet: u64,
    turn: u64,
    since: u64,
    /// Its requests that are held; the oldest comes first.
    requests: VecDeque<u64>,
    /// If it is away: when it is forgotten.
    until: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct NetworkInLine {
    turn: u64,
    /// The turn that is being given to its visitors now.
    inner_turn: u64,
    all: BTreeSet<Rank>,
    present: BTreeSet<Rank>,
    /// Requests that are held.
    requests: usize,
    /// Visitors that have had a turn and are not in the line.
    had: BTreeMap<u64, u64>,
}

/// A visitor has waited for at most this long, in milliseconds: cookies that were collected beforehand gain no more than that.
pub const WAITED_MAX_MS: u64 = 60_000;

/// Visitors of a network whose last turn is remembered.
const HAD_MAX: usize = 4_096;

impl NetworkInLine {
    /// The rank of a network is that of its first visitor who is present.
    fn rank(&self, key: u64) -> Option<(u64, u64, u64)> {
        self.present.first().map(|first| (self.turn, first.1, key))
    }

    fn note_turn(&mut self, session: u64, turn: u64) {
        self.inner_turn = self.inner_turn.max(turn);
        let now = self.inner_turn;
        if self.had.len() >= HAD_MAX {
            self.had.retain(|_, had| *had >= now);
        }
        if self.had.len() >= HAD_MAX {
            self.had.clear();
        }
        self.had.insert(session, turn);
    }
}

impl Line {
    /// An empty line with room for this many visitors.
    pub fn new(visitors_max: usize) -> Line {
        Line {
            visitors: KeyMap::default(),
            networks: KeyMap::default(),
            ready: BTreeSet::new(),
            served: BTreeSet::new(),
            until: BTreeSet::new(),
            expected: Expected::new(visitors_max),
            had_turns: HadTurns::new(visitors_max),
            sizes: Sizes::default(),
            turn: 0,
            present: 0,
            visitors_max: visitors_max.max(1),
        }
    }

    /// A visitor is present with a request; `number` names the request. A visitor who is not in the line yet has waited since `since`. Returns
    /// whether there is room for it.
    pub fn arrive(&mut self, session: SessionKey, subnet: SubnetKey, since: u64, number: u64) -> bool {
        let since = self.had_turns.since(session.0, since);
        if !self.visitors.contains_key(&session.0) {
            let expected_since = self.expected.comes(session.0, subnet.0);
            if !self.join(session, subnet, expected_since.unwrap_or(since)) {
                self.resize(subnet.0);
                return false;
            }
        }
        let Some(visitor) = self.visitors.get_mut(&session.0) else { return false };
        if let Some(until) = visitor.until.take() {
            self.until.remove(&(until, session.0));
        }
        let (key, before, turn) = (visitor.subnet, (visitor.turn, visitor.since, session.0), self.turn);
        // Turns that passed while the visitor was away are lost.
        if visitor.requests.is_empty() {
            let inner_turn = self.networks.get(&key).map_or(0, |network| network.inner_turn);
            visitor.turn = visitor.turn.max(inner_turn);
        }
        visitor.requests.push_back(number);
        let rank = (visitor.turn, visitor.since, session.0);
        self.present += 1;
        self.change(key, |network| {
            if network.present.is_empty() {
                network.turn = network.turn.max(turn);
            }
            network.requests += 1;
            network.all.remove(&before);
            network.all.insert(rank);
            network.present.insert(rank);
        });
        true
    }

    /// A request of a visitor leaves without having been let in. If it was the last one, the visitor is away until `until`, or gone.
    pub fn leave(&mut self, session: SessionKey, number: u64, until: Option<u64>) {
        let Some(visitor) = self.visitors.get_mut(&session.0) else { return };
        let Some(at) = visitor.requests.iter().position(|held| *held == number) else { return };
        visitor.requests.remove(at);
        let (key, rank, last) = (visitor.subnet, (visitor.turn, visitor.since, session.0), visitor.requests.is_empty());
        if last {
            visitor.until = until;
        }
        self.present -= 1;
        self.change(key, |network| {
            network.requests -= 1;
            if last {
                network.present.remove(&rank);
            }
        });
        match until {
            _ if !last => {}
            Some(until) => {
                self.until.insert((until, session.0));
            }
            None => self.forget(session.0),
        }
    }

    /// Lets the next visitor in; returns the number of its request. From now on the visitor waits anew, whatever its cookie says.
    pub fn let_in(&mut self, now: u64) -> Option<u64> {
        let (turn, _, key) = *self.ready.first()?;
        let network = self.networks.get_mut(&key)?;
        let rank = *network.present.first()?;
        let session = rank.2;
        let visitor = self.visitors.get_mut(&session)?;
        let number = visitor.requests.pop_front()?;
        let more = !visitor.requests.is_empty();
        self.turn = self.turn.max(turn);
        self.present -= 1;
        let next_turn = if planted(Mutant::LineForgetsTurns) { turn } else { self.turn + 1 };
        visitor.turn = rank.0 + 1;
        self.had_turns.note(session, now, now.saturating_sub(WAITED_MAX_MS));
        visitor.since = self.had_turns.since(session, visitor.since);
        let behind = (visitor.turn, visitor.since, session);
        self.change(key, |network| {
            network.turn = next_turn;
            network.requests -= 1;
            network.note_turn(session, rank.0);
            network.all.remove(&rank);
            network.all.insert(behind);
            network.present.remove(&rank);
            if more {
                network.present.insert(behind);
            }
        });
        if !more {
            self.forget(session);
        }
        self.forget_turns();
        Some(number)
    }

    /// A visitor who is not in the line is told its place, as of `since`, and when to come back. After `due` it is no longer expected; it may still come.
    pub fn expect(&mut self, session: SessionKey, subnet: SubnetKey, since: u64, due: u64) {
        if self.visitors.contains_key(&session.0) {
            return;
        }
        let since = self.had_turns.since(session.0, since);
        let forgotten = self.expected.add(session.0, subnet.0, since, due);
        forgotten.into_iter().chain([subnet.0]).for_each(|network| self.resize(network));
    }

    /// Forgets visitors who did not come back in time.
    pub fn expire(&mut self, now: u64) {
        while let Some(network) = self.expected.next_overdue(now) {
            self.resize(network);
        }
        while let Some((until, session)) = self.until.first().copied().filter(|(until, _)| *until <= now) {
            self.until.remove(&(until, session));
            self.forget(session);
        }
    }

    /// How many visitors will be let in before this one, if all come when they are told to; `session` need not be in the line.
    pub fn ahead(&self, session: SessionKey, subnet: SubnetKey) -> u64 {
        let network = self.networks.get(&subnet.0);
        let in_line = |network: &NetworkInLine| match self.visitors.get(&session.0) {
            Some(visitor) => network.all.range(..(visitor.turn, visitor.since, session.0)).take(COUNTED).count(),
            None => network.all.len().min(COUNTED),
        };
        let before =
            network.map_or(0, in_line) as u64 * ONE + self.expected.before(subnet.0, self.behind(session, network));
        let own = match self.visitors.contains_key(&session.0) {
            true => ONE,
            false => self.expected.find(session.0).map_or(0, |(_, part)| part),
        };
        (self.sizes.first_of_each(before + ONE).saturating_sub(own) + ONE / 2) / ONE
    }

    /// About how many of the requests that are held now will be let in before this visitor, if nobody else comes: at most `most`. It looks at
    /// `most` networks at most.
    pub fn ahead_here(&self, session: SessionKey, subnet: SubnetKey, most: usize) -> usize {
        let rank = self.visitors.get(&session.0).map_or((u64::MAX, 0, 0), |own| (own.turn, own.since, session.0));
        let own = self.networks.get(&subnet.0);
        let neighbours = own.map_or(0, |network| network.present.range(..rank).take(most).count());
        // The turn that its network will give to it: one later for each neighbour that goes first.
        let turn = own.map_or(self.turn, |network| network.turn.max(self.turn)).saturating_add(neighbours as u64);
        let mut before = neighbours;
        for (theirs, _, key) in self.ready.range(..(turn, rank.1, subnet.0)) {
            if before >= most {
                return most;
            }
            if *key != subnet.0 {
                let held = self.networks.get(key).map_or(0, |network| network.requests);
                before += held.min((turn - theirs) as usize + 1);
            }
        }
        before.min(most)
    }

    /// A visitor who is expected goes before this visitor if it has waited since before the time that is returned.
    fn behind(&self, session: SessionKey, network: Option<&NetworkInLine>) -> u64 {
        match self.visitors.get(&session.0) {
            // A visitor who has had a turn stands behind all who have not.
            Some(visitor) if network.is_some_and(|network| visitor.turn > network.inner_turn) => u64::MAX,
            Some(visitor) => visitor.since,
            None => self.expected.find(session.0).map_or(u64::MAX, |(since, _)| since),
        }
    }

    /// Requests that are held.
    pub fn present(&self) -> usize {
        self.present
    }

    /// Requests of this network that are held.
    pub fn present_of(&self, subnet: SubnetKey) -> usize {
        self.networks.get(&subnet.0).map_or(0, |network| network.requests)
    }

    /// Visitors who wait, present or away.
    pub fn visitors(&self) -> usize {
        self.visitors.len()
    }

    /// Networks that they come from.
    pub fn networks(&self) -> usize {
        self.networks.len().saturating_sub(self.served.len())
    }

    /// Visitors who were told a place and have not been here yet.
    pub fn expected(&self) -> usize {
        self.expected.len()
    }

    /// Whether this visitor is in the line.
    pub fn holds(&self, session: SessionKey) -> bool {
        self.visitors.contains_key(&session.0)
    }

    fn join(&mut self, session: SessionKey, subnet: SubnetKey, since: u64) -> bool {
        if self.visitors.len() >= self.visitors_max && !self.make_room() {
            return false;
        }
        let turn = self.turn;
        let network =
            self.networks.entry(subnet.0).or_insert_with(|| NetworkInLine { turn, ..NetworkInLine::default() });
        self.served.remove(&(network.turn, subnet.0));
        network.turn = network.turn.max(turn);
        let had = network.had.remove(&session.0).map_or(0, |had| had + 1);
        let inner = had.max(network.inner_turn);
        network.all.insert((inner, since, session.0));
        let visitor = Visitor { subnet: subnet.0, turn: inner, since, requests: VecDeque::new(), until: None };
        self.visitors.insert(session.0, visitor);
        self.resize(subnet.0);
        true
    }

    /// Forgets the visitor who would be forgotten next; visitors who are present stay.
    fn make_room(&mut self) -> bool {
        let Some((until, session)) = self.until.pop_first() else { return false };
        debug_assert!(until > 0);
        self.forget(session);
        true
    }

    fn forget(&mut self, session: u64) {
        let Some(visitor) = self.visitors.remove(&session) else { return };
        if let Some(until) = visitor.until {
            self.until.remove(&(until, session));
        }
        let Some(network) = self.networks.get_mut(&visitor.subnet) else { return };
        let rank = (visitor.turn, visitor.since, session);
        network.present.remove(&rank);
        network.all.remove(&rank);
        let (empty, turn) = (network.all.is_empty(), network.turn);
        if empty {
            self.served.insert((turn, visitor.subnet));
            self.forget_turns();
        }
        self.resize(visitor.subnet);
    }

    /// Counts the visitors of a network again.
    fn resize(&mut self, key: u64) {
        let here = self.networks.get(&key).map_or(0, |network| network.all.len() as u64 * ONE);
        let expected = if planted(Mutant::LineForgetsExpected) { 0 } else { self.expected.of(key) };
        self.sizes.set(key, here + expected);
    }

    /// A network that has had no more turns than others starts again without any.
    fn forget_turns(&mut self) {
        while let Some((turn, key)) = self.served.first().copied() {
            if turn > self.turn && self.served.len() <= self.visitors_max {
                return;
            }
            self.served.remove(&(turn, key));
            self.networks.remove(&key);
        }
    }

    /// Changes a network, and then updates its rank.
    fn change(&mut self, key: u64, with: impl FnOnce(&mut NetworkInLine)) {
        let Some(network) = self.networks.get_mut(&key) else { return };
        let before = network.rank(key);
        with(network);
        let after = network.rank(key);
        if before != after {
            before.map(|rank| self.ready.remove(&rank));
            after.map(|rank| self.ready.insert(rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const NOW: u64 = 20;

    /// A line with requests numbered by `network * 100 + visitor`.
    fn line(present: &[(u64, u64, u64)]) -> Line {
        let mut line = Line::new(1_000);
        for (network, visitor, since) in present {
            assert!(line.arrive(
                SessionKey(network * 100 + visitor),
                SubnetKey(*network),
                *since,
                network * 100 + visitor
            ));
        }
        line
    }

    fn all(line: &mut Line) -> Vec<u64> {
        core::iter::from_fn(|| line.let_in(NOW)).collect()
    }

    #[test]
    fn who_asked_first_is_let_in_first() {
        let mut line = line(&[(1, 1, 30), (2, 1, 10), (3, 1, 20)]);
        assert_eq!(all(&mut line), [201, 301, 101]);
        assert_eq!((line.present(), line.visitors(), line.networks()), (0, 0, 0));
    }

    #[test]
    fn networks_take_turns_however_many_visitors_they_have() {
        let mut line = line(&[(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 1, 9), (3, 1, 10), (3, 2, 11)]);
        assert_eq!(all(&mut line), [101, 201, 301, 102, 302, 103]);
    }

    #[test]
    fn visitors_of_a_network_take_turns_however_much_they_ask() {
        let mut line = Line::new(10);
        for number in 1..=3 {
            line.arrive(SessionKey(1), SubnetKey(1), 1, number);
        }
        line.arrive(SessionKey(2), SubnetKey(1), 5, 10);
        assert_eq!(line.let_in(NOW), Some(1));
        // It asks again and again, with the oldest cookie of all.
        line.arrive(SessionKey(1), SubnetKey(1), 1, 4);
        line.arrive(SessionKey(3), SubnetKey(1), 9, 20);
        assert_eq!(all(&mut line), [10, 20, 2, 3, 4]);
    }

    #[test]
    fn who_has_had_a_turn_and_comes_back_stands_behind_who_has_not() {
        let mut line = line(&[(1, 1, 1), (1, 2, 2)]);
        assert_eq!(line.let_in(NOW), Some(101));
        line.arrive(SessionKey(101), SubnetKey(1), 1, 900);
        line.arrive(SessionKey(103), SubnetKey(1), 3, 103);
        assert_eq!(all(&mut line), [102, 103, 900]);
    }

    #[test]
    fn who_comes_back_goes_before_those_who_have_had_turns_meanwhile() {
        // Two programs with old cookies, and a visitor who came later.
        let mut line = line(&[(1, 1, 1), (2, 1, 3), (3, 1, 50)]);
        line.leave(SessionKey(301), 301, Some(1_000));
        assert_eq!((line.let_in(100), line.let_in(101)), (Some(101), Some(201)));
        line.arrive(SessionKey(101), SubnetKey(1), 1, 900);
        line.arrive(SessionKey(201), SubnetKey(2), 3, 901);
        assert_eq!(line.let_in(102), Some(900));
        line.arrive(SessionKey(101), SubnetKey(1), 1, 902);
        line.arrive(SessionKey(301), SubnetKey(3), 50, 301);
        assert_eq!(all(&mut line), [301, 901, 902]);
    }

    #[test]
    fn who_is_away_keeps_its_place_until_its_time_is_over() {
        let mut line = line(&[(1, 1, 1), (1, 2, 2), (2, 1, 3)]);
        line.leave(SessionKey(101), 101, Some(50));
        assert_eq!((line.present(), line.visitors()), (2, 3));
        assert_eq!(line.let_in(NOW), Some(102), "the next who is here");
        assert!(line.arrive(SessionKey(101), SubnetKey(1), 40, 7), "it is back");
        assert_eq!(all(&mut line), [201, 7], "its network has had a turn");
        line.arrive(SessionKey(5), SubnetKey(5), 1, 1);
        line.leave(SessionKey(5), 1, Some(50));
        line.expire(49);
        assert!(line.holds(SessionKey(5)));
        line.expire(50);
        assert!(!line.holds(SessionKey(5)));
        assert_eq!(line.visitors(), 0);
        assert!(line.sizes.is_empty());
    }

    #[test]
    fn a_place_is_how_many_go_before() {
        let line = line(&[(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 1, 4), (3, 1, 5)]);
        let ahead = |session: u64| line.ahead(SessionKey(session), SubnetKey(session / 100));
        // 101, 201, 301, then 102, then 103.
        assert_eq!((ahead(102), ahead(103)), (3, 4));
        assert!(ahead(101) <= 2 && ahead(301) <= 2);
        assert_eq!(line.ahead(SessionKey(999), SubnetKey(9)), 3, "somebody new is in the first round");
        assert_eq!(line.ahead(SessionKey(999), SubnetKey(1)), 5);
    }

    #[test]
    fn who_is_away_is_before_nobody_who_is_here() {
        let mut line = line(&[(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 1, 4), (3, 1, 5), (4, 1, 9)]);
        let here = |line: &Line, session: u64| line.ahead_here(SessionKey(session), SubnetKey(session / 100), 100);
        assert_eq!((here(&line, 101), here(&line, 301), here(&line, 103)), (0, 2, 5));
        for away in [101, 201] {
            line.leave(SessionKey(away), away, Some(1_000));
        }
        assert_eq!((line.ahead(SessionKey(301), SubnetKey(3)), here(&line, 301)), (3, 1), "102 is left");
        assert_eq!(here(&line, 103), 3, "102, 301, 401");
        assert_eq!(line.ahead_here(SessionKey(103), SubnetKey(1), 2), 2, "it counts no further than it is told");
        assert_eq!(all(&mut line), [102, 301, 401, 103]);
    }

    #[test]
    fn of_two_who_came_at_once_one_is_before_the_other() {
        let mut line = line(&[(1, 1, 14), (2, 1, 14)]);
        let here = |session: u64| line.ahead_here(SessionKey(session), SubnetKey(session / 100), 100);
        assert_eq!((here(101), here(201)), (0, 1));
        assert_eq!(all(&mut line), [101, 201]);
    }

    #[test]
    fn there_is_room_for_who_is_present_before_who_is_away() {
        let mut line = Line::new(2);
        assert!(line.arrive(SessionKey(1), SubnetKey(1), 1, 1));
        assert!(line.arrive(SessionKey(2), SubnetKey(2), 1, 2));
        assert!(!line.arrive(SessionKey(3), SubnetKey(3), 1, 3));
        line.leave(SessionKey(1), 1, Some(9));
        assert!(line.arrive(SessionKey(3), SubnetKey(3), 1, 3));
        assert!(!line.holds(SessionKey(1)));
        line.leave(SessionKey(2), 2, None);
        assert_eq!(line.visitors(), 1);
        line.leave(SessionKey(2), 2, None);
        line.leave(SessionKey(3), 9, None);
        assert_eq!(all(&mut line), vec![3]);
    }
}
