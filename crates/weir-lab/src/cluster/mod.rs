//! The machines of a lab among themselves: who belongs, who leads, and how they reach each other.

pub mod authority;
mod call;
mod connection;
pub mod credentials;
mod datagram;
pub mod elector;
pub mod enrolment;
pub mod identity;
pub mod index;
mod network;
mod registry;
mod server;
pub mod site;
