//! `[web]`: the fair front-end of HTTP servers.

use super::calls::Calls;
use super::value::{BackendRule, Endpoint, GroupRule, Net, SlotsRule, Text, WebRoute};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::Section;
use weir_settings::units::{Size, Span};
use weir_web::identity::forwarded::Trail;
use weir_web::log::Format;
use weir_web::proxy::Limits;

#[derive(Debug, Clone)]
pub(crate) struct Web {
    pub(crate) enabled: bool,
    pub(crate) listen: Vec<Endpoint>,
    pub(crate) listen_tls: Vec<Endpoint>,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) redirect_port: u16,
    pub(crate) threads: u32,
    pub(crate) backends: Vec<BackendRule>,
    pub(crate) server_ca_file: PathBuf,
    pub(crate) routes: Vec<WebRoute>,
    pub(crate) access_log: PathBuf,
    pub(crate) log_format: Format,
    pub(crate) error_pages: PathBuf,
    pub(crate) server_timing: bool,
    pub(crate) queue: Queue,
    pub(crate) servers: Servers,
}

/// How requests wait.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) slots: SlotsRule,
    pub(crate) observe: bool,
    pub(crate) requests: u32,
    pub(crate) size: Size,
    pub(crate) timeout: Span,
    pub(crate) debt_cap: Span,
    pub(crate) stream_after: Span,
    pub(crate) streams_per_session: u32,
    pub(crate) streams_per_subnet: u32,
    pub(crate) streams: u32,
    pub(crate) sessions: u32,
    pub(crate) stranger_weight: f64,
}

/// How servers are talked to.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    pub(crate) connect: Span,
    pub(crate) response: Span,
    pub(crate) piece: Span,
    pub(crate) idle: Span,
    pub(crate) idle_connections: u32,
    pub(crate) request_buffer: Size,
    pub(crate) health_every: Span,
    pub(crate) failures: u32,
    pub(crate) rest: Span,
}

/// Who is who.
#[derive(Debug, Clone)]
pub(crate) struct WebIdentity {
    pub(crate) secret_file: PathBuf,
    pub(crate) ipv4_prefix: u32,
    pub(crate) ipv6_prefix: u32,
    pub(crate) groups: Vec<GroupRule>,
    pub(crate) trusted: Vec<Net>,
    pub(crate) trail: Trail,
    pub(crate) proxy_protocol: bool,
    pub(crate) cookie: String,
    pub(crate) cookie_lifetime: Span,
    pub(crate) cookie_key_file: PathBuf,
    pub(crate) previous_cookie_key_file: PathBuf,
}

impl Web {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Web {
        let addresses = ("addresses with ports", 64);
        let here = vec![Endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, 2480)))];
        let read = Web {
            enabled: s.flag("enabled", true, "Whether the web gate runs; it needs a backend"),
            listen: s.list("listen", here, addresses, "Where plain HTTP (1.1 and 2) is spoken; port 0 is any free one"),
            listen_tls: s.list("listen_tls", Vec::new(), addresses, "Where HTTPS is spoken"),
            certificate: s.path("certificate",
                "The certificate with its chain, as PEM; empty for a self-signed one made at first start",
            ),
            key: s.path("key", "The private key of the certificate, as PEM"),
            redirect_port: s.bounded(
                "redirect_port",
                0_u32,
                0..=65_535,
                "Send every plain request to https at this port; 0 is off",
            ) as u16,
            threads: s.bounded("threads", 0, 0..=256, "Threads that carry traffic; 0 is one for each processor"),
            backends: s.list(
                "backends",
                Vec::new(),
                ("backends", 256),
                "Who does the work: a name, servers, and what differs from below, such as \"app 10.0.0.1:8080 10.0.0.2:8080 slots=8 \
                 health=/alive\"; https://host:port is spoken to over TLS (sni=NAME for another name than the host's, unverified for any \
                 certificate); `weir up --demo` has a small one of its own if there is none",
            ),
            server_ca_file: s.path(
                "server_ca_file",
                "Certificates of authorities to trust for servers with https://, as PEM; empty for those that the machine trusts",
            ),
            routes: s.list(
                "routes",
                Vec::new(),
                ("routes", 10_000),
                "Which requests go where, by host and path: \"example.org/api app\", \"*.example.org app\", \"* site\"; none is all to \
                 the first backend",
            ),
            access_log: s.path("access_log", "The file of the access log; empty for none, - for standard error"),
            log_format: s.choice(
                "log_format",
                &[("combined", Format::Combined), ("json", Format::Json)],
                "How a line of the access log looks",
            ),
            error_pages: s.path("error_pages", "A folder with pages such as 503.html; empty for the built-in ones"),
            server_timing: s.flag("server_timing", false, "Whether responses say how long the request waited"),
            queue: Queue::read(s),
            servers: Servers::read(s),
        };
        read.check(s);
        read
    }

    fn check(&self, s: &mut Section<'_, '_>) {
        if self.certificate.as_os_str().is_empty() != self.key.as_os_str().is_empty() {
            s.blame("certificate", "certificate and key belong together".into(), "set both, or neither");
        }
        if self.enabled && self.listen.is_empty() && self.listen_tls.is_empty() {
            s.blame("listen", "nothing would listen".into(), "give listen or listen_tls an address");
        }
        let names: Vec<&str> = self.backends.iter().map(|backend| backend.name.as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            s.blame("backends", format!("{:?} is there twice", twice.1), "give every backend its own name");
        }
        for route in self.routes.iter().filter(|route| !names.contains(&route.backend.as_str())) {
            s.blame("routes", format!("{:?} leads to no backend", route.to_string()), "name it in backends");
        }
    }
}

