//! How often an attempt may fail because this machine was too busy before it counts against the sample. Usually such an attempt does not
//! count. But without a limit, a sample that manages to keep its machine busy would be run again for ever. Memory is bounded: when too many
//! samples are known, all are forgotten.

use std::collections::HashMap;
use weir_store::samples::SampleHash;

/// How often a sample is tried again without a charge.
const TRIES: u32 = 4;
/// How many samples are remembered.
const KNOWN_MAX: usize = 1024;

/// How often this machine was too busy, by sample.
#[derive(Debug, Default)]
pub(super) struct Patience(HashMap<SampleHash, u32>);

impl Patience {
    /// An attempt has failed once more because the machine was too busy. Returns whether the sample may be tried again without a charge.
    pub(super) fn has_some(&mut self, sample: SampleHash) -> bool {
        if self.0.len() >= KNOWN_MAX && !self.0.contains_key(&sample) {
            self.0.clear();
        }
        let tries = self.0.entry(sample).or_default();
        *tries += 1;
        let is_patient = *tries <= TRIES;
        if !is_patient {
            self.0.remove(&sample);
        }
        is_patient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_needs_bounded_memory() {
        let hash = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            SampleHash(bytes)
        };
        let mut patience = Patience::default();
        let said: Vec<bool> = (0..6).map(|_| patience.has_some(hash(1))).collect();
        assert_eq!(said, [true, true, true, true, false, true]);
        for number in 0..3 * KNOWN_MAX {
            patience.has_some(hash(number));
        }
        assert!(patience.0.len() <= KNOWN_MAX);
    }
}
