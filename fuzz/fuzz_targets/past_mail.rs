//! Mailboxes and logs for `weir replay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_sim::past_mail::fuzz::read(data);
});
