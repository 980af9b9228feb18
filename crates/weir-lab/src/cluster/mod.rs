//! How the machines of a lab work together: which of them belong to it, which one leads, and how they reach each other.

pub mod alone;
pub mod authority;
pub(crate) mod call;
pub mod clock;
pub(crate) mod code;
pub(crate) mod connection;
pub(crate) mod credential_store;
pub mod credentials;
pub(crate) mod datagram;
pub mod elector;
pub mod enrolment;
pub(crate) mod entry;
pub(crate) mod epoch_file;
pub mod identity;
pub mod index;
pub(crate) mod leader_client;
pub mod local_net;
pub mod membership;
pub(crate) mod network;
pub(crate) mod priority;
pub(crate) mod registry;
pub(crate) mod renewal;
pub(crate) mod reports;
pub(crate) mod validity;
