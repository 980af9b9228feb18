//! Each discipline beside a naive model of itself: random operations, the same answers; and one planted
//! bug a discipline that these very checks must find.

mod classes;
mod crowd;
mod election;
mod fair;
mod feeds;
mod runq;
mod throttle;
