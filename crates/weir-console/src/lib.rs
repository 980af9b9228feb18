//! The console and the API: what people see and do, over HTTP.
//!
//! The control socket of the data folder ([`socket`]) serves the API under `/api/v1` ([`api`]). A listener on loopback ([`listener`])
//! serves the API and the pages ([`router`]) to browsers. Both only speak HTTP; the work is done by [`weir_foundation::administration`],
//! [`weir_mail::operations`], [`weir_web::proxy::Gate`] and [`weir_lab::node::Node`]. Every request of a browser passes the [`door`],
//! which checks who asks, what they may do, and whether the request comes from one of our own pages.

pub mod api;
mod behaviour;
pub mod current_router;
pub mod door;
mod evidence;
mod flow;
pub mod form;
mod frame;
pub mod gates;
mod guide;
pub mod health;
mod history;
pub mod html;
pub mod incidents;
mod lab_report;
mod lanes;
pub mod listener;
pub mod logins;
mod looks;
mod metrics;
mod noted_change;
mod pages;
mod past;
mod preview;
mod process_tree;
mod pulse;
mod reading;
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
