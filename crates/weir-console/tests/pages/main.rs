//! The pages as a browser meets them, and as somebody meets them who is not a browser: who gets in, what they may, what a
//! stranger's page can make a browser do.
#![allow(missing_docs)]

mod charts;
mod house;
mod logins;
mod mail;
mod operating;
mod origins;
mod roles;
