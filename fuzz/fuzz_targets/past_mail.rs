//! Mailboxes and logs for `weir replay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_replay::fuzz::read(data);
});
