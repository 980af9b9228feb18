//! `[notices]`: who is told when mail is held or a user is stopped.

use super::calls::Calls;
use std::time::Duration;
use weir_core::address::canonical;
use weir_foundation::webhook::Webhook;
use weir_settings::Section;
use weir_settings::units::Span;

#[derive(Debug, Clone)]
pub(crate) struct Notices {
    pub(crate) admin: String,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) link: String,
    pub(crate) digest_every: Duration,
}

impl Notices {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Notices {
        let admin = s.text(
            "admin",
            "",
            (
                "an address",
                "The administrator, who gets every notice besides the user's contact address; empty for nobody",
            ),
            |text| {
                if text.is_empty() {
                    Ok(())
                } else {
                    canonical(text).map(drop).map_err(|why| format!("{text:?} {why}"))
                }
            },
        );
        let webhook = s.text(
            "webhook",
            "",
            (
                "an http:// or https:// URL",
                "Called with a JSON document at every notice, lock, quarantine and verdict; empty for none",
            ),
            |text| if text.is_empty() { Ok(()) } else { Webhook::parse(text).map(drop) },
        );
        let webhook_secret = s.text(
            "webhook_secret",
            "",
            (
                "a text of 16 characters or more",
                "Signs every call of the webhook (HMAC-SHA-256 of the body in X-Weir-Signature); empty to sign nothing",
            ),
            |text| {
                if text.is_empty() || text.len() >= 16 {
                    Ok(())
                } else {
                    Err("it is too short to be a secret".to_owned())
                }
            },
        );
        let link = s.text(
            "link",
            "",
            (
                "a URL",
                "The console's address as users reach it, such as https://console.example.org: notices to a user's contact carry a signed \
                 link to the user's own page there, and whoever sends mail that is held is told to look there; empty for none",
            ),
            |_| Ok(()),
        );
        let days = |days: u64| Span(Duration::from_secs(days * 86_400));
        let digest_every = s
            .bounded(
                "digest_every",
                days(1),
                Span(Duration::from_secs(600))..=days(31),
                "How often the administrator is told which accounts are still stopped and what still waits; nothing is sent when nothing waits",
            )
            .0;
        let webhook = Webhook::parse(&webhook).ok().map(|webhook| webhook.signed(&webhook_secret));
        Notices { admin, webhook, link, digest_every }
    }
}
