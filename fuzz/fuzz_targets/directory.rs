//! What a directory (LDAP) sends, and filters and logins that it is asked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_foundation::fuzz::directory(data);
});
