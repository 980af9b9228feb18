//! The section `[policy_service]`: which Postfix may ask about recipients, and what it does with mail that has to wait.

use crate::door::is_public;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};
use weir_smtp::network::IpNetwork;

settings! {
    /// Lets Postfix ask the throttle about each recipient of its users' mail, in its policy protocol
    #[section("policy_service")]
    #[check(PolicySettings::check)]
    pub struct PolicySettings {
        /// Where Postfix's policy protocol is spoken; empty for nowhere
        pub listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// A Unix socket for the same, whose group may write to it; empty for none
        pub listen_unix: Option<PathBuf> = path().optional(),
        /// Machines that may ask over the network; this one always may. They are believed when they say who is logged in
        pub clients: Vec<IpNetwork> = networks(256),
        /// What Postfix does with mail to a recipient that has to wait: the client is told when to come again, or Postfix takes the mail and
        /// keeps it on its hold queue for a person
        pub on_held: OnHeld = choice([("defer", OnHeld::Defer), ("hold", OnHeld::Hold)]),
        /// Connections at once; Postfix has one for each of its processes that take mail
        pub connections: u32 = number(500, 1..=65_535),
        /// How long Postfix may be silent
        pub idle: Duration = duration("10m", "1s"..="1d"),
    }
}

/// What Postfix does with mail to a recipient that has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnHeld {
    /// The client is refused for now.
    #[default]
    Defer,
    /// Postfix keeps it.
    Hold,
}

impl PolicySettings {
    /// Whether anything listens.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || self.listen_unix.is_some()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        if is_public(&self.listen) && self.clients.is_empty() {
            let what = "other machines reach this address, and none of them may ask".to_owned();
            section.blame("clients", what, "name them: clients = [\"192.0.2.10\"], or listen on 127.0.0.1");
        }
    }
}
