//! The section `[milter]`: which mail servers may ask about their mail, and for what.

use crate::door::is_public;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};
use weir_smtp::network::IpNetwork;

settings! {
    /// Lets another mail server (Postfix, Sendmail) ask about mail while it accepts it, in the milter protocol
    #[section("milter")]
    #[check(MilterSettings::check)]
    pub struct MilterSettings {
        /// Where the milter protocol is spoken; empty for nowhere
        pub listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// A Unix socket for the same, whose group may write to it; empty for none
        pub listen_unix: Option<PathBuf> = path().optional(),
        /// Machines whose mail servers may ask over the network; this one's always may. They are believed when they say who is logged in
        pub clients: Vec<IpNetwork> = networks(256),
        /// Whether the throttle decides about mail of users who are logged in there: what would be held is taken over
        pub throttle: bool = flag(true),
        /// Whether the scan looks at the mail; it has to be on
        pub scan: bool = flag(false),
        /// What happens to mail that does not pass the scan: it is refused, goes to Weir's quarantine, or stays in the server's hold
        /// queue
        pub on_found: OnFound =
            choice([("refuse", OnFound::Refuse), ("quarantine", OnFound::Quarantine), ("hold", OnFound::Hold)]),
        /// The size of all messages at once that are being sent or wait
        pub messages_size: u64 = size("1GiB", "1MiB"..="1024GiB"),
        /// Connections at once; a server has one for each of its clients
        pub connections: u32 = number(500, 1..=65_535),
        /// How long a server may be silent; its own clients may be slow
        pub idle: Duration = duration("10m", "1s"..="1d"),
    }
}

/// What becomes of mail that the scan finds something in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFound {
    /// The client hears 550, and nobody keeps the mail.
    #[default]
    Refuse,
    /// Weir takes it over into its quarantine.
    Quarantine,
    /// The server that asked keeps it on its hold queue.
    Hold,
}

impl MilterSettings {
    /// Whether anything listens.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || self.listen_unix.is_some()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        if is_public(&self.listen) && self.clients.is_empty() {
            let what = "other machines reach this address, and none of them may ask".to_owned();
            section.blame("clients", what, "name them: clients = [\"192.0.2.10\"], or listen on 127.0.0.1");
        }
        if self.is_on() && !self.throttle && !self.scan {
            let what =
                "whoever asks here would be told nothing: neither the throttle nor the scan is to decide".to_owned();
            section.blame("throttle", what, "set throttle = true or scan = true, or listen nowhere");
        }
    }
}
