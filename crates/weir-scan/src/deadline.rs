//! A time limit that grows with the size of the content.

use std::time::Duration;
use weir_settings::Section;
use weir_settings::kinds::duration;

/// A base, and more for each mebibyte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// For everything.
    pub base: Duration,
    /// For each mebibyte, begun ones in proportion.
    pub per_mib: Duration,
}

impl Deadline {
    /// `base` seconds, and `per_mib` more for each mebibyte.
    pub(crate) fn secs(base: u64, per_mib: u64) -> Deadline {
        Deadline { base: Duration::from_secs(base), per_mib: Duration::from_secs(per_mib) }
    }

    /// Reads it from a section, with this one as the default.
    pub(crate) fn read(self, s: &mut Section<'_, '_>) -> Deadline {
        let (base, per_mib) = (duration(self.base, "1s"..="1h"), duration(self.per_mib, "0s"..="1h"));
        Deadline {
            base: s.key("deadline", "How long one message may take, however small", base),
            per_mib: s.key("deadline_per_mib", "And how much longer for each mebibyte", per_mib),
        }
    }

    /// For content of this length.
    pub fn of(&self, length: u64) -> Duration {
        let more = self.per_mib.as_secs_f64() * length as f64 / f64::from(1 << 20);
        self.base + Duration::try_from_secs_f64(more).unwrap_or(self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_size() {
        let deadline = Deadline { base: Duration::from_secs(10), per_mib: Duration::from_secs(2) };
        assert_eq!(deadline.of(0), Duration::from_secs(10));
        assert_eq!(deadline.of(10 << 20), Duration::from_secs(30));
    }
}
