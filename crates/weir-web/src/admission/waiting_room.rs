//! The waiting room: newcomers who came back with the cookie that they were given are let into the queue one after the other, in the order
//! of the line ([`weir_core::fair::Line`]).
//!
//! As many may be in the queue at once as keep the slots busy ([`WaitingRoom::set_size`]); the others wait before it, with their requests
//! held, or away with the waiting page. So the order is that of the line, and not that in which requests happen to arrive. A visitor who is
//! away needs no connection and costs a few hundred octets. One who does not come back in time is forgotten, and has cost no slot.
//!
//! The time that a visitor is told ([`Promise`]) is the number of visitors before it, divided by how fast the line moved lately while as many
//! were in the queue as may be. Before it are also those who were shown a page and have not come back yet, each for the part of them that
//! does ([`WaitingRoom::expect`]). Some of those who are away never come back. So a visitor in the line whose turn would come soon if none of
//! them did is held, although it was told a longer time, and gets in as soon as nobody who goes before it is there.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, Sleep};
use weir_core::fair::{Line, SessionKey, SubnetKey, WAITED_MAX_MS};

use super::rate::Rate;

/// The room before one backend.
#[derive(Debug)]
pub struct WaitingRoom {
    start: Instant,
    inner: Mutex<RoomState>,
}

#[derive(Debug)]
struct RoomState {
    line: Line,
    /// Requests that are held, by their number.
    held: HashMap<u64, Held>,
    numbers: u64,
    /// Visitors who were let in and are not served yet.
    inside: u32,
    /// How many may be inside.
    size: u32,
    /// Requests that may be held at once.
    held_max: usize,
    /// How fast the line moves while the queue has as many newcomers as it may.
    rate: Rate,
    /// How many a second it would be, as long as that has not been measured.
    guess: Option<f64>,
    let_in: u64,
    promised: u64,
}

#[derive(Debug)]
struct Held {
    let_in: bool,
    waker: Option<Waker>,
}

/// A visitor who comes to the room.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub session: SessionKey,
    pub subnet: SubnetKey,
    /// For how long it has waited already, as far as its cookie shows.
    pub waited: Duration,
}

/// What somebody who has to wait is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Promise {
    /// Visitors who go before.
    pub ahead: u64,
    /// When it will be this one's turn.
    pub wait: Duration,
    /// For a visitor in the line: when its turn would come if nobody who is away came back, as long as that is not later than five seconds.
    pub soonest: Option<Duration>,
}

/// The room as people look at it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WaitingRoom")]
pub struct RoomView {
    /// Newcomers who wait, here or away with the waiting page.
    pub visitors: usize,
    /// Networks that they come from.
    pub networks: usize,
    /// Requests of theirs that are held.
    pub present: usize,
    /// Let in so far.
    pub let_in: u64,
    /// Waiting pages with a place given out so far.
    pub pages: u64,
    /// How long somebody who comes now would wait, in seconds.
    pub wait_s: f64,
}

/// Visitors in a line; more are told to come later, without a place.
const VISITORS_MAX: usize = 65_536;
/// A cookie proves at most so much waiting.
const WAITED_MAX: Duration = Duration::from_millis(WAITED_MAX_MS);
/// A visitor who comes back later than it was told by more than this has lost its place.
const GRACE: Duration = Duration::from_secs(20);
/// Who was shown a page and comes later than it was told by more than this is not expected any more. (A page tells whole seconds.)
const LATE: Duration = Duration::from_secs(4);
/// The estimate before anything is known of how fast the line moves.
const FIRST_GUESS: Duration = Duration::from_secs(2);
/// Nobody is told to come back sooner than this, and no page asks again later.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Who has to wait for longer than this looks in before its time: there may be room, if those who were to go before do not come.
const LOOK_IN: Duration = Duration::from_secs(5);
/// Those who are held before a visitor are counted up to here.
const COUNTED_HERE: usize = 4_096;
/// The longest wait that is promised.
const PROMISE_MAX: Duration = Duration::from_secs(3_600);

