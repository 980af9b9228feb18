//! A body on its way out, read by the next server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_smtp::fuzz::relay(data);
});
