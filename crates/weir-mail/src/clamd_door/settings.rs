//! The section `[scan.clamd_door]`: which programs may ask about files, and on which addresses.

use crate::door::is_public;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};
use weir_smtp::network::IpNetwork;

settings! {
    /// Lets other programs (Rspamd, Amavis, Nextcloud, clamdscan) ask the scan about files in clamd's protocol
    #[section("scan.clamd_door")]
    #[check(DoorSettings::check)]
    pub struct DoorSettings {
        /// Where clamd's protocol is spoken; empty for nowhere
        pub listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// A Unix socket for the same, whose group may write to it; empty for none
        pub listen_unix: Option<PathBuf> = path().optional(),
        /// Machines that may ask over the network; this one always may
        pub clients: Vec<IpNetwork> = networks(256),
        /// The largest file
        pub stream_size: u64 = size("100MiB", "1KiB"..="4GiB"),
        /// The size of all files at once that are being sent or wait
        pub streams_size: u64 = size("1GiB", "1MiB"..="1024GiB"),
        /// Connections at once
        pub connections: u32 = number(256, 1..=65_535),
        /// How long a client may be silent
        pub idle: Duration = duration("2m", "1s"..="1h"),
    }
}

impl DoorSettings {
    /// Whether anything listens.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || self.listen_unix.is_some()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        if is_public(&self.listen) && self.clients.is_empty() {
            let what = "other machines reach this address, and none of them may ask".to_owned();
            section.blame("clients", what, "name them: clients = [\"192.0.2.10\"], or listen on 127.0.0.1");
        }
        if self.stream_size > self.streams_size {
            section.blame("streams_size", "not even one file of stream_size fits".into(), "make it larger");
        }
    }
}
