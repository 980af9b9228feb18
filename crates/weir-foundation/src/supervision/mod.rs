//! Lets a gate fail without the others: watches its long-lived tasks, says how long to wait before a failed gate is started again, and
//! knows the state of each gate.
//!
//! A [`Supervisor`] belongs to one life of a gate. Whatever the gate starts while it is in [`Supervisor::scope`] and with [`spawn`] is
//! watched: a panic, or an end before the gate is stopped, is logged with the task and the place in the source, and reported to the code
//! that runs the gates, which stops the gate in an orderly way and starts it again after [`BackOff`]. [`GateStates`] holds the state of all
//! gates. The panic's place is recorded by a hook ([`watch_panics`]).

mod back_off;
mod gate_states;
mod panics;
mod supervisor;

pub use back_off::BackOff;
pub use gate_states::{GateName, GateState, GateStates, GateView};
pub use panics::watch_panics;
pub use supervisor::{
    OpenError, Supervisor, TaskFailure, current_gate, plant_panic, spawn, spawn_until_done, watched, watched_elsewhere,
};
