//! All limits on what clients may use, in one place (`[web.limits]`).

use std::time::Duration;

use weir_settings::{Section, settings};

settings! {
    /// What clients of the web gate may use
    #[section("web.limits")]
    #[check(Limits::check)]
    #[derive(PartialEq, Eq)]
    pub struct Limits {
        /// Connections at once, in all; no subnet has more than are left for others
        pub connections: u32 = number(20_000, 1..=1_000_000),
        /// Connections at once from one address
        pub connections_per_address: u32 = number(2_000, 1..=1_000_000),
        /// The head of a request
        pub header_bytes as "header_size": u32 = size("32KiB", "8KiB"..="1MiB"),
        /// The body of a request
        pub body_bytes as "body_size": u64 = size("1GiB", "0"..="1048576GiB"),
        /// Memory for all request bodies that are read before their requests ask for a slot
        pub body_buffers: u64 = size("256MiB", "1MiB"..="1024GiB"),
        /// Disk for all request bodies that are larger than request_buffer and are read before their requests ask for a slot
        pub body_files: u64 = size("2GiB", "0"..="1048576GiB"),
        /// Memory for all responses that their servers gave faster than the clients took them
        pub response_buffers: u64 = size("256MiB", "1MiB"..="1024GiB"),
        /// Disk for all responses that are larger than response_buffer and that their clients take slowly
        pub response_files: u64 = size("2GiB", "0"..="1048576GiB"),
        /// How fast a client must read its response once the buffers for responses are full
        pub response_rate: u32 = size("4KiB", "1"..="1GiB"),
        /// How fast a request body must come in
        pub body_rate: u32 = size("1KiB", "1"..="1GiB"),
        /// HTTP/2 streams at once on a connection
        pub streams: u32 = number(128, 1..=10_000),
        /// Requests that a client may give up on one connection within ten seconds before it is closed
        pub resets: u32 = number(100, 1..=1_000_000),
        /// Requests on one connection before it is closed
        pub requests: u32 = number(1_000_000, 1..=u32::MAX),
        /// Protocols that a client may change to by Upgrade; others are not passed on
        pub upgrades: Vec<String> = list(["websocket".to_owned()], 16, "protocols"),
        /// The head of a request, from its first byte
        pub header: Duration = duration("10s", "10ms"..="1d"),
        /// An idle connection
        pub idle: Duration = duration("75s", "10ms"..="1d"),
        /// Between two pieces of a request body
        pub body_piece: Duration = duration("30s", "10ms"..="1d"),
        /// What a request body may take beyond its size at body_rate
        pub body_grace: Duration = duration("30s", "10ms"..="1d"),
        /// How long a client may read nothing of its response
        pub send: Duration = duration("30s", "10ms"..="1d"),
        /// An upgraded connection on which nothing happens
        pub tunnel_idle: Duration = duration("10m", "10ms"..="1d"),
        /// A TLS handshake
        pub tls_handshake: Duration = duration("10s", "10ms"..="1d"),
        /// How long Weir waits for requests in progress when it stops
        pub drain: Duration = duration("10s", "10ms"..="1d"),
    }
}

impl Limits {
    fn check(&self, section: &mut Section<'_, '_>) {
        let is_http = |name: &&String| {
            let name = name.to_ascii_lowercase();
            name == "h2c" || name == "h2" || name.starts_with("http")
        };
        if let Some(name) = self.upgrades.iter().find(is_http) {
            let what = format!("behind an upgrade to {name} a client could send requests that nobody checks or counts");
            section.blame("upgrades", what, "HTTP is spoken without an upgrade; leave it out");
        }
    }

    /// The same limits with every number moved inside its bounds.
    pub fn bounded(self) -> Limits {
        let time = |time: Duration| time.clamp(Duration::from_millis(10), Duration::from_secs(24 * 3_600));
        Limits {
            connections: self.connections.clamp(1, 1_000_000),
            connections_per_address: self.connections_per_address.clamp(1, 1_000_000),
            header_bytes: self.header_bytes.clamp(8 << 10, 1 << 20),
            header: time(self.header),
            idle: time(self.idle),
            body_piece: time(self.body_piece),
            body_grace: time(self.body_grace),
            body_rate: self.body_rate.max(1),
            send: time(self.send),
            tunnel_idle: time(self.tunnel_idle),
            tls_handshake: time(self.tls_handshake),
            streams: self.streams.clamp(1, 10_000),
            resets: self.resets.max(1),
            requests: self.requests.max(1),
            drain: time(self.drain),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_inside_their_bounds() {
        assert_eq!(Limits::default().bounded(), Limits::default());
    }

    #[test]
    fn absurd_numbers_are_brought_back() {
        let absurd =
            Limits { connections: 0, header_bytes: u32::MAX, idle: Duration::MAX, streams: 0, ..Limits::default() };
        let sane = absurd.bounded();
        assert_eq!((sane.connections, sane.header_bytes, sane.streams), (1, 1 << 20, 1));
        assert_eq!(sane.idle, Duration::from_secs(24 * 3_600));
    }
}
