//! The section `[notices]`: who is notified when mail is held or a user is stopped.

use std::time::Duration;
use weir_core::address::canonical;
use weir_foundation::webhook::Webhook;
use weir_settings::{Section, kinds, settings};

settings! {
    /// Who is told when mail is held or a user is stopped, besides the user's contact address
    #[section("notices")]
    pub struct Settings {
        /// Our name: notices come from `weir@hostname`.
        pub hostname: String = fixed("localhost".to_owned()),
        /// The administrator, who is told of every stop besides the user's contact address; empty for nobody
        pub admin: String = text("", "an address").valid(address),
        /// Called with JSON.
        pub webhook: Option<Webhook> = part_by(webhook),
        /// The console's address as users reach it, such as https://console.example.org: notices to a user's contact carry a signed
        /// link to the user's own page there, and whoever sends mail that is held is told to look there; empty for none
        pub link: String = text("", "a URL"),
        /// Tell nobody about stopped accounts, because somebody watches the console
        pub silent: bool = flag(false),
        /// The user's contact address is told of a delay if mail has to wait at least this long; a stop is always told at once
        pub tell_delays_over: Duration = duration("5m", "0s"..="1d"),
        /// Whether the administrator is told of delays, too, and not only of stops; otherwise they are in the digest
        pub admin_delays: bool = flag(false),
        /// How often the administrator is told which accounts are still stopped and what still waits; nothing is sent when nothing waits
        pub digest_every: Duration = duration("1d", "10m"..="31d"),
    }
}

fn address(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { canonical(text).map(drop).map_err(|why| format!("{text:?} {why}")) }
}

fn webhook(section: &mut Section<'_, '_>) -> Option<Webhook> {
    let known = |text: &str| if text.is_empty() { Ok(()) } else { Webhook::parse(text).map(drop) };
    let webhook: String = section.key(
        "webhook",
        "Called with a JSON document at every notice, lock, quarantine and verdict; empty for none",
        kinds::text("", "an http:// or https:// URL").valid(known),
    );
    let strong = |text: &str| match text.is_empty() || text.len() >= 16 {
        true => Ok(()),
        false => Err("it is too short to be a secret".to_owned()),
    };
    let secret: String = section.key(
        "webhook_secret",
        "Signs every call of the webhook (HMAC-SHA-256 of the body in X-Weir-Signature); empty to sign nothing",
        kinds::text("", "a text of 16 characters or more").valid(strong),
    );
    Webhook::parse(&webhook).ok().map(|webhook| webhook.signed(&secret))
}
