//! The lab's plugins: archives, programs, documents, text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_analysis::fuzz::plugins(data);
});
