//! What DKIM signs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_mail::fuzz::dkim(data);
});
