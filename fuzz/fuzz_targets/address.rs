//! Addresses, crafted ones among them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_mail::fuzz::address(data);
});
