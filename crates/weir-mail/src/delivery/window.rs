//! Limits how many deliveries to one destination may run at once.
//!
//! The window grows by one for every window of successes up to the maximum; a destination that cannot be reached halves it, and when
//! nothing else gets through (nobody else under way, or three failures in a row) closes the destination for a time that doubles. When that
//! time is over one delivery is let through to see. After a failure the window does not grow for half a minute, because otherwise we would
//! run into a peer's limit on connections again and again.

use std::time::Duration;

use weir_core::time::Instant;

const STREAK_MAX: u32 = 3;
const CALM: Duration = Duration::from_secs(30);

/// Bounds of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBounds {
    /// Where it begins. Default 5.
    pub initial: u32,
    /// The most. Default 20.
    pub most: u32,
    /// How long a destination is first closed. Default 5 s.
    pub pause_first: Duration,
    /// How long it is closed at most. Default 10 min.
    pub pause_most: Duration,
}

impl Default for WindowBounds {
    fn default() -> WindowBounds {
        WindowBounds { initial: 5, most: 20, pause_first: Duration::from_secs(5), pause_most: Duration::from_secs(600) }
    }
}

impl WindowBounds {
    /// The usual ones, but for the most.
    pub(super) fn up_to(most: u32) -> WindowBounds {
        let usual = WindowBounds::default();
        WindowBounds { initial: usual.initial.min(most), most, ..usual }
    }
}

/// How the last delivery to the destination went, as far as it concerns the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feedback {
    /// The server was there and spoke, whatever it said of the message.
    Reached,
    /// The connection was lost in the middle of a message.
    Lost,
    /// The server could not be reached or did not want us.
    Unreachable,
}

/// How many may run at once.
#[derive(Clone, Debug)]
pub struct Window {
    bounds: WindowBounds,
    size: u32,
    /// Successes since the window last grew.
    reached: u32,
    /// Failures to reach it since the last success.
    streak: u32,
    /// How often it has been closed since the last success.
    closings: u32,
    closed_until: Option<Instant>,
    calm_until: Instant,
}

impl Window {
    /// A window at its beginning.
    pub fn new(bounds: WindowBounds) -> Window {
        let size = bounds.initial.clamp(1, bounds.most.max(1));
        Window { bounds, size, reached: 0, streak: 0, closings: 0, closed_until: None, calm_until: Instant::ZERO }
    }

    /// How many may run now.
    pub fn size(&self) -> u32 {
        if self.closed_until.is_some() { 0 } else { self.size }
    }

    /// Until when it is closed.
    pub fn closed_until(&self) -> Option<Instant> {
        self.closed_until
    }

    /// Takes notice of a delivery that ended while `others` were under way.
    pub fn feed(&mut self, feedback: Feedback, others: usize, now: Instant) {
        match feedback {
            Feedback::Reached => self.grow(now),
            Feedback::Lost => {
                self.calm_until = now + CALM;
                self.size = (self.size - 1).max(1);
            }
            Feedback::Unreachable => self.shrink(others, now),
        }
    }

    /// The pause is over: one delivery may try.
    pub fn open(&mut self) {
        if self.closed_until.take().is_some() {
            self.size = 1;
            // If it is back, it is back: caution is for limits on connections.
            self.calm_until = Instant::ZERO;
        }
    }

    fn grow(&mut self, now: Instant) {
        (self.streak, self.closings) = (0, 0);
        self.reached += 1;
        if self.reached >= self.size && now >= self.calm_until {
            self.size = (self.size + 1).min(self.bounds.most.max(1));
            self.reached = 0;
        }
    }

    fn shrink(&mut self, others: usize, now: Instant) {
        if self.closed_until.is_some() {
            return;
        }
        (self.calm_until, self.reached) = (now + CALM, 0);
        self.streak += 1;
        self.size = (self.size / 2).max(1);
        if others == 0 || self.streak >= STREAK_MAX {
            let pause = self.bounds.pause_first.saturating_mul(1 << self.closings.min(16));
            self.closed_until = Some(now + pause.min(self.bounds.pause_most).max(Duration::from_millis(1)));
            self.closings += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn successes_open_it_to_the_maximum() {
        let mut window = Window::new(WindowBounds::default());
        assert_eq!(window.size(), 5);
        for _ in 0..400 {
            window.feed(Feedback::Reached, 4, at(1));
        }
        assert_eq!(window.size(), 20);
    }

    #[test]
    fn a_dead_host_is_left_alone_longer_and_longer() {
        let mut window = Window::new(WindowBounds::default());
        let mut pauses = Vec::new();
        let mut now = at(0);
        for _ in 0..12 {
            window.feed(Feedback::Unreachable, 0, now);
            assert_eq!(window.size(), 0);
            let until = window.closed_until().unwrap();
            pauses.push(until.since(now).as_secs());
            now = until;
            window.open();
            assert_eq!(window.size(), 1);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600, 600]);
        window.feed(Feedback::Reached, 0, now);
        window.feed(Feedback::Unreachable, 0, now);
        assert_eq!(window.closed_until(), Some(now + Duration::from_secs(5)));
    }

    #[test]
    fn a_host_that_is_back_is_used_at_once() {
        let mut window = Window::new(WindowBounds::default());
        window.feed(Feedback::Unreachable, 0, at(0));
        window.open();
        for _ in 0..10 {
            window.feed(Feedback::Reached, 0, at(5));
        }
        assert_eq!(window.size(), 5);
    }

    #[test]
    fn a_limit_on_connections_shrinks_it_without_closing() {
        let mut window = Window::new(WindowBounds { initial: 20, ..WindowBounds::default() });
        window.feed(Feedback::Unreachable, 10, at(0));
        assert_eq!((window.size(), window.closed_until()), (10, None));
        for _ in 0..1000 {
            window.feed(Feedback::Reached, 9, at(20));
        }
        assert_eq!(window.size(), 10, "calm for a while");
        window.feed(Feedback::Reached, 9, at(31));
        assert_eq!(window.size(), 11);
        for _ in 0..3 {
            window.feed(Feedback::Unreachable, 9, at(31));
        }
        assert_eq!(window.size(), 0, "three in a row are no limit but a dead host");
        // What was under way when it closed changes nothing.
        let until = window.closed_until();
        window.feed(Feedback::Unreachable, 5, at(32));
        assert_eq!(window.closed_until(), until);
    }

    #[test]
    fn absurd_bounds_still_let_one_through() {
        let bounds = WindowBounds { initial: 0, most: 0, pause_first: Duration::ZERO, pause_most: Duration::ZERO };
        let mut window = Window::new(bounds);
        assert_eq!(window.size(), 1);
        window.feed(Feedback::Reached, 0, at(1));
        window.feed(Feedback::Lost, 0, at(1));
        assert_eq!(window.size(), 1);
        window.feed(Feedback::Unreachable, 0, at(1));
        assert!(window.closed_until().unwrap() > at(1));
    }
}
