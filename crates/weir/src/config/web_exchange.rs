//! `[web.exchange]` and `[web.history]`: what front-ends of a cluster share.

use super::calls::Calls;
use super::value::Text;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::Section;
use weir_settings::units::Span;
use weir_web::exchange::nats::{NatsUrl, is_subject};

/// How front-ends reach each other.
#[derive(Debug, Clone)]
pub(crate) struct WebExchange {
    pub(crate) name: String,
    pub(crate) relays: Vec<String>,
    pub(crate) relay_key_file: PathBuf,
    pub(crate) nats: Vec<NatsUrl>,
    pub(crate) nats_subject: String,
    pub(crate) nats_ca_file: PathBuf,
    pub(crate) period: Span,
    pub(crate) peers: u32,
}

/// The history profile.
#[derive(Debug, Clone)]
pub(crate) struct WebHistory {
    pub(crate) file: PathBuf,
    pub(crate) learn: bool,
    pub(crate) every: Span,
    pub(crate) half_life: Span,
}

const DAY_S: u64 = 86_400;

impl WebExchange {
    pub(super) fn read(s: &mut Section<'_, '_>) -> WebExchange {
        let name = s.text(
            "name",
            "",
            ("a name", "This front-end's own name in the cluster; empty for the machine's name and data folder"),
            |_| Ok(()),
        );
        let texts = |list: Vec<Text>| list.into_iter().map(|Text(text)| text).collect::<Vec<String>>();
        let relays =
            texts(s.list("relays", Vec::new(), ("addresses", 8), "Hitservers, as host:port; frames go to all of them"));
        let relay_key_file =
            s.path("relay_key_file", "The key that front-ends and hitservers share; empty for the cluster's secret");
        let nats =
            s.list("nats", Vec::new(), ("URLs", 8), "NATS servers, as nats://user:password@host:port or tls://…");
        let subject = |text: &str| {
            if is_subject(text) {
                Ok(())
            } else {
                Err(format!("{text:?} is not a subject: write words with dots between"))
            }
        };
        let about = "The NATS subject of this cluster";
        let nats_subject = s.text("nats_subject", "weir.exchange", ("a subject", about), subject);
        let nats_ca_file = s.path("nats_ca_file", "Certificates to trust for tls://, as PEM; empty for the system's");
        let ms = |ms| Span(Duration::from_millis(ms));
        let period = s.bounded("period", ms(5), ms(2)..=ms(10), "How often news goes out");
        let peers = s.bounded("peers", 64, 1..=255, "Most other front-ends that are listened to");
        for relay in relays.iter().filter(|relay| !is_place(relay)) {
            s.blame(
                "relays",
                format!("{relay:?} is not host:port"),
                "write \"hitserver.example:2490\" or \"[::1]:2490\"",
            );
        }
        WebExchange { name, relays, relay_key_file, nats, nats_subject, nats_ca_file, period, peers }
    }

    /// Whether there are other front-ends to tell.
    pub(crate) fn is_shared(&self) -> bool {
        !self.relays.is_empty() || !self.nats.is_empty()
    }
}

impl WebHistory {
    pub(super) fn read(s: &mut Section<'_, '_>) -> WebHistory {
        let span = |seconds| Span(Duration::from_secs(seconds));
        WebHistory {
            file: s.path(
                "file",
                "The history document (`weir web learn` makes one); empty for web/history.json in the data folder",
            ),
            learn: s.flag("learn", true, "Whether requests that did not have to wait are counted for it"),
            every: s.bounded(
                "learn_every",
                span(3_600),
                span(1)..=span(30 * DAY_S),
                "How often a new version is made of what was counted",
            ),
            half_life: s.bounded(
                "half_life",
                span(30 * DAY_S),
                span(60)..=span(3_650 * DAY_S),
                "After this time a count is worth half",
            ),
        }
    }
}

fn is_place(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let sound = !host.is_empty() && !host.contains([' ', '/']) && (bracketed || !host.contains(':'));
    sound && port.parse::<u16>().is_ok_and(|port| port > 0)
}