impl Queue {
    fn read(s: &mut Section<'_, '_>) -> Queue {
        Queue {
            slots: slots(s),
            observe: s.flag("observe", false, "Compute who would wait, and let nobody wait"),
            requests: s.bounded("queue", 10_000, 1..=16_000_000, "Requests that may wait at a backend"),
            size: s.bounded(
                "queue_size",
                Size(256 << 20),
                Size(64 << 10)..=Size(1 << 40),
                "Memory that waiting requests may hold",
            ),
            timeout: s.bounded(
                "queue_timeout",
                secs(30),
                millis(1)..=secs(3_600),
                "How long a request may wait before it hears 503",
            ),
            debt_cap: s.bounded(
                "debt_cap",
                secs(5),
                millis(10)..=secs(3_600),
                "How far service elsewhere and overruns set a session back, in slot time: 5 to 20 requests",
            ),
            stream_after: s.bounded(
                "stream_after",
                secs(1),
                millis(10)..=secs(3_600),
                "When a response that still goes on after its first byte gives its slot back and counts as a stream",
            ),
            streams_per_session: s.bounded(
                "streams_per_session",
                32,
                1..=1_000_000,
                "Open streams (WebSocket, events, slow readers) of one session",
            ),
            streams_per_subnet: s.bounded(
                "streams_per_subnet",
                512,
                1..=1_000_000,
                "Open streams of all sessions of a subnet; never more than are left for others",
            ),
            streams: s.bounded("streams", 8_192, 1..=1_000_000, "Open streams of a backend, in all"),
            sessions: s.bounded("sessions", 1 << 20, 16..=1 << 24, "Sessions that a backend's queue remembers"),
            stranger_weight: s.bounded(
                "stranger_weight",
                1.0,
                0.001..=1_000_000.0,
                "The history of a subnet without one, in multiples of the average",
            ),
        }
    }
}

impl Servers {
    fn read(s: &mut Section<'_, '_>) -> Servers {
        Servers {
            connect: s.bounded("connect", secs(3), millis(10)..=secs(600), "To connect to a server"),
            response: s.bounded(
                "response",
                secs(60),
                millis(10)..=secs(86_400),
                "From a request to the first byte of its response",
            ),
            piece: s.bounded("response_piece", secs(60), millis(10)..=secs(86_400), "Between two pieces of a response"),
            idle: s.bounded(
                "server_idle",
                secs(60),
                millis(10)..=secs(86_400),
                "How long an idle connection to a server is kept",
            ),
            idle_connections: s.bounded(
                "idle_connections",
                1_024,
                0..=65_535,
                "Idle connections to one server that a thread keeps",
            ),
            request_buffer: s.bounded(
                "request_buffer",
                Size(64 << 10),
                Size(0)..=Size(16 << 20),
                "Request bodies up to this size are read before a slot is asked for; larger ones stream",
            ),
            health_every: s.bounded(
                "health_every",
                secs(5),
                secs(0)..=secs(86_400),
                "How often servers are checked; 0s is never",
            ),
            failures: s.bounded("failures", 3, 1..=1_000, "Failures in a row that make a server count as down"),
            rest: s.bounded(
                "rest",
                secs(5),
                millis(100)..=secs(86_400),
                "How long a server that is down is left alone",
            ),
        }
    }
}

