//! The walk beside `mail-parser`: every leaf that it shows is one that the walk shows.
#![no_main]

#[path = "../guarded.rs"]
mod guarded;
#[path = "../../crates/weir-scan/tests/scan/readers/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(init: guarded::forgive_readers(), |data: &[u8]| {
    // A charset turns octets into others before they are compared; this is about structure.
    if !data.is_ascii() {
        return;
    }
    if let Some(leaf) = oracle::missing(data, &oracle::mail_parser_leaves(data)) {
        panic!("mail-parser shows {leaf:?}, and the walk does not");
    }
});
