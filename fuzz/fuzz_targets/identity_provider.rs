//! What an identity provider sends, and what a browser brings back from it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_foundation::fuzz::identity_provider(data);
});
