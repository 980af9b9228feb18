//! How long a certificate of the lab is valid. Its beginning is dated back, because the clocks of machines may be slow.

use std::time::{Duration, SystemTime};
pub(crate) use weir_tls::Validity;

/// Certificates are valid from this long before they were made.
pub(crate) const BACKDATED: Duration = Duration::from_secs(2 * 3600);

/// The meaning of the dates of a certificate that was dated back.
pub(crate) trait Issued {
    /// When it was made.
    fn made(&self) -> SystemTime;
    /// How long it is valid from when it was made.
    fn life(&self) -> Duration;
}

impl Issued for Validity {
    fn made(&self) -> SystemTime {
        (self.from + BACKDATED).min(self.until)
    }

    fn life(&self) -> Duration {
        self.until.duration_since(self.made()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_certificate_begins_when_it_was_made() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let short = Validity { from: at(0), until: at(7_260) };
        assert_eq!((short.made(), short.life()), (at(7_200), Duration::from_secs(60)));
    }
}
