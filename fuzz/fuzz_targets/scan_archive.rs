//! The walk through archives.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_scan::fuzz::archive(data);
});