impl Promise {
    /// When a page asks again. Who has long to wait looks in before its time, after a quarter of what is left; whose turn could come sooner than
    /// that looks in then. A long line is asked for no more than a few times for each visitor who is let in.
    pub fn again(&self) -> Duration {
        let look_in = self.soonest.unwrap_or(LOOK_IN.max(self.wait / 4));
        self.wait.min(look_in).clamp(AGAIN_MIN, AGAIN_MAX)
    }

    /// When it may be this one's turn at the earliest.
    fn earliest(&self) -> Duration {
        self.soonest.map_or(self.wait, |soonest| self.wait.min(soonest))
    }
}

impl Visit {
    fn since_ms(&self, now_ns: u64) -> u64 {
        (now_ns / 1_000_000).saturating_sub(self.waited.min(WAITED_MAX).as_millis() as u64)
    }
}

impl WaitingRoom {
    pub(super) fn new(held_max: u32) -> Arc<WaitingRoom> {
        let inner = RoomState {
            line: Line::new(VISITORS_MAX),
            held: HashMap::new(),
            numbers: 0,
            inside: 0,
            size: 1,
            held_max: held_max as usize,
            rate: Rate::default(),
            guess: None,
            let_in: 0,
            promised: 0,
        };
        // Times are counted from before the start, so that a visitor who has already waited has a valid time too.
        let start = Instant::now();
        Arc::new(WaitingRoom { start: start.checked_sub(2 * WAITED_MAX).unwrap_or(start), inner: Mutex::new(inner) })
    }

