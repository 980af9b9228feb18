//! The history profile: how often each subnet was there, as one versioned document that all front-ends share.
//!
//! The thesis (section 3.3) wants a traffic record, by subnet, from times without attack. [`learn`] makes one from access logs, [`tally`] keeps
//! it current from live traffic outside saturation, and the exchange hands it round. Only proportions count: H of a subnet against the
//! average G over all subnets. What counts are visits ([`weir_core::fair::visits`]), not requests.
//!
//! A document holds at most [`SUBNETS_MAX`] subnets, the largest; the others count in the average, and are treated as strangers. Text from
//! a file or a peer is read within bounds or refused.

mod document;
pub mod learn;
pub mod log;
pub mod tally;

pub use document::{Document, DocumentError, Remainder, SUBNETS_MAX, TEXT_BYTES_MAX};
