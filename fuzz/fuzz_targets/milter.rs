//! What a mail server says to the milter door.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_smtp::fuzz::doors::milter(data);
});
