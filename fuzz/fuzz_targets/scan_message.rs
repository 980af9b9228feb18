//! The walk through a message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_scan::fuzz::message(data);
});
