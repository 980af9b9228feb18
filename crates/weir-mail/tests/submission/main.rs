//! Submission over real sockets: the throttle at work, held mail, orders by mail, and what a restart finds.
#![allow(missing_docs)]

mod gate;
mod held;
mod notices;
mod restart;
mod sender;
