//! What clients ask in clamd's place.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_scan::fuzz::clamd_door(data);
});
