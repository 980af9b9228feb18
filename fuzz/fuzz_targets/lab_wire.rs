//! What machines of a lab say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_lab::fuzz::wire(data);
});
