//! The web gate: a reverse proxy that passes waiting requests to its backends in the order of distributed fair queueing.
//!
//! The method is from A. M. Vandiver's thesis (MIT 2007). This crate depends on no other gate; the binary hands it validated settings.

// Only this workspace uses these items, so they have a doc comment only where it says more than the name.
#![allow(missing_docs)]

pub mod admission;
pub mod blocks;
mod breaker;
pub mod builtin;
pub mod exchange;
#[doc(hidden)]
pub mod fuzz;
pub mod health;
pub mod identity;
pub mod keys;
mod label;
pub mod log;
mod metrics;
pub mod network_lists;
pub mod pages;
pub mod profile;
pub mod proxy;
pub mod route;
mod shares;
pub mod tokens;
pub mod units;
pub mod view;
pub mod waiting_page;
