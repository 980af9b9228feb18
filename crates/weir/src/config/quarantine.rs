//! `[quarantine]`: how long mail is kept that may not pass, and who hears of it.

use super::calls::Calls;
use std::time::Duration;
use weir_mail::scan::QuarantineSettings;
use weir_settings::Section;
use weir_settings::units::{Size, Span};

pub(super) fn read(s: &mut Section<'_, '_>) -> QuarantineSettings {
    let days = |days: u64| Span(Duration::from_secs(days * 86_400));
    QuarantineSettings {
        keep_for: s.bounded("keep_for", days(30), days(1)..=days(3650), "How long quarantined mail is kept").0,
        bytes_max: s
            .bounded(
                "bytes_max",
                Size(1 << 30),
                Size(1 << 20)..=Size(1 << 50),
                "How much quarantined mail is kept; beyond that the oldest goes first",
            )
            .0,
        link: s.text(
            "link",
            "",
            (
                "an http:// or https:// URL",
                "The page that digests link to, one below it for each message; empty for no digests",
            ),
            |text| match text.is_empty() || text.starts_with("https://") || text.starts_with("http://") {
                true => Ok(()),
                false => Err(format!("{text:?} is not a URL that begins with http:// or https://")),
            },
        ),
        digest_every: s
            .bounded(
                "digest_every",
                days(1),
                Span(Duration::from_secs(600))..=days(31),
                "How often recipients are told which spam to them was kept, if there is a link",
            )
            .0,
    }
}
