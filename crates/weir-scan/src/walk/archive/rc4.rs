//! RC4, with which old documents are encrypted. Source: Schneier, *Applied Cryptography*, section 17.1.

/// Encrypts or decrypts, which is the same. The key has at least one octet.
pub(super) fn rc4(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut state: Vec<u8> = (0..=255).collect();
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    let next = |octet: &u8| {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        octet ^ state[usize::from(state[usize::from(i)].wrapping_add(state[usize::from(j)]))]
    };
    data.iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_is_that_of_its_test_vectors() {
        assert_eq!(rc4(b"Key", b"Plaintext"), b"\xbb\xf3\x16\xe8\xd9\x40\xaf\x0a\xd3");
    }
}
