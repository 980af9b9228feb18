//! The console: what people in charge see and do, over HTTP.
//!
//! For now the API under `/api/v1` ([`api`]) and the control socket of the data folder that serves it to the command line
//! ([`socket`]). Behind it are [`weir_mail::desk`] and [`weir_web::proxy::Gate`]; this crate only speaks HTTP.

pub mod api;
pub mod socket;
