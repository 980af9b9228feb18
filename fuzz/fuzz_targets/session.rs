//! A session under arbitrary input, cuts and answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = weir_smtp::fuzz::session::session(data);
});
