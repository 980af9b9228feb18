//! The header of a submitted message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_mail::fuzz::header(data);
});
