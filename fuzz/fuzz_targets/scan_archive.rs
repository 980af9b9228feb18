//! The walk through archives.
#![no_main]

#[path = "../guarded.rs"]
mod guarded;

libfuzzer_sys::fuzz_target!(init: guarded::forgive_readers(), |data: &[u8]| {
    weir_scan::fuzz::archive(data);
});