impl WebIdentity {
    pub(super) fn read(s: &mut Section<'_, '_>) -> WebIdentity {
        WebIdentity {
            secret_file: s.path("secret_file",
                "A file with the cluster's secret, at least 16 bytes, the same at all front-ends; empty for DATA/web/secret, made at first start",
            ),
            ipv4_prefix: s.bounded(
                "ipv4_prefix",
                24,
                0..=32,
                "How many leading bits of an IPv4 address make the subnet",
            ),
            ipv6_prefix: s.bounded(
                "ipv6_prefix",
                56,
                0..=64,
                "How many leading bits of an IPv6 address make the subnet",
            ),
            groups: s.list(
                "groups",
                Vec::new(),
                ("groups", 1_000),
                "Subnets that count as one, such as \"campus 192.0.2.0/24 198.51.100.0/24\"",
            ),
            trusted: s.list(
                "trusted",
                Vec::new(),
                ("networks", 256),
                "Proxies whose word on the client's address is taken",
            ),
            trail: s.choice(
                "trusted_header",
                &[("x-forwarded-for", Trail::XForwardedFor), ("forwarded", Trail::Forwarded)],
                "Which header they speak in",
            ),
            proxy_protocol: s.flag(
                "proxy_protocol",
                false,
                "Whether trusted proxies begin every connection with a PROXY header (v1 or v2)",
            ),
            cookie: s.text(
                "cookie",
                "weir",
                ("a cookie name", "The name of the session cookie; empty for none: a session is then an address"),
                cookie_name,
            ),
            cookie_lifetime: s.bounded(
                "cookie_lifetime",
                secs(30 * 86_400),
                secs(60)..=secs(400 * 86_400),
                "How long a session cookie is good for",
            ),
            cookie_key_file: s.path(
                "cookie_key_file",
                "A file with the key that signs session cookies, the same at all front-ends; empty for the cluster's secret",
            ),
            previous_cookie_key_file: s.path(
                "previous_cookie_key_file",
                "A file with the key that signed them before: its cookies are still good, and signed anew; empty for none",
            ),
        }
    }
}

/// Reads all limits; their defaults are the proxy's own.
pub(super) fn limits(s: &mut Section<'_, '_>) -> Limits {
    let d = Limits::default();
    let limits = Limits {
        connections: s.bounded(
            "connections",
            d.connections,
            1..=1_000_000,
            "Connections at once, in all; no subnet has more than are left for others",
        ),
        connections_per_address: s.bounded(
            "connections_per_address",
            d.connections_per_address,
            1..=1_000_000,
            "Connections at once from one address",
        ),
        header_bytes: s
            .bounded(
                "header_size",
                Size(u64::from(d.header_bytes)),
                Size(8 << 10)..=Size(1 << 20),
                "The head of a request",
            )
            .0 as u32,
        body_bytes: s.bounded("body_size", Size(d.body_bytes), Size(0)..=Size(1 << 50), "The body of a request").0,
        body_buffers: s
            .bounded(
                "body_buffers",
                Size(d.body_buffers),
                Size(1 << 20)..=Size(1 << 40),
                "Memory for all request bodies that are read before their requests ask for a slot",
            )
            .0,
        body_rate: s
            .bounded(
                "body_rate",
                Size(u64::from(d.body_rate)),
                Size(1)..=Size(1 << 30),
                "What a request body must bring in a second",
            )
            .0 as u32,
        streams: s.bounded("streams", d.streams, 1..=10_000, "HTTP/2 streams at once on a connection"),
        resets: s.bounded(
            "resets",
            d.resets,
            1..=1_000_000,
            "Requests that a client may give up on one connection within ten seconds before it is closed",
        ),
        requests: s.bounded("requests", d.requests, 1..=u32::MAX, "Requests on one connection before it is closed"),
        upgrades: upgrades(s, d.upgrades),
        ..d
    };
    let mut time = |key, default, about| s.bounded(key, Span(default), millis(10)..=secs(86_400), about).0;
    Limits {
        header: time("header", limits.header, "The head of a request, from its first byte"),
        idle: time("idle", limits.idle, "An idle connection"),
        body_piece: time("body_piece", limits.body_piece, "Between two pieces of a request body"),
        body_grace: time("body_grace", limits.body_grace, "What a request body may take beyond its size at body_rate"),
        send: time("send", limits.send, "How long a client may take nothing of its response"),
        tunnel_idle: time("tunnel_idle", limits.tunnel_idle, "An upgraded connection on which nothing happens"),
        tls_handshake: time("tls_handshake", limits.tls_handshake, "A TLS handshake"),
        drain: time("drain", limits.drain, "How long a stop waits for requests that are under way"),
        ..limits
    }
}

fn slots(s: &mut Section<'_, '_>) -> SlotsRule {
    let about = "Requests that a backend works on at once; auto is found by measuring";
    let check = |text: &str| text.parse::<SlotsRule>().map(drop);
    s.text("slots", "auto", ("auto or \"1\" … \"65535\"", about), check).parse().unwrap_or(SlotsRule::Auto)
}

fn upgrades(s: &mut Section<'_, '_>, default: Vec<String>) -> Vec<String> {
    let default: Vec<Text> = default.into_iter().map(Text).collect();
    let about = "Protocols that a client may change to by Upgrade; others are not passed on";
    s.list("upgrades", default, ("protocols", 16), about).into_iter().map(|Text(text)| text).collect()
}

fn secs(secs: u64) -> Span {
    Span(Duration::from_secs(secs))
}

fn millis(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

fn cookie_name(text: &str) -> Result<(), String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if plain && text.len() <= 64 {
        Ok(())
    } else {
        Err(format!("{text:?} is not a cookie name: write letters, digits, - and _"))
    }
}
