//! The section `[web.forward_auth]`: which other proxies may ask whether a request may go, and how they report that a request is over.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use weir_settings::{Section, settings};

use crate::identity::{Network, names_everybody};

settings! {
    /// Another proxy (nginx, Caddy, Traefik) carries the requests, and asks the web gate whose turn it is
    #[section("web.forward_auth")]
    #[check(DoorSettings::check)]
    pub struct DoorSettings {
        /// Where proxies ask, over HTTP; empty for nowhere
        pub listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// A Unix socket for the same, whose group may write to it; empty for none
        pub listen_unix: Option<PathBuf> = path().optional(),
        /// Proxies that may ask over the network and send their log; this machine always may
        pub clients: Vec<Network> = networks(256),
        /// Where proxies send their access log (syslog or JSON, over UDP), which tells when a request is over; empty for nowhere
        pub log_listen: Vec<SocketAddr> = list([], 16, "addresses with ports"),
        /// A Unix socket for datagrams of the same; empty for none
        pub log_unix: Option<PathBuf> = path().optional(),
        /// How long a request holds its slot at most, if the log does not say that it is over
        pub longest: Duration = duration("30s", "100ms"..="1d"),
        /// How long a request holds its slot where no log is sent
        pub lease: Duration = duration("1s", "10ms"..="1h"),
        /// Connections of proxies at once; each request that waits needs one
        pub connections: u32 = number(16_384, 1..=1_000_000),
    }
}

impl DoorSettings {
    /// Whether proxies may ask.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || self.listen_unix.is_some()
    }

    /// Whether proxies say when a request is over.
    pub fn hears_ends(&self) -> bool {
        !self.log_listen.is_empty() || self.log_unix.is_some()
    }

    /// Whether this machine may ask.
    pub(super) fn admits(&self, proxy: IpAddr) -> bool {
        let proxy = proxy.to_canonical();
        proxy.is_loopback() || self.clients.iter().any(|network| network.contains(proxy))
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        let public = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
        for (key, addresses) in [("listen", &self.listen), ("log_listen", &self.log_listen)] {
            if addresses.iter().any(public) && self.clients.is_empty() {
                let what =
                    "other machines can reach this address, but none of them would be allowed to use it".to_owned();
                section.blame(key, what, "name the proxies: clients = [\"192.0.2.10\"], or listen on 127.0.0.1");
            }
        }
        if names_everybody(&self.clients) {
            let what = "everybody could take slots in the name of others, and say that requests are over which are not"
                .to_owned();
            section.blame("clients", what, "list your own proxies only");
        }
        if self.hears_ends() && !self.is_on() {
            let what = "a log is received, but no proxy can ask".to_owned();
            section.blame("listen", what, "give listen or listen_unix an address, or hear no log");
        }
    }
}
