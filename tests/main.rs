//! End to end: the real binary, as a user runs it. One harness, one file a subject.
#![allow(missing_docs)]

mod control;
mod election;
mod fair;
mod feeds;
mod harness;
mod house;
mod replay;
mod runq;
mod throttle;
mod web;
