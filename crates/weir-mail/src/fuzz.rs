//! Entries for fuzzers: the code of the gate itself that reads bytes from outside. Those of the SMTP protocol are in `weir_smtp::fuzz`.
//!
//! Each takes arbitrary bytes and panics if a promise of what it calls is broken. tests/hostile/fuzz.rs runs them on stable with
//! fixed seeds, `fuzz/` with coverage.

use crate::intake::header::for_fuzz as header_for_fuzz;
use crate::notices::crafted;
use weir_smtp::mailbox::Mailbox;

/// The header of a submitted message, its Received field among others.
pub fn header(data: &[u8]) {
    header_for_fuzz(data);
}

/// Addresses: what is read is what is written, and a crafted one is found where there is one.
pub fn address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mailbox) = Mailbox::parse(text) else { return };
    assert_eq!(Mailbox::parse(mailbox.as_str()).as_ref(), Ok(&mailbox));
    assert!(!mailbox.as_str().chars().any(char::is_control), "{mailbox}");
    if let Some((action, token)) = crafted::parse(mailbox.local(), mailbox.domain(), "mail.example") {
        let made = action.address(token, "mail.example");
        assert!(made.eq_ignore_ascii_case(mailbox.as_str()), "{made} is not {mailbox}");
    }
}
