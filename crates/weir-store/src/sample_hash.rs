//! The name of a sample: the SHA-256 of its content.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of a sample, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SampleHash(pub [u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sample's hash is 64 hexadecimal digits")]
pub struct NotAHash;

impl fmt::Display for SampleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SampleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for SampleHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<SampleHash, NotAHash> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut hash = [0; 32];
        if pairs.len() != hash.len() || !rest.is_empty() {
            return Err(NotAHash);
        }
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(SampleHash(hash))
    }
}

fn digit(text: u8) -> Result<u8, NotAHash> {
    char::from(text).to_digit(16).map(|digit| digit as u8).ok_or(NotAHash)
}

impl From<SampleHash> for String {
    fn from(hash: SampleHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for SampleHash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<SampleHash, NotAHash> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let hash = SampleHash(std::array::from_fn(|i| (i * 9) as u8));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
    }

    #[test]
    fn other_text_is_refused() {
        let short = "ab".repeat(31);
        for text in
            ["", "é", &short, &format!("{short}a"), &format!("{short}abc"), &format!("{short}g0"), &"é".repeat(32)]
        {
            assert_eq!(text.parse::<SampleHash>(), Err(NotAHash), "{text}");
        }
    }
}
