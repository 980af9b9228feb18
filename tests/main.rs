//! End to end: the real binary, as a user runs it. One harness, one file a subject.
#![allow(missing_docs)]

mod acquaintance;
mod attachment;
mod audit;
mod certificates;
mod clamd_door;
mod console;
mod control;
mod corpus;
mod directory;
mod dovecot;
mod election;
mod fair;
mod feeds;
mod gates;
mod guide;
mod harness;
mod hostile;
mod house;
mod inbound;
mod incidents;
mod kills;
mod lab;
mod lab_cape;
mod lab_choices;
mod lab_corpus;
mod lab_directory;
mod lab_network;
mod lab_plugins;
mod lab_vm;
mod lab_windows;
mod letters;
mod lists;
#[path = "../crates/weir-scan/tests/scan/mail.rs"]
#[allow(dead_code, reason = "the scanners' own tests use the rest")]
mod mail;
mod operating;
mod postfix_doors;
mod quickstart;
mod recipes;
mod recipes_submission;
mod replay;
mod restart;
mod rules;
mod runq;
mod scan;
mod scanners;
mod strangers;
mod table1;
mod throttle;
mod together;
mod tracking;
mod tuning;
mod units;
mod upgrade;
mod web;
