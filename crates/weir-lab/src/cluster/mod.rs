//! The machines of a lab among themselves: who belongs, who leads, and how they reach each other.

pub(crate) mod asking;
pub mod authority;
mod call;
pub mod clock;
mod connection;
pub mod credentials;
pub(crate) mod datagram;
pub mod elector;
pub mod enrolment;
mod entry;
pub mod identity;
pub mod index;
mod network;
mod registry;
mod renewal;
mod reports;
mod seen;
mod server;
pub mod site;
mod validity;
mod wallet;
