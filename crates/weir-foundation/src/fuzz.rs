//! Entries for fuzzing: what an identity provider and a directory send, and what a directory is asked. `make test` runs them with fixed seeds, `make soak` guided by coverage.

use crate::directory::fuzz as directory_fuzz;
use crate::identity_provider::fuzz;

/// What was signed in the seeds, up to the signature.
const SIGNED: [&str; 2] = [
    include_str!("../../../fuzz/seeds/identity_provider/rs256"),
    include_str!("../../../fuzz/seeds/identity_provider/es256"),
];

/// A token, a document, keys, or what a browser brings back.
pub fn identity_provider(data: &[u8]) {
    fuzz::read(data);
    if fuzz::is_believed(data) {
        let words = |token: &[u8]| token.iter().rposition(|octet| *octet == b'.').map(|dot| token[..dot].to_vec());
        let known = SIGNED.iter().any(|token| words(token.as_bytes()) == words(data));
        assert!(known, "nobody has signed this token");
    }
}

/// A message of a directory, or a filter and a login.
pub fn directory(data: &[u8]) {
    directory_fuzz::message(data);
    directory_fuzz::filter(data);
}