    /// How many may be in the queue at once, how many may be held, and how many a second are let in as far as others can tell.
    pub(super) fn set_size(&self, size: u32, held_max: u32, guess: Option<f64>) {
        let mut wakers = Vec::new();
        let now_ns = self.now_ns();
        let mut inner = self.lock();
        (inner.size, inner.held_max, inner.guess) = (size.max(1), held_max as usize, guess);
        inner.line.expire(now_ns / 1_000_000);
        inner.let_in(now_ns, &mut wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits to be let in, at most for this long.
    pub fn enter(self: &Arc<WaitingRoom>, visit: Visit, patience: Duration) -> Entering {
        Entering { room: Arc::clone(self), visit, number: None, patience, timeout: None }
    }

    /// Tells a visitor who does not wait in the room how it would stand in it.
    pub fn promise(&self, visit: &Visit) -> Promise {
        let mut inner = self.lock();
        inner.promised += 1;
        inner.promise(visit)
    }

    /// Somebody who was promised this is expected, under the session of the cookie that it is given: who is told a place after it is told that it
    /// goes before.
    pub fn expect(&self, visit: &Visit, promise: &Promise) {
        let now_ns = self.now_ns();
        self.lock().expect(visit, promise, now_ns);
    }

    pub(super) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.held.is_empty() && inner.inside == 0
    }

    pub(super) fn view(&self) -> RoomView {
        let inner = self.lock();
        let nobody = Visit { session: SessionKey(0), subnet: SubnetKey(0), waited: Duration::ZERO };
        let empty = inner.line.visitors() + inner.line.expected() == 0;
        RoomView {
            visitors: inner.line.visitors(),
            networks: inner.line.networks(),
            present: inner.line.present(),
            let_in: inner.let_in,
            pages: inner.promised,
            wait_s: if empty { 0.0 } else { inner.promise(&nobody).wait.as_secs_f64() },
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoomState {
    /// A request is held; None if there is no room for it. No network has more of these places than are left for others.
    fn hold(&mut self, visit: &Visit, now_ns: u64) -> Option<u64> {
        let left = self.held_max.saturating_sub(self.line.present());
        if self.line.present_of(visit.subnet) >= left {
            return None;
        }
        self.numbers += 1;
        if !self.line.arrive(visit.session, visit.subnet, visit.since_ms(now_ns), self.numbers) {
            return None;
        }
        self.held.insert(self.numbers, Held { let_in: false, waker: None });
        Some(self.numbers)
    }

    fn let_in(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) {
        while self.inside < self.size
            && let Some(number) = self.line.let_in(now_ns / 1_000_000)
        {
            self.inside += 1;
            self.let_in += 1;
            if let Some(held) = self.held.get_mut(&number) {
                held.let_in = true;
                wakers.extend(held.waker.take());
            }
        }
        if self.inside < self.size {
            self.rate.set_busy(false, now_ns);
        }
    }

    /// Somebody inside is served, or gives up. How fast the line moves is measured from one such moment to the next, as long as others are let in at
    /// once and the queue is full again: from when it fills up, the next one would come too soon.
    fn go(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) {
        self.rate.count(now_ns);
        self.inside -= 1;
        self.let_in(now_ns, wakers);
        self.rate.set_busy(self.inside >= self.size, now_ns);
    }

    fn expect(&mut self, visit: &Visit, promise: &Promise, now_ns: u64) {
        let due = Duration::from_nanos(now_ns) + promise.again() + LATE;
        self.line.expect(visit.session, visit.subnet, visit.since_ms(now_ns), due.as_millis() as u64);
    }

    fn promise(&self, visit: &Visit) -> Promise {
        let ahead = self.line.ahead(visit.session, visit.subnet);
        // Those inside are not in the line any more, and have no slot yet.
        let turns = ahead + u64::from(self.inside) + 1;
        let rate = self.rate.per_second().or(self.guess);
        let wait = match rate {
            Some(rate) => Duration::try_from_secs_f64(turns as f64 / rate).unwrap_or(PROMISE_MAX),
            None => FIRST_GUESS,
        };
        Promise {
            ahead,
            wait: wait.clamp(AGAIN_MIN, PROMISE_MAX),
            soonest: rate.and_then(|rate| self.soonest(visit, rate)),
        }
    }

    fn soonest(&self, visit: &Visit, rate: f64) -> Option<Duration> {
        if !self.line.holds(visit.session) {
            return None;
        }
        let within = ((rate * LOOK_IN.as_secs_f64()) as usize).min(COUNTED_HERE);
        let most = within.checked_sub(self.inside as usize)?;
        let ahead = self.line.ahead_here(visit.session, visit.subnet, most);
        let turns = ahead + self.inside as usize + 1;
        (ahead < most).then(|| Duration::from_secs_f64(turns as f64 / rate))
    }
}

/// A request before the room. Dropped, it leaves; a visitor who was told when to come back keeps its place.
#[derive(Debug)]
pub struct Entering {
    room: Arc<WaitingRoom>,
    visit: Visit,
    number: Option<u64>,
    patience: Duration,
    timeout: Option<Pin<Box<Sleep>>>,
}

/// What becomes of a request that wants to be let in.
#[derive(Debug)]
pub enum Entered {
    /// It may ask for a slot.
    Inside(Inside),
    /// It is not its turn yet.
    Later(Promise),
}

impl Entering {
    /// Takes its place among the held, or goes in.
    fn arrive(&mut self) -> Option<Entered> {
        let now_ns = self.room.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.room.lock();
        let Some(number) = inner.hold(&self.visit, now_ns) else {
            inner.promised += 1;
            let promise = inner.promise(&self.visit);
            inner.expect(&self.visit, &promise, now_ns);
            return Some(Entered::Later(promise));
        };
        inner.let_in(now_ns, &mut wakers);
        let promise = inner.promise(&self.visit);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        self.number = Some(number);
        // Who looks in and finds many before it who are there is not held: it would only take room.
        self.look(None).or_else(|| (promise.earliest() > self.patience).then(|| self.leave(promise)))
    }

    fn look(&mut self, waker: Option<&Waker>) -> Option<Entered> {
        let number = self.number?;
        let mut inner = self.room.lock();
        let held = inner.held.get_mut(&number)?;
        if !held.let_in {
            held.waker = waker.cloned();
            return None;
        }
        inner.held.remove(&number);
        drop(inner);
        self.number = None;
        Some(Entered::Inside(Inside(Arc::clone(&self.room))))
    }

    /// It has been held for as long as it wanted to wait.
    fn give_up(&mut self) -> Entered {
        let promise = self.room.lock().promise(&self.visit);
        self.leave(promise)
    }

    /// It goes away, and is told when to come back.
    fn leave(&mut self, promise: Promise) -> Entered {
        let now_ns = self.room.now_ns();
        let mut inner = self.room.lock();
        if let Some(number) = self.number.take() {
            if inner.held.remove(&number).is_some_and(|held| held.let_in) {
                // Another thread has let it in meanwhile. It must take the place, because a place that nobody gives back would be lost for
                // good.
                return Entered::Inside(Inside(Arc::clone(&self.room)));
            }
            let until = Duration::from_nanos(now_ns) + promise.wait + GRACE;
            inner.line.leave(self.visit.session, number, Some(until.as_millis() as u64));
        }
        inner.promised += 1;
        Entered::Later(promise)
    }
}

impl Future for Entering {
    type Output = Entered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Entered> {
        if self.timeout.is_none() {
            if let Some(entered) = self.arrive() {
                return Poll::Ready(entered);
            }
            self.timeout = Some(Box::pin(tokio::time::sleep(self.patience)));
        }
        if let Some(entered) = self.look(Some(cx.waker())) {
            return Poll::Ready(entered);
        }
        let waits = self.timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(cx).is_pending());
        if waits { Poll::Pending } else { Poll::Ready(self.give_up()) }
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else { return };
        let now_ns = self.room.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.room.lock();
        let was_let_in = inner.held.remove(&number).is_some_and(|held| held.let_in);
        if was_let_in {
            inner.inside -= 1;
        } else {
            // Browsers give a request up and ask again: the place stays for a moment.
            let until = Duration::from_nanos(now_ns) + GRACE;
            inner.line.leave(self.visit.session, number, Some(until.as_millis() as u64));
        }
        inner.let_in(now_ns, &mut wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Somebody who was let in and has no slot yet. Dropped, the next one is let in.
#[derive(Debug)]
pub struct Inside(Arc<WaitingRoom>);

impl Drop for Inside {
    fn drop(&mut self) {
        let now_ns = self.0.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.0.lock();
        inner.go(now_ns, &mut wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn visit(session: u64, subnet: u64) -> Visit {
        Visit { session: SessionKey(session), subnet: SubnetKey(subnet), waited: Duration::ZERO }
    }

    fn room(size: u32, held: u32) -> Arc<WaitingRoom> {
        let room = WaitingRoom::new(held);
        room.set_size(size, held, None);
        room
    }

    const PATIENCE: Duration = Duration::from_secs(3);

    fn poll(entering: &mut Entering) -> Option<Entered> {
        match pin!(entering).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entered) => Some(entered),
            Poll::Pending => None,
        }
    }

    fn inside(entered: Option<Entered>) -> Inside {
        match entered {
            Some(Entered::Inside(inside)) => inside,
            other => panic!("it should be let in: {other:?}"),
        }
    }

    fn waits(room: &Arc<WaitingRoom>, visit: Visit) -> Entering {
        let mut entering = room.enter(visit, PATIENCE);
        assert!(poll(&mut entering).is_none());
        entering
    }

    #[tokio::test(start_paused = true)]
    async fn below_its_size_everybody_is_let_in_at_once() {
        let room = room(2, 10);
        let (one, two) = (
            inside(poll(&mut room.enter(visit(1, 1), PATIENCE))),
            inside(poll(&mut room.enter(visit(2, 1), PATIENCE))),
        );
        let mut three = waits(&room, visit(3, 2));
        drop(one);
        drop(inside(poll(&mut three)));
        drop(two);
        assert!(room.is_empty());
        assert_eq!(room.view().let_in, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_went_away_with_the_page_and_comes_back_goes_before_who_came_later() {
        let room = room(1, 10);
        let first = inside(poll(&mut room.enter(visit(1, 1), PATIENCE)));
        let mut patient = waits(&room, visit(2, 2));
        tokio::time::advance(PATIENCE).await;
        let Some(Entered::Later(promise)) = poll(&mut patient) else { panic!("it is told to come back") };
        assert!(promise.again() >= AGAIN_MIN);
        let mut later = waits(&room, visit(3, 3));
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut back = waits(&room, visit(2, 2));
        drop(first);
        let entered = inside(poll(&mut back));
        assert!(poll(&mut later).is_none());
        drop(entered);
        drop(inside(poll(&mut later)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_come_back_is_forgotten_and_costs_nothing() {
        let room = room(1, 10);
        let first = inside(poll(&mut room.enter(visit(1, 1), PATIENCE)));
        let mut gone = waits(&room, visit(2, 2));
        tokio::time::advance(PATIENCE).await;
        assert!(matches!(poll(&mut gone), Some(Entered::Later(_))));
        assert_eq!(room.view().visitors, 1);
        tokio::time::advance(FIRST_GUESS + GRACE + PATIENCE).await;
        room.set_size(1, 10, None);
        assert_eq!(room.view().visitors, 0);
        let mut next = waits(&room, visit(3, 3));
        drop(first);
        drop(inside(poll(&mut next)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_holds_no_more_than_is_left_for_others() {
        let room = room(1, 10);
        let _first = inside(poll(&mut room.enter(visit(1, 1), PATIENCE)));
        let held: Vec<Entering> = (0..5).map(|number| waits(&room, visit(10 + number, 2))).collect();
        assert!(matches!(poll(&mut room.enter(visit(99, 2), PATIENCE)), Some(Entered::Later(_))));
        let other = waits(&room, visit(3, 3));
        drop(held);
        drop(other);
        assert_eq!(room.view().present, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_promise_is_what_goes_before_over_how_fast_it_goes() {
        let room = room(1, 1_000);
        let mut now = Some(inside(poll(&mut room.enter(visit(1, 1), PATIENCE))));
        let long = Duration::from_secs(600);
        let mut line: Vec<Entering> = (2..=300).map(|number| room.enter(visit(number, number), long)).collect();
        line.iter_mut().for_each(|entering| assert!(poll(entering).is_none()));
        for served in line.iter_mut().take(100) {
            tokio::time::advance(Duration::from_millis(100)).await;
            drop(now.take());
            now = Some(inside(poll(served)));
        }
        let promise = room.promise(&visit(1_000, 1_000));
        assert_eq!(promise.ahead, 199);
        assert!((Duration::from_secs(18)..Duration::from_secs(22)).contains(&promise.wait), "{promise:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_let_in_at_the_moment_of_giving_up_is_inside() {
        let room = room(1, 10);
        let first = inside(poll(&mut room.enter(visit(1, 1), PATIENCE)));
        let mut second = waits(&room, visit(2, 2));
        drop(first);
        assert!(matches!(second.give_up(), Entered::Inside(_)));
        assert!(room.is_empty(), "its place is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_request_gives_its_place_on() {
        let room = room(1, 10);
        let first = inside(poll(&mut room.enter(visit(1, 1), PATIENCE)));
        let (two, mut three) = (waits(&room, visit(2, 2)), waits(&room, visit(3, 3)));
        drop(first);
        // Let in, but its task is dropped before it looks.
        drop(two);
        drop(inside(poll(&mut three)));
        assert!(room.is_empty());
    }
}
