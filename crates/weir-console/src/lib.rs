//! The console: what people in charge see and do, over HTTP.
//!
//! The API under `/api/v1` ([`api`]) behind the control socket of the data folder ([`socket`]), and the pages ([`site`]) that a
//! listener on loopback ([`listener`]) serves to browsers. Behind both are [`weir_foundation::administration`], [`weir_mail::operations`], [`weir_web::proxy::Gate`] and
//! [`weir_lab::node::Node`]; this crate only speaks HTTP. Everything a browser asks passes one door, which knows who asks, what
//! they may, and whether the request comes from a page of ours.

pub mod api;
mod behaviour;
pub mod current_router;
pub mod door;
pub mod form;
mod frame;
pub mod gates;
mod history;
pub mod html;
mod lab_report;
pub mod listener;
pub mod logins;
mod looks;
mod metrics;
mod pages;
mod preview;
mod process_tree;
mod pulse;
mod rule_proposal;
mod serving;
pub mod session;
mod settings;
pub mod site;
pub mod socket;
mod steps;
pub mod trace;
mod trouble;
pub mod webhooks;
mod words;

pub use pages::router;
pub use settings::ConsoleSettings;
