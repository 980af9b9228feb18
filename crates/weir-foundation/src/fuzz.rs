//! Entry points for fuzzing: what an identity provider and a directory send, and what a directory is asked. `make test` runs them with
//! fixed seeds, `make soak` guided by coverage.

use crate::directory::fuzz as directory_fuzz;
use crate::identity_provider::fuzz;

/// The tokens in the seeds that are really signed.
const SIGNED: [&str; 2] = [
    include_str!("../../../fuzz/seeds/identity_provider/rs256"),
    include_str!("../../../fuzz/seeds/identity_provider/es256"),
];

/// Reads a token, a metadata document, keys, or what a browser brings back. Only the tokens of the seeds may be believed.
pub fn identity_provider(data: &[u8]) {
    fuzz::read(data);
    if fuzz::is_believed(data) {
        let words = |token: &[u8]| token.iter().rposition(|octet| *octet == b'.').map(|dot| token[..dot].to_vec());
        let known = SIGNED.iter().any(|token| words(token.as_bytes()) == words(data));
        assert!(known, "nobody has signed this token");
    }
}

/// Reads a message of a directory, or a filter and a login.
pub fn directory(data: &[u8]) {
    directory_fuzz::message(data);
    directory_fuzz::filter(data);
}
