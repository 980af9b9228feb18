//! `[console]`: the pages for people in charge.

use super::calls::Calls;
use super::value::Endpoint;
use std::net::{Ipv4Addr, SocketAddr};
use weir_settings::Section;

#[derive(Debug, Clone)]
pub(crate) struct Console {
    pub(crate) enabled: bool,
    pub(crate) listen: Vec<Endpoint>,
    pub(crate) hosts: Vec<String>,
}

impl Console {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Console {
        let here = vec![Endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, 8025)))];
        let enabled = s.flag("enabled", true, "Whether the console is served");
        let listen = s.list(
            "listen",
            here,
            ("address with a port", 1),
            "Where the console listens, without TLS, so on loopback only; port 0 is any free one. Let the web gate serve it to others",
        );
        let hosts = s.list(
            "hosts",
            Vec::<super::value::Text>::new(),
            ("names", 16),
            "Names besides its address by which browsers may call the console, such as that under which the web gate serves it",
        );
        if listen.iter().any(|at| !at.0.ip().is_loopback()) {
            let what = "the console speaks HTTP without TLS: passwords must not cross a network that way".to_owned();
            s.blame(
                "listen",
                what,
                "listen on loopback, and let the web gate serve it: a backend of [web] with this address",
            );
        }
        if enabled && listen.is_empty() {
            s.blame("listen", "nothing would listen".to_owned(), "give an address, or set console.enabled = false");
        }
        let hosts = hosts.into_iter().map(|name| name.0).collect();
        Console { enabled, listen, hosts }
    }
}
