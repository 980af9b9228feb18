//! What clamd says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_scan::fuzz::clamd(data);
});
