//! Each discipline beside a naive model of itself: random operations, the same answers; and in each discipline a planted bug that these
//! same checks must find.

mod classes;
mod crowd;
mod election;
mod fair;
mod feeds;
mod runq;
mod throttle;
