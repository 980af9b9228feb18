//! What Postfix asks the policy service.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_smtp::fuzz::doors::policy(data);
});
