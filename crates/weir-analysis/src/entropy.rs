//! Shannon's entropy in bits per byte, which tells how random bytes look. The maximum is eight; packed code has more than seven.

/// A count of bytes.
#[derive(Debug, Clone)]
pub struct Entropy {
    counts: [u64; 256],
    size: u64,
}

impl Default for Entropy {
    fn default() -> Entropy {
        Entropy { counts: [0; 256], size: 0 }
    }
}

impl Entropy {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.counts[usize::from(*byte)] += 1);
        self.size += bytes.len() as u64;
    }

    /// Bits a byte; 0 for nothing.
    pub fn bits(&self) -> f64 {
        let part = |count: &u64| *count as f64 / self.size as f64;
        let bits: f64 = self.counts.iter().filter(|count| **count > 0).map(part).map(|p| -p * p.log2()).sum();
        // One value alone gives a negative zero.
        bits.abs()
    }
}

/// Of these bytes, to a hundredth.
pub fn of(bytes: &[u8]) -> f64 {
    let mut entropy = Entropy::default();
    entropy.update(bytes);
    rounded(entropy.bits())
}

/// To a hundredth.
pub fn rounded(bits: f64) -> f64 {
    (bits * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn from_none_to_eight() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!((of(&all), of(&[7; 100]), of(b""), of(b"abab")), (8.0, 0.0, 0.0, 1.0));
    }
}
