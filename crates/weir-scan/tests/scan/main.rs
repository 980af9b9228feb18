//! The scanners against hostile messages, real workers and a real clamd.
#![allow(missing_docs, clippy::print_stdout)]

mod bombs;
mod clamd;
mod corpus;
mod corpus_verdicts;
mod files;
mod fuzz;
mod hidden;
mod mail;
mod new_scanner;
mod pages;
mod readers;
mod real_archives;
mod spam;
mod workers;
