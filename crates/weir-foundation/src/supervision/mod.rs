//! Lets one gate fail without the others: watches the long-lived tasks of each gate, says how long to wait before a failed gate is started
//! again, and knows the state of each gate.
//!
//! A [`Supervisor`] watches a gate from one start to the next stop. It watches everything that the gate starts with [`spawn`] inside of
//! [`Supervisor::scope`]. If such a task panics, or ends before the gate is stopped, this is logged with the task's name and the place in
//! the source. It is also reported to the code that runs the gates, which stops the gate in an orderly way and starts it again after
//! [`BackOff`]. A task that belongs to no gate is started with [`keep_running`]. [`GateStates`] holds the state of all gates. A hook records where a panic happened ([`watch_panics`]).

mod back_off;
mod gate_states;
mod outside_gates;
mod panics;
mod supervisor;

pub use back_off::BackOff;
pub use gate_states::{GateName, GateState, GateStates, GateView};
pub use outside_gates::{keep_running, restarts};
pub use panics::watch_panics;
pub use supervisor::{
    OpenError, Supervisor, TaskFailure, current_gate, plant_panic, spawn, spawn_until_done, watched, watched_elsewhere,
};
