//! Tests of the SMTP server: dialogues with the session, a model of the data reader, seeded fuzzing, real sockets with real TLS, and real
//! peers (swaks, smtp-source).

mod client;
mod data_model;
mod dialogue;
mod fuzz;
mod hostile;
mod peers;
mod shell;
mod smuggling;
mod sockets;
