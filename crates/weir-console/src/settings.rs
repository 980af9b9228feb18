//! The section `[console]` of the configuration: where the pages are served.

use std::net::{Ipv4Addr, SocketAddr};
use weir_settings::{Section, settings};

settings! {
    /// The console: web pages for operators and administrators
    #[section("console")]
    #[check(ConsoleSettings::check)]
    pub struct ConsoleSettings {
        /// Whether the console is served
        pub enabled: bool = flag(true),
        /// Where the console listens, without TLS, so on loopback only; port 0 is any free one. Let the web gate serve it to others
        pub listen: Vec<SocketAddr> = list([SocketAddr::from((Ipv4Addr::LOCALHOST, 8025))], 1, "address with a port"),
        /// Names besides its address by which browsers may call the console, such as that under which the web gate serves it
        pub hosts: Vec<String> = list([], 16, "names"),
    }
}

impl ConsoleSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.listen.iter().any(|at| !at.ip().is_loopback()) {
            let what = "the console speaks HTTP without TLS: passwords must not cross a network that way".to_owned();
            let hint = "listen on loopback, and let the web gate serve it: a backend of [web] with this address";
            section.blame("listen", what, hint);
        }
        if self.enabled && self.listen.is_empty() {
            let hint = "give an address, or set console.enabled = false";
            section.blame("listen", "nothing would listen".to_owned(), hint);
        }
    }
}
