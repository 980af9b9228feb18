//! Rules that people made, beside those that come in files: contents that do not pass, by hash, and rules of YARA.
//!
//! A file is hashed only if it is as long as some blocked content, so that usual mail costs nothing more. Mail changes the line ends of
//! text, so a text matches with either kind of line end.

use crate::verdict::Outcome;
use crate::yara::RuleFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// All rules that people made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Contents that do not pass.
    pub blocked: Vec<Blocked>,
    /// Rules of YARA, each a file of its own.
    pub rules: Vec<RuleFile>,
}

impl Made {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocked.is_empty() && self.rules.is_empty()
    }
}

/// A content that does not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Its length, if that is known.
    pub bytes: Option<u64>,
    /// Whether it is malware; else it is only forbidden.
    pub infected: bool,
    /// Which rule this is, and why there is one.
    pub about: String,
}

/// Blocked contents, ready to be looked for.
#[derive(Debug, Default)]
pub(crate) struct Blocklist {
    by_hash: HashMap<[u8; 32], Outcome>,
    lengths: HashSet<u64>,
    /// Some content's length is not known.
    any_length: bool,
}

impl Blocklist {
    /// A text that is not a hash blocks nothing.
    pub(crate) fn new(blocked: &[Blocked]) -> Blocklist {
        let mut list = Blocklist::default();
        for one in blocked {
            let Some(hash) = digits(&one.sha256) else { continue };
            let outcome = match one.infected {
                true => Outcome::Infected { name: one.about.clone() },
                false => Outcome::Forbidden { reason: one.about.clone() },
            };
            list.by_hash.insert(hash, outcome);
            list.lengths.extend(one.bytes);
            list.any_length |= one.bytes.is_none();
        }
        list
    }

    /// Whether this content is blocked.
    pub(crate) fn find(&self, data: &[u8]) -> Option<&Outcome> {
        if self.by_hash.is_empty() || data.is_empty() {
            return None;
        }
        self.known(data.len(), || Sha256::digest(data).into()).or_else(|| self.with_plain_ends(data))
    }

    /// The same text as files have it, without a return before each line's end.
    fn with_plain_ends(&self, data: &[u8]) -> Option<&Outcome> {
        let returns = memchr::memmem::find_iter(data, b"\r\n").count();
        if returns == 0 {
            return None;
        }
        let hash = || {
            let (mut hash, mut rest) = (Sha256::new(), data);
            while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
                hash.update(&rest[..at]);
                rest = &rest[at + 1..];
            }
            hash.update(rest);
            hash.finalize().into()
        };
        self.known(data.len() - returns, hash)
    }

    fn known(&self, length: usize, hash: impl FnOnce() -> [u8; 32]) -> Option<&Outcome> {
        let worth = self.any_length || self.lengths.contains(&(length as u64));
        if worth { self.by_hash.get(&hash()) } else { None }
    }
}

/// A SHA-256 of 64 hexadecimal digits.
fn digits(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha256(data: &[u8]) -> String {
        Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn blocked(data: &[u8], bytes: Option<u64>) -> Blocked {
        Blocked { sha256: sha256(data), bytes, infected: true, about: "rule 1".into() }
    }

    #[test]
    fn a_content_is_known_by_its_hash_whatever_its_line_ends() {
        for bytes in [Some(18), None] {
            let list = Blocklist::new(&[blocked(b"#!/bin/sh\necho hi\n", bytes)]);
            let found = Outcome::Infected { name: "rule 1".into() };
            assert_eq!(list.find(b"#!/bin/sh\necho hi\n"), Some(&found));
            assert_eq!(list.find(b"#!/bin/sh\r\necho hi\r\n"), Some(&found));
            for other in ["", "#!/bin/sh\necho ho\n", "#!/bin/sh\r\necho ho\r\n", "#!/bin/sh\necho hi\n\n", "\r\n\r"] {
                assert_eq!(list.find(other.as_bytes()), None, "{other:?}");
            }
        }
    }

    #[test]
    fn what_is_no_hash_blocks_nothing() {
        let long = "é".repeat(32);
        let no_hash =
            ["", "00", &"g".repeat(64), &long].map(|sha256| Blocked { sha256: sha256.into(), ..blocked(b"", None) });
        assert!(Blocklist::new(&no_hash).find(b"x").is_none());
        let forbidden = Blocked { infected: false, ..blocked(b"x", Some(1)) };
        let list = Blocklist::new(&[forbidden]);
        assert_eq!(list.find(b"x"), Some(&Outcome::Forbidden { reason: "rule 1".into() }));
    }
}
