//! What another proxy asks and logs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_web::fuzz::forward_auth(data);
});
