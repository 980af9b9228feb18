//! Random bytes for secrets and names.

/// Random bytes from the system.
///
/// Panics if the system cannot give any: a secret of zeros must never be used.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .unwrap_or_else(|_| panic!("the system has no random numbers"));
    bytes
}

#[cfg(test)]
mod tests {
    use super::random;

    #[test]
    fn no_two_secrets_are_alike() {
        assert_ne!(random::<32>(), random::<32>());
        assert_ne!(random::<32>(), [0; 32]);
    }
}
