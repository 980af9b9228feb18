//! What DKIM signs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_smtp::fuzz::dkim(data);
});
