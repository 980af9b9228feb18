//! The machines of a lab among themselves: who leads.

pub mod elector;
pub mod index;
