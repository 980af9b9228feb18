//! `[notices]`: who is told when mail is held or a user is stopped.

use super::reader::Section;
use weir_core::address::canonical;
use weir_mail::notices::Webhook;

#[derive(Debug, Clone)]
pub(crate) struct Notices {
    pub(crate) admin: String,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) link: String,
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
                 link to the user's own page there; empty for none",
            ),
            |_| Ok(()),
        );
        let webhook = Webhook::parse(&webhook).ok().map(|webhook| webhook.signed(&webhook_secret));
        Notices { admin, webhook, link }
    }
}
