//! What a server says to our client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_smtp::fuzz::reply(data);
});
