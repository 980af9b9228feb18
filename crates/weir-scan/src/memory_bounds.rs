//! How many answers of a scanner are remembered, and for how long.

use std::time::Duration;
use weir_settings::settings;

settings! {
    /// The bounds of a memory.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// Answers that are remembered by content; 0 for none
        pub entries as "remembered": usize = number(20_000, 0..=10_000_000),
        /// How long answers are remembered
        pub age as "remembered_for": Duration = duration("1h", "0s"..="7d"),
        /// What they may take together, in bytes.
        pub bytes: usize = fixed(64 << 20),
    }
}
