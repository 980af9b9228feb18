//! `[delivery]`: how mail goes out.

use super::calls::Calls;
use super::value::{Endpoint, RouteRule, Server};
use std::path::PathBuf;
use std::time::Duration;
use weir_mail::delivery::queue::QueueSettings;
use weir_mail::delivery::retry::RetrySchedule;
use weir_mail::delivery::route::Order;
use weir_mail::delivery::window::WindowBounds;
use weir_settings::Section;
use weir_settings::units::Span;
use weir_smtp::client::tls::TlsLevel;

/// The way that mail goes unless `routes` says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Maildir,
    Smarthost,
    Mx,
    Lmtp,
}

#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) way: Way,
    pub(crate) maildir: PathBuf,
    pub(crate) hosts: Vec<Server>,
    pub(crate) order: Order,
    pub(crate) routes: Vec<RouteRule>,
    pub(crate) tls: TlsLevel,
    pub(crate) implicit_tls: bool,
    pub(crate) login: String,
    pub(crate) password_file: PathBuf,
    pub(crate) roots: PathBuf,
    pub(crate) mx_port: u16,
    pub(crate) dns: Vec<Endpoint>,
    pub(crate) postmaster: String,
    pub(crate) queue: QueueSettings,
}

impl Delivery {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Delivery {
        let read = Delivery {
            way: s.choice(
                "way",
                &[("maildir", Way::Maildir), ("smarthost", Way::Smarthost), ("mx", Way::Mx), ("lmtp", Way::Lmtp)],
                "How mail goes out: into folders here, to one server for all, to each recipient's own servers, or by LMTP",
            ),
            maildir: s.path("maildir", "The folder of Maildirs, one a recipient; empty for DATA/mail"),
            hosts: s.list(
                "hosts",
                Vec::new(),
                ("servers", 32),
                "The smarthosts or LMTP servers: \"mail.example:25\", \"[2001:db8::1]:24\" or \"unix:/run/dovecot/lmtp\"",
            ),
            order: s.choice(
                "order",
                &[("failover", Order::Failover), ("round-robin", Order::RoundRobin)],
                "How several hosts are used: the first that answers, or in turn",
            ),
            routes: s.list(
                "routes",
                Vec::new(),
                ("routes", 10_000),
                "Other ways for some domains: \"example.org maildir\", \".example.org lmtp:unix:/run/lmtp\", \"example.net \
                 smtp:mail.example:25\", \"example.com mx\"; a leading dot means everything below",
            ),
            tls: s.choice(
                "tls",
                &[
                    ("opportunistic", TlsLevel::Opportunistic),
                    ("off", TlsLevel::Off),
                    ("required", TlsLevel::Required),
                    ("verified", TlsLevel::Verified),
                ],
                "TLS to other servers: if it works, never, always, or always with a certificate that proves the name",
            ),
            implicit_tls: s.flag("implicit_tls", false, "Whether the hosts speak TLS from the start (port 465)"),
            login: s.text("login", "", ("a name", "The login at the smarthost; empty for none"), |_| Ok(())),
            password_file: s.path("password_file", "A file with the password of that login in its first line"),
            roots: s.path("roots", "Root certificates as PEM for tls = \"verified\"; empty for this machine's"),
            mx_port: s.bounded("mx_port", 25_u32, 1..=65_535, "The port of recipients' own servers") as u16,
            dns: s.list("dns", Vec::new(), ("addresses with ports", 1), "A name server to ask instead of this machine's"),
            postmaster: s.text(
                "postmaster",
                "",
                ("an address", "Who answers questions about reports; empty for postmaster@hostname"),
                |_| Ok(()),
            ),
            queue: queue(s),
        };
        let wants_hosts = matches!(read.way, Way::Smarthost | Way::Lmtp);
        if wants_hosts && read.hosts.is_empty() {
            s.blame("way", "this way needs a server".into(), "name it: hosts = [\"mail.example:25\"]");
        }
        if read.login.is_empty() != read.password_file.as_os_str().is_empty() {
            s.blame("login", "login and password_file belong together".into(), "set both, or neither");
        }
        read
    }
}

fn queue(s: &mut Section<'_, '_>) -> QueueSettings {
    let d = QueueSettings::default();
    let span = |secs: u64| Span(Duration::from_secs(secs));
    let waits = d.retry.waits.iter().map(|wait| Span(*wait)).collect();
    let warn = Span(d.retry.warn_after.unwrap_or_default());
    let (most, destination) = (d.deliveries_max as u32, d.window.most);
    let deliveries = s.bounded("deliveries", most, 1..=10_000, "Deliveries at once, in all");
    let window =
        s.bounded("deliveries_per_destination", destination, 1..=1_000, "Deliveries at once to one destination");
    let recipients =
        s.bounded("recipients_per_delivery", d.recipients_max as u32, 1..=10_000, "Recipients of one delivery");
    let about = "Waits after the first, second and further failed attempts; the last one repeats";
    let waits = s.ascending("retry", waits, (Span(Duration::from_millis(100))..=span(86_400), 64), about);
    let lifetime = s.bounded(
        "lifetime",
        Span(d.retry.lifetime),
        span(60)..=span(30 * 86_400),
        "When a message is given up and returned",
    );
    let warn =
        s.bounded("warn_after", warn, span(0)..=span(30 * 86_400), "When the sender is told of a delay; 0s is never");
    QueueSettings {
        deliveries_max: deliveries as usize,
        window: WindowBounds { initial: d.window.initial.min(window), most: window, ..d.window },
        recipients_max: recipients as usize,
        retry: RetrySchedule {
            waits: waits.iter().map(|wait| wait.0).collect(),
            lifetime: lifetime.0,
            warn_after: (!warn.0.is_zero()).then_some(warn.0),
        },
    }
}
