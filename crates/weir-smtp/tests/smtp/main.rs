//! The SMTP server under test: dialogues with the session, a model of the data reader, seeded fuzz, real sockets
//! with real TLS, and real peers (swaks, smtp-source).

mod client;
mod data_model;
mod dialogue;
mod fuzz;
mod hostile;
mod peers;
mod shell;
mod smuggling;
mod sockets;
